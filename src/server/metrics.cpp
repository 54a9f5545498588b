#include "server/metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

namespace deepinfer::server {
namespace {

// Bounds in seconds: from what a small model on a fast device needs to what a long queue costs.
constexpr std::array kFirstTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0};
constexpr std::array kPerTokenBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0};
constexpr std::array kWholeBounds = {0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0};

std::string number(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  return {text, end};
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Writes metrics one after another.
class Page {
 public:
  void head(std::string_view name, std::string_view type, std::string_view help) {
    out_.append("# HELP deepinfer_").append(name).append(" ").append(help).append("\n");
    out_.append("# TYPE deepinfer_").append(name).append(" ").append(type).append("\n");
  }
  void sample(std::string_view name, std::string_view labels, std::int64_t value) {
    out_.append("deepinfer_").append(name);
    if (!labels.empty()) {
      out_.append("{").append(labels).append("}");
    }
    out_.append(" ").append(std::to_string(value)).append("\n");
  }
  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    head(name, "counter", help);
    sample(name, {}, static_cast<std::int64_t>(value));
  }
  void gauge(std::string_view name, std::string_view help, std::int64_t value) {
    head(name, "gauge", help);
    sample(name, {}, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& values) {
    head(name, "histogram", help);
    values.append(out_, "deepinfer_" + std::string(name));
  }
  [[nodiscard]] std::string take() && { return std::move(out_); }

 private:
  std::string out_;
};

void append_prefixes(Page& page, const engine::EngineStats& stats) {
  page.gauge("cached_prefixes", "Blocks that later requests may find, held or not", stats.num_cached_prefixes);
  page.head("prefix_lookups_total", "counter", "Requests by why no more of their prompt was cached; none: all that could be was");
  for (std::size_t i = 0; i < stats.num_prefix_misses.size(); ++i) {
    const std::string_view name = scheduler::name_of(static_cast<scheduler::PrefixMiss>(i));
    page.sample("prefix_lookups_total", "miss=\"" + std::string(name) + "\"", stats.num_prefix_misses[i]);
  }
  page.head("prefix_tier_bytes", "gauge", "Cached prefixes below the device by tier");
  page.sample("prefix_tier_bytes", R"(tier="memory")", static_cast<std::int64_t>(stats.tiers.memory_bytes));
  page.sample("prefix_tier_bytes", R"(tier="disk")", static_cast<std::int64_t>(stats.tiers.disk_bytes));
  page.counter("prefix_files_damaged_total", "Files of the disk tier that were not as written",
               static_cast<std::uint64_t>(stats.tiers.num_damaged));
}

void append_engine(Page& page, const engine::EngineStats& stats) {
  page.gauge("requests_running", "Requests that take part in steps", stats.num_running);
  page.gauge("requests_waiting", "Requests that wait for a place or for blocks", stats.num_waiting);
  page.counter("steps_total", "Steps of the engine", static_cast<std::uint64_t>(stats.num_steps));
  page.counter("preemptions_total", "Requests that gave their blocks back and start over",
               static_cast<std::uint64_t>(stats.num_preemptions));
  page.counter("failed_requests_total", "Requests that the model gave no token for", static_cast<std::uint64_t>(stats.num_failed));
  page.head("cache_blocks", "gauge", "Units of cache by group and state; tokens: blocks of positions, states: one per request");
  page.sample("cache_blocks", R"(group="tokens",state="used")", stats.num_blocks_used);
  page.sample("cache_blocks", R"(group="tokens",state="free")", stats.num_blocks - stats.num_blocks_used);
  page.sample("cache_blocks", R"(group="states",state="used")", stats.num_slots_used);
  page.sample("cache_blocks", R"(group="states",state="free")", stats.num_slots - stats.num_slots_used);
  append_prefixes(page, stats);
}

}  // namespace

void Histogram::observe(double value) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

void Histogram::append(std::string& out, std::string_view name) const {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? number(bounds_[i]) : "+Inf";
    out.append(name).append("_bucket{le=\"").append(bound).append("\"} ").append(std::to_string(below)).append("\n");
  }
  out.append(name).append("_sum ").append(number(sum_)).append("\n");
  out.append(name).append("_count ").append(std::to_string(below)).append("\n");
}

Metrics::Metrics() : ttft_(kFirstTokenBounds), tpot_(kPerTokenBounds), e2e_(kWholeBounds) {}

void Metrics::count_request(std::string_view api, int status) {
  const std::scoped_lock lock(mutex_);
  ++requests_[{std::string(api), status}];
}

void Metrics::count_generation(const CompletionStatistics& statistics) {
  const std::scoped_lock lock(mutex_);
  ++finishes_[std::string(statistics.finish)];
  prompt_tokens_ += statistics.prompt_tokens;
  cached_tokens_ += statistics.cached_tokens;
  completion_tokens_ += statistics.completion_tokens;
  reasoning_tokens_ += statistics.reasoning_tokens;
  if (statistics.to_first_token == Duration{}) {
    return;
  }
  ttft_.observe(seconds(statistics.to_first_token));
  e2e_.observe(seconds(statistics.to_last_token));
  if (statistics.completion_tokens > 1) {
    tpot_.observe(seconds(statistics.to_last_token - statistics.to_first_token) / static_cast<double>(statistics.completion_tokens - 1));
  }
}

std::string Metrics::text(const engine::EngineStats* stats, const ServerGauges& gauges) const {
  const std::scoped_lock lock(mutex_);
  Page page;
  page.head("requests_total", "counter", "Answered requests by API and HTTP status; 0: the client left before one was sent");
  for (const auto& [key, count] : requests_) {
    page.sample("requests_total", "api=\"" + key.first + "\",status=\"" + std::to_string(key.second) + "\"",
                static_cast<std::int64_t>(count));
  }
  page.head("generations_total", "counter", "Generations by how they ended");
  for (const auto& [finish, count] : finishes_) {
    page.sample("generations_total", "finish=\"" + finish + "\"", static_cast<std::int64_t>(count));
  }
  page.counter("prompt_tokens_total", "Tokens of prompts", prompt_tokens_);
  page.counter("cached_tokens_total", "Tokens of prompts that were not computed because they were cached", cached_tokens_);
  page.counter("completion_tokens_total", "Tokens of replies", completion_tokens_);
  page.counter("reasoning_tokens_total", "Tokens of replies that were reasoning", reasoning_tokens_);
  page.histogram("request_ttft_seconds", "From the arrival of a request to its first token", ttft_);
  page.histogram("request_tpot_seconds", "Per token after the first, average of a request", tpot_);
  page.histogram("request_e2e_seconds", "From the arrival of a request to its last token", e2e_);
  if (stats != nullptr) {
    append_engine(page, *stats);
  }
  page.gauge("connections", "Open connections", gauges.num_connections);
  page.gauge("stored_responses", "Responses kept for their ids", static_cast<std::int64_t>(gauges.num_stored_responses));
  page.gauge("stored_response_bytes", "Memory of these", static_cast<std::int64_t>(gauges.stored_response_bytes));
  page.gauge("stored_turns", "Tool turns kept to be rendered as they were generated", static_cast<std::int64_t>(gauges.num_stored_turns));
  page.gauge("stored_turn_bytes", "Memory of these", static_cast<std::int64_t>(gauges.stored_turn_bytes));
  return std::move(page).take();
}

}  // namespace deepinfer::server
