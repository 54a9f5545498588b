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
  const auto page = samples(metrics.text(nullptr, {.num_connections = 7}));
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
  EXPECT_FALSE(page.contains("deepinfer_requests_running"));  // no model yet
}

TEST(Metrics, CacheBlocksAddUpToWhatThereIs) {
  engine::EngineStats stats;
  stats.num_blocks = 100;
  stats.num_blocks_used = 30;
  stats.num_slots = 8;
  stats.num_slots_used = 8;
  stats.num_running = 8;
  stats.num_waiting = 2;
  const auto page = samples(Metrics().text(&stats, {}));
  EXPECT_EQ(
      page.at(R"(deepinfer_cache_blocks{group="tokens",state="used"})") + page.at(R"(deepinfer_cache_blocks{group="tokens",state="free"})"),
      100);
  EXPECT_EQ(page.at(R"(deepinfer_cache_blocks{group="states",state="free"})"), 0);
  EXPECT_EQ(page.at("deepinfer_requests_running"), 8);
  EXPECT_EQ(page.at("deepinfer_requests_waiting"), 2);
}

}  // namespace
}  // namespace deepinfer::server
