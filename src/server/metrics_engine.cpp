// The engine's part of /metrics. Names and labels: docs/spec/server.md.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "server/metrics.h"
#include "server/metrics_page.h"

namespace deepinfer::server {
namespace {

std::string label(std::string_view name, std::string_view value) {
  std::string out(name);
  out.append("=\"").append(value).append("\"");
  std::ranges::replace(out, ' ', '_');
  return out;
}

void append_histogram(MetricsPage& page, std::string_view name, std::string_view help, const engine::TimeHistogram& times) {
  page.head(name, "histogram", help);
  page.buckets(name, {}, engine::TimeHistogram::kBounds, times.counts, times.sum_seconds);
}

void append_steps(MetricsPage& page, const engine::EngineStats& stats) {
  constexpr std::string_view kName = "step_seconds";
  constexpr std::array<std::string_view, engine::kNumStepKinds> kKinds = {"prefill", "decode", "mixed"};
  page.head(kName, "histogram", "Steps by what they compute; forward: from launch to result, host: the rest of the step");
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const engine::StepTimes& times = stats.step_times[i];
    const std::string kind = label("kind", kKinds[i]);
    page.buckets(kName, kind + ",phase=\"forward\"", engine::TimeHistogram::kBounds, times.forward.counts, times.forward.sum_seconds);
    page.buckets(kName, kind + ",phase=\"host\"", engine::TimeHistogram::kBounds, times.host.counts, times.host.sum_seconds);
  }
}

void append_prefixes(MetricsPage& page, const engine::EngineStats& stats) {
  page.gauge("cached_prefixes", "Blocks that later requests may find, held or not", stats.num_cached_prefixes);
  page.counter("prefix_hits_total", "Requests that found a part of their prompt in the cache", stats.num_prefix_hits);
  page.head("prefix_miss_total", "counter", "Requests by why no more of their prompt was cached; none: all that could be was");
  for (std::size_t i = 0; i < stats.num_prefix_misses.size(); ++i) {
    page.sample("prefix_miss_total", label("reason", scheduler::name_of(static_cast<scheduler::PrefixMiss>(i))),
                stats.num_prefix_misses[i]);
  }
  page.head("prefix_tier_bytes", "gauge", "Cached prefixes below the device by tier");
  page.sample("prefix_tier_bytes", label("tier", "memory"), static_cast<std::int64_t>(stats.tiers.memory_bytes));
  page.sample("prefix_tier_bytes", label("tier", "disk"), static_cast<std::int64_t>(stats.tiers.disk_bytes));
  page.counter("prefix_files_damaged_total", "Files of the disk tier that were not as written", stats.tiers.num_damaged);
  page.counter("prefix_files_refused_total", "Files of the disk tier that could not be written", stats.tiers.num_refused);
}

/// Groups of one unit share its ids, so they are used alike.
void append_groups(MetricsPage& page, const engine::EngineStats& stats, const ServedMemory& memory) {
  page.head("cache_blocks", "gauge", "Units of cache by group and state: blocks of 128 positions, or one per request");
  for (const ServedCacheGroup& group : memory.groups) {
    const bool is_block = group.unit == CacheUnit::block;
    const std::int32_t num_used = is_block ? stats.num_blocks_used : stats.num_slots_used;
    const std::int32_t num_units = is_block ? stats.num_blocks : stats.num_slots;
    page.sample("cache_blocks", label("group", group.name) + ",state=\"used\"", num_used);
    page.sample("cache_blocks", label("group", group.name) + ",state=\"free\"", num_units - num_used);
  }
  page.head("device_memory_bytes", "gauge", "Memory of the device by what it is for");
  page.sample("device_memory_bytes", label("part", "weights"), static_cast<std::int64_t>(memory.weight_bytes));
  page.sample("device_memory_bytes", label("part", "workspace"), static_cast<std::int64_t>(memory.workspace_bytes));
  for (const ServedCacheGroup& group : memory.groups) {
    page.sample("device_memory_bytes", label("part", group.name), static_cast<std::int64_t>(group.num_bytes()));
  }
}

void append_speculation(MetricsPage& page, const engine::SpeculationStats& stats) {
  page.counter("draft_passes_total", "Passes of the drafter", stats.num_draft_passes);
  page.head("draft_rows_total", "counter", "Drafts that had a row in a verification, by what came of them");
  page.sample("draft_rows_total", label("outcome", "accepted"), stats.num_accepted);
  page.sample("draft_rows_total", label("outcome", "rejected"), stats.num_verified - stats.num_accepted);
  const auto by_position = [&](std::string_view name, std::string_view help, const auto& write) {
    page.head(name, "counter", help);
    for (std::size_t i = 0; i < stats.num_judged.size(); ++i) {
      if (stats.num_judged[i] > 0) {
        write(name, label("position", std::to_string(i + 1)), i);
      }
    }
  };
  page.head("forced_drafts_total", "counter", "Drafts that a constraint left no choice about, by what came of them");
  page.sample("forced_drafts_total", label("outcome", "accepted"), stats.num_forced_accepted);
  page.sample("forced_drafts_total", label("outcome", "rejected"), stats.num_forced - stats.num_forced_accepted);
  by_position("draft_judged_total", "Drafts behind accepted ones only, by position",
              [&](auto name, const auto& labels, std::size_t i) { page.sample(name, labels, stats.num_judged[i]); });
  by_position("draft_accepted_total", "Of these, accepted",
              [&](auto name, const auto& labels, std::size_t i) { page.sample(name, labels, stats.num_accepted_at[i]); });
  by_position("draft_confidence_total", "Of these, expected to be accepted by the drafter",
              [&](auto name, const auto& labels, std::size_t i) { page.fraction(name, labels, stats.confidence_sum[i]); });
  static constexpr auto kLengths = [] {
    std::array<double, engine::SpeculationStats::kPositions> out{};
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(i + 1);
    }
    return out;
  }();
  page.head("accepted_length", "histogram", "Tokens of one verification: accepted drafts and one more");
  page.buckets("accepted_length", {}, kLengths, stats.accepted_lengths, static_cast<double>(stats.num_rounds + stats.num_accepted));
  page.head("confidence_error", "counter", "Sum over judged drafts of the distance between confidence and outcome");
  page.fraction("confidence_error", {}, stats.confidence_error);
  page.gauge("drafter_seems_broken", "1: far fewer drafts are accepted than the drafter is sure of", stats.seems_broken() ? 1 : 0);
}

}  // namespace

void append_engine(MetricsPage& page, const EngineView& engine) {
  const engine::EngineStats& stats = engine.stats;
  page.gauge("requests_running", "Requests that take part in steps", stats.num_running);
  page.gauge("requests_waiting", "Requests that wait for a place or for blocks", stats.num_waiting);
  append_histogram(page, "queue_seconds", "From the arrival of a request at the engine to its first step", stats.queue_time);
  page.counter("steps_total", "Steps of the engine", stats.num_steps);
  append_steps(page, stats);
  append_histogram(page, "grammar_mask_seconds", "Finding out which tokens a constraint allows, per row", stats.mask_time);
  page.counter("preemptions_total", "Times that a request gave its blocks to an older one", stats.num_preemptions);
  page.counter("swapped_out_total", "Preempted requests whose cache was kept in host memory", stats.swap.num_saved);
  page.counter("swapped_in_total", "Of these, requests that went on from it", stats.swap.num_restored);
  page.gauge("swapped_bytes", "Host memory of caches of preempted requests", static_cast<std::int64_t>(stats.swap.num_bytes));
  page.counter("failed_requests_total", "Requests that the model gave no token for", stats.num_failed);
  page.counter("timed_out_requests_total", "Requests that ended by their time limit", stats.num_timed_out);
  append_groups(page, stats, engine.memory);
  append_prefixes(page, stats);
  append_speculation(page, stats.speculation);
}

}  // namespace deepinfer::server
