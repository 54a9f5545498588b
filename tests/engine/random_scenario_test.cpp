// Random submits, cancels, time limits, preemptions and prefix hits over a fake model: after every step the lists and pools agree, no
// block is lost, and every request has the tokens it has alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;

struct Scenario {
  HarnessOptions options;
  int num_steps = 0;
  int cancel_chance = 0;  ///< one step in so many
};

class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, std::uint64_t seed) : scenario_(scenario), random_(seed), harness_(scenario.options) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    for (int i = 0; i < 4; ++i) {
      stems_.push_back(random_prompt(random_, 10 + random_() % 40));
    }
  }

  void run() {
    for (int step = 0; step < scenario_.num_steps; ++step) {
      if (random_() % 3 == 0) {
        submit();
      }
      if (!requests_.empty() && random_() % static_cast<std::uint64_t>(scenario_.cancel_chance) == 0) {
        harness_.engine.cancel(requests_[requests_.size() - 1 - random_() % std::min<std::size_t>(requests_.size(), 12)].first);
      }
      one_step();
    }
    while (harness_.engine.has_work()) {
      one_step();
    }
    const engine::EngineStats stats = harness_.engine.stats();
    EXPECT_EQ(stats.num_blocks_used, 0);
    EXPECT_EQ(stats.num_slots_used, 0);
    EXPECT_EQ(stats.num_finished, static_cast<std::int64_t>(requests_.size()));
    compare();
  }

  const engine::EngineStats stats() const { return harness_.engine.stats(); }
  int num_ended_early() const { return num_ended_early_; }

 private:
  void one_step() {
    harness_.clock.advance(std::chrono::milliseconds(1));
    harness_.engine.step();
    harness_.engine.check_integrity();
  }

  void submit() {
    engine::GenerationRequest request = random_request(random_, 20, 30);
    const auto& stem = stems_[random_() % stems_.size()];
    request.prompt.insert(request.prompt.begin(), stem.begin(), stem.begin() + static_cast<std::ptrdiff_t>(random_() % (stem.size() + 1)));
    if (!requests_.empty() && random_() % 3 == 0) {  // a conversation goes on
      const auto& [id, earlier] = requests_[random_() % requests_.size()];
      std::vector<TokenId> text = earlier.prompt;
      const std::vector<TokenId>& reply = harness_.reply(id).tokens;
      text.insert(text.end(), reply.begin(), reply.end());
      text.resize(std::min<std::size_t>(text.size(), 80));
      request.prompt.insert(request.prompt.begin(), text.begin(), text.end());
    }
    request.prompt.resize(std::min<std::size_t>(request.prompt.size(), 100));
    request.priority = static_cast<std::int32_t>(random_() % 3);
    request.cache_salt = random_() % 5 == 0 ? "other" : "";
    if (random_() % 10 == 0) {
      request.time_limit = std::chrono::milliseconds(1 + random_() % 100);
    }
    if (static_cast<std::int32_t>(harness_.engine.stats().num_waiting) < 30) {
      requests_.emplace_back(harness_.submit(request), request);
    }
  }

  void compare() {
    for (const auto& [id, request] : requests_) {
      const Reply& reply = harness_.reply(id);
      const Reply expected = alone(request);
      ASSERT_TRUE(reply.finish);
      if (reply.finish->reason == FinishReason::cancelled || reply.finish->reason == FinishReason::timed_out) {
        ++num_ended_early_;
        ASSERT_LE(reply.tokens.size(), expected.tokens.size());
        ASSERT_TRUE(std::equal(reply.tokens.begin(), reply.tokens.end(), expected.tokens.begin()));
      } else {
        ASSERT_EQ(reply.tokens, expected.tokens) << reply.num_cached_tokens << " of " << request.prompt.size() << " cached";
        ASSERT_EQ(reply.finish->reason, expected.finish->reason);
      }
    }
  }

  Scenario scenario_;
  std::mt19937_64 random_;
  Harness harness_;
  std::vector<std::vector<TokenId>> stems_;
  std::vector<std::pair<RequestId, engine::GenerationRequest>> requests_;
  int num_ended_early_ = 0;
};

TEST(EngineScenario, EveryRequestHasTheTokensItHasAlone) {
  for (const std::int32_t overlap_depth : {0, 1}) {
    ScenarioRun run({.options = {.max_requests = 6,
                                 .max_batched_tokens = 24,
                                 .max_model_len = 140,
                                 .num_blocks = 120,
                                 .num_extra_slots = 40,
                                 .overlap_depth = overlap_depth,
                                 .prefix_cache = true},
                     .num_steps = 1500,
                     .cancel_chance = 12},
                    51);
    run.run();
    EXPECT_GT(run.stats().num_cached_tokens, 200);
    EXPECT_GT(run.num_ended_early(), 20);
  }
}

TEST(EngineScenario, SoItIsWhenBlocksAndSlotsAreShort) {
  for (const std::int32_t overlap_depth : {0, 1}) {
    for (const std::uint64_t seed : {52U, 53U}) {
      ScenarioRun run({.options = {.max_requests = 8,
                                   .max_batched_tokens = 16,
                                   .max_model_len = 140,
                                   .num_blocks = 45,
                                   .overlap_depth = overlap_depth,
                                   .prefix_cache = true},
                       .num_steps = 1500,
                       .cancel_chance = 20},
                      seed);
      run.run();
      EXPECT_GT(run.stats().num_preemptions, 20);
      EXPECT_GT(run.stats().num_cached_tokens, 100);
    }
  }
}

TEST(EngineScenario, SoItIsWithDrafts) {
  for (const engine::SpeculationMode mode : {engine::SpeculationMode::full, engine::SpeculationMode::confidence}) {
    for (const std::int32_t num_blocks : {45, 120}) {
      ScenarioRun run({.options = {.max_requests = 6,
                                   .max_batched_tokens = 40,
                                   .max_model_len = 140,
                                   .num_blocks = num_blocks,
                                   .num_extra_slots = num_blocks == 45 ? 2 : 40,
                                   .overlap_depth = num_blocks == 45 ? 0 : 1,
                                   .swap_memory_bytes = num_blocks == 45 ? 6000U : 0U,
                                   .prefix_cache = true,
                                   .has_tiers = num_blocks == 45,
                                   .tier_memory_bytes = 3000,
                                   .max_drafts = 5,
                                   .speculation = mode},
                       .num_steps = 1500,
                       .cancel_chance = 20},
                      55);
      run.run();
      EXPECT_GT(run.stats().num_cached_tokens, 200);
      EXPECT_EQ(run.stats().swap.num_restored > 2, num_blocks == 45);
      EXPECT_GT(run.stats().speculation.num_accepted, mode == engine::SpeculationMode::full ? 500 : 50);
    }
  }
}

TEST(EngineScenario, SoItIsWhenPreemptedRequestsGoToMemoryAndPrefixesToFiles) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("deepinfer_scenario_" + std::to_string(::getpid()));
  for (const std::int32_t overlap_depth : {0, 1}) {
    std::filesystem::remove_all(folder);
    ScenarioRun run({.options = {.max_requests = 8,
                                 .max_batched_tokens = 16,
                                 .max_model_len = 140,
                                 .num_blocks = 45,
                                 .num_extra_slots = 1,
                                 .overlap_depth = overlap_depth,
                                 .swap_memory_bytes = 2000,
                                 .prefix_cache = true,
                                 .has_tiers = true,
                                 .tier_memory_bytes = 500,
                                 .tier_directory = folder},
                     .num_steps = 300,
                     .cancel_chance = 20},
                    55);
    run.run();
    EXPECT_GT(run.stats().swap.num_restored, 2);
    EXPECT_EQ(run.stats().swap.num_bytes, 0U);
    EXPECT_GT(run.stats().num_cached_tokens, 20);
  }
  std::filesystem::remove_all(folder);
}

TEST(EngineScenario, SoItIsWhenPrefixesGoToMemoryAndComeBack) {
  for (const std::int32_t overlap_depth : {0, 1}) {
    ScenarioRun run({.options = {.max_requests = 5,
                                 .max_batched_tokens = 24,
                                 .max_model_len = 140,
                                 .num_blocks = 50,
                                 .num_extra_slots = 2,
                                 .overlap_depth = overlap_depth,
                                 .prefix_cache = true,
                                 .has_tiers = true,
                                 .tier_memory_bytes = 3000},
                     .num_steps = 1500,
                     .cancel_chance = 20},
                    54);
    run.run();
    EXPECT_GT(run.stats().num_cached_tokens, 200);
    EXPECT_GT(run.stats().tiers.num_in_memory, 10U);
  }
}

}  // namespace
}  // namespace deepinfer::test
