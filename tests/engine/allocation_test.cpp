// A step of running requests allocates nothing.
#include <gtest/gtest.h>

#include "engine/allocation_counter.h"
#include "engine/harness.h"

namespace deepinfer::test {
namespace {

/// With and without drafts.
class EngineAllocation : public testing::TestWithParam<std::int32_t> {};
INSTANTIATE_TEST_SUITE_P(Drafts, EngineAllocation, testing::Values(0, 3), testing::PrintToStringParamName());

TEST_P(EngineAllocation, AStepOfRunningRequestsAllocatesNothing) {
  // Blocks of the whole context and tokens that are reserved: what remains is per token.
  Harness harness({.max_requests = 8, .max_batched_tokens = 64, .positions_per_block = 200, .max_drafts = GetParam()});
  harness.model.draft_error_every = -1;
  std::mt19937_64 random(5);
  for (int i = 0; i < 8; ++i) {
    engine::GenerationRequest request{.prompt = random_prompt(random, 20), .max_tokens = 150, .ignore_eos = true};
    request.prompt.reserve(200);
    request.sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.9, .top_p = i % 3 == 0 ? 0.9 : 1.0};
    if (i >= 4) {
      request.sampling.adjustments = {
          .repetition_penalty = 1.1F, .presence_penalty = 0.2F, .frequency_penalty = 0.1F, .bias = {{TokenId{9}, 1.0F}}};
      request.sampling.min_p = 0.01;
    }
    if (i % 4 == 0) {
      request.stop_strings = {"abcabcabcabc"};
    }
    const auto id = harness.engine.submit(std::move(request), [](engine::Output&&) {});
    ASSERT_TRUE(id);
  }
  for (int step = 0; step < 40; ++step) {
    harness.engine.step();
  }
  ASSERT_EQ(harness.engine.stats().num_running, 8);
  const std::int64_t before = num_allocations();
  for (int step = 0; step < 50; ++step) {
    harness.engine.step();
  }
  EXPECT_EQ(num_allocations() - before, 0);
  EXPECT_EQ(harness.engine.stats().num_running, 8);
}

}  // namespace
}  // namespace deepinfer::test
