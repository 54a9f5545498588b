#include "server/metrics.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <sstream>

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

/// Samples by name and labels. Every line of a page must be a comment or a sample.
std::map<std::string, double> samples(const std::string& page) {
  std::map<std::string, double> out;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP deepinfer_") || line.starts_with("# TYPE deepinfer_")) {
      continue;
    }
    const std::size_t blank = line.rfind(' ');
    EXPECT_TRUE(line.starts_with("deepinfer_") && blank != std::string::npos) << line;
    EXPECT_TRUE(out.emplace(line.substr(0, blank), std::stod(line.substr(blank + 1))).second) << "twice: " << line;
  }
  return out;
}

TEST(Histogram, BucketsAreCumulative) {
  constexpr std::array kBounds = {1.0, 2.0, 4.0};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 3.0, 100.0}) {
    histogram.observe(value);
  }
  std::string out;
  histogram.append(out, "h");
  EXPECT_EQ(out, "h_bucket{le=\"1\"} 2\nh_bucket{le=\"2\"} 3\nh_bucket{le=\"4\"} 4\nh_bucket{le=\"+Inf\"} 5\nh_sum 106\nh_count 5\n");
}

TEST(Metrics, RequestsTokensAndTimesAreCounted) {
  Metrics metrics;
  metrics.count_request("chat", 200);
  metrics.count_request("chat", 200);
  metrics.count_request("messages", 429);
  metrics.count_generation({.prompt_tokens = 10,
                            .cached_tokens = 4,
                            .completion_tokens = 5,
                            .reasoning_tokens = 2,
                            .to_first_token = 30ms,
                            .to_last_token = 70ms,
                            .finish = "stop"});
  metrics.count_generation({.prompt_tokens = 3, .finish = "cancelled"});
  const auto page =
      samples(metrics.text(nullptr, {.num_connections = 7, .grammars = {.num_hits = 5, .num_misses = 2, .cache_bytes = 900}}));
  EXPECT_EQ(page.at(R"(deepinfer_requests_total{api="chat",status="200"})"), 2);
  EXPECT_EQ(page.at(R"(deepinfer_requests_total{api="messages",status="429"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_generations_total{finish="stop"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_generations_total{finish="cancelled"})"), 1);
  EXPECT_EQ(page.at("deepinfer_prompt_tokens_total"), 13);
  EXPECT_EQ(page.at("deepinfer_cached_tokens_total"), 4);
  EXPECT_EQ(page.at("deepinfer_completion_tokens_total"), 5);
  EXPECT_EQ(page.at("deepinfer_reasoning_tokens_total"), 2);
  EXPECT_EQ(page.at(R"(deepinfer_request_ttft_seconds_bucket{le="0.025"})"), 0);
  EXPECT_EQ(page.at(R"(deepinfer_request_ttft_seconds_bucket{le="0.05"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_request_tpot_seconds_bucket{le="0.01"})"), 1);
  EXPECT_NEAR(page.at("deepinfer_request_e2e_seconds_sum"), 0.07, 1e-9);
  EXPECT_EQ(page.at("deepinfer_connections"), 7);
  EXPECT_EQ(page.at("deepinfer_grammar_cache_hits_total"), 5);
  EXPECT_EQ(page.at("deepinfer_grammar_cache_misses_total"), 2);
  EXPECT_EQ(page.at("deepinfer_grammar_cache_bytes"), 900);
  EXPECT_FALSE(page.contains("deepinfer_requests_running"));  // no model yet
}

ServedMemory two_groups() {
  return {.weight_bytes = 1000,
          .workspace_bytes = 200,
          .groups = {{.name = "index keys", .unit = CacheUnit::block, .bytes_per_unit = 10, .num_units = 101},
                     {.name = "window rings", .unit = CacheUnit::slot, .bytes_per_unit = 30, .num_units = 9}}};
}

TEST(Metrics, CacheGroupsAddUpToWhatThereIs) {
  const ServedMemory memory = two_groups();
  EngineView engine{.stats = {}, .memory = memory};
  engine.stats.num_blocks = 100;
  engine.stats.num_blocks_used = 30;
  engine.stats.num_slots = 8;
  engine.stats.num_slots_used = 8;
  engine.stats.num_running = 8;
  engine.stats.num_waiting = 2;
  const auto page = samples(Metrics().text(&engine, {}));
  EXPECT_EQ(page.at(R"(deepinfer_cache_blocks{group="index_keys",state="used"})"), 30);
  EXPECT_EQ(page.at(R"(deepinfer_cache_blocks{group="index_keys",state="free"})"), 70);
  EXPECT_EQ(page.at(R"(deepinfer_cache_blocks{group="window_rings",state="free"})"), 0);
  EXPECT_EQ(page.at("deepinfer_requests_running"), 8);
  EXPECT_EQ(page.at("deepinfer_requests_waiting"), 2);
  double num_bytes = 0;
  for (const auto& [name, value] : page) {
    num_bytes += name.starts_with("deepinfer_device_memory_bytes") ? value : 0;
  }
  EXPECT_EQ(num_bytes, 1000 + 200 + 101 * 10 + 9 * 30);
}

TEST(Metrics, StepsQueueAndPrefixesOfTheEngineAreShown) {
  const ServedMemory memory = two_groups();
  EngineView engine{.stats = {}, .memory = memory};
  engine.stats.queue_time.add(20ms);
  engine.stats.queue_time.add(400s);
  engine.stats.step_times[static_cast<std::size_t>(engine::StepKind::mixed)].forward.add(3ms);
  engine.stats.step_times[static_cast<std::size_t>(engine::StepKind::mixed)].host.add(30us);
  engine.stats.num_prefix_hits = 4;
  engine.stats.num_prefix_misses[static_cast<std::size_t>(scheduler::PrefixMiss::evicted)] = 3;
  engine.stats.tiers.memory_bytes = 77;
  engine.stats.num_preemptions = 5;
  const auto page = samples(Metrics().text(&engine, {}));
  EXPECT_EQ(page.at(R"(deepinfer_queue_seconds_bucket{le="0.01"})"), 0);
  EXPECT_EQ(page.at(R"(deepinfer_queue_seconds_bucket{le="0.025"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_queue_seconds_bucket{le="300"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_queue_seconds_bucket{le="+Inf"})"), 2);
  EXPECT_EQ(page.at("deepinfer_queue_seconds_count"), 2);
  EXPECT_NEAR(page.at("deepinfer_queue_seconds_sum"), 400.02, 1e-9);
  EXPECT_EQ(page.at(R"(deepinfer_step_seconds_count{kind="mixed",phase="forward"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_step_seconds_bucket{kind="mixed",phase="host",le="5e-05"})"), 1);
  EXPECT_EQ(page.at(R"(deepinfer_step_seconds_count{kind="decode",phase="forward"})"), 0);
  EXPECT_EQ(page.at("deepinfer_prefix_hits_total"), 4);
  EXPECT_EQ(page.at(R"(deepinfer_prefix_miss_total{reason="evicted"})"), 3);
  EXPECT_EQ(page.at(R"(deepinfer_prefix_tier_bytes{tier="memory"})"), 77);
  EXPECT_EQ(page.at("deepinfer_preemptions_total"), 5);
}

}  // namespace
}  // namespace deepinfer::server
