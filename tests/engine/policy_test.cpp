// Priorities, time limits, overlap and the full queue, with the fake model and a clock that stands still.
#include <gtest/gtest.h>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using namespace std::chrono_literals;

engine::GenerationRequest endless(std::mt19937_64& random, std::size_t num_prompt) {
  return {.prompt = random_prompt(random, num_prompt), .sampling = {.seed = random()}, .max_tokens = 40, .ignore_eos = true};
}

TEST(EnginePolicy, AHigherPriorityStartsFirstAndAnEqualOneInOrderOfArrival) {
  std::mt19937_64 random(41);
  Harness harness({.max_requests = 1});
  std::vector<RequestId> ends;
  const auto submit = [&](std::int32_t priority) {
    engine::GenerationRequest request = endless(random, 5);
    request.priority = priority;
    const auto id = harness.engine.submit(request, [&ends](engine::Output&& output) {
      if (output.finish) {
        ends.push_back(output.request);
      }
    });
    return *id;
  };
  const RequestId low = submit(-1);
  const RequestId first = submit(0);
  const RequestId second = submit(0);
  const RequestId high = submit(5);
  harness.run_to_the_end();
  EXPECT_EQ(ends, (std::vector{high, first, second, low}));
}

TEST(EnginePolicy, TheLowerPriorityGivesWayWhateverItsAge) {
  std::mt19937_64 random(42);
  Harness harness({.max_requests = 2, .max_model_len = 60, .num_blocks = 15});
  engine::GenerationRequest old = endless(random, 10);
  old.priority = -1;
  const RequestId old_id = harness.submit(old);
  harness.engine.step();
  const engine::GenerationRequest young = endless(random, 10);
  const RequestId young_id = harness.submit(young);
  while (harness.engine.stats().num_preemptions == 0) {
    harness.engine.step();
  }
  const std::size_t num_old = harness.reply(old_id).tokens.size();
  harness.engine.step();
  EXPECT_EQ(harness.reply(old_id).tokens.size(), num_old) << "the older one, of lower priority, waits";
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(old_id).tokens, alone(old).tokens);
  EXPECT_EQ(harness.reply(young_id).tokens, alone(young).tokens);
}

TEST(EnginePolicy, ATimeLimitEndsARequestWhereverItIs) {
  std::mt19937_64 random(43);
  Harness harness({.max_requests = 1});
  engine::GenerationRequest running = endless(random, 5);
  running.time_limit = 10s;
  engine::GenerationRequest waiting = endless(random, 5);
  waiting.time_limit = 5s;
  const RequestId running_id = harness.submit(running);
  const RequestId waiting_id = harness.submit(waiting);
  harness.engine.step();
  harness.clock.advance(5s);
  harness.engine.step();
  ASSERT_TRUE(harness.reply(waiting_id).finish);
  EXPECT_EQ(harness.reply(waiting_id).finish->reason, FinishReason::timed_out);
  EXPECT_FALSE(harness.reply(running_id).finish);
  harness.clock.advance(5s);
  harness.engine.step();
  ASSERT_TRUE(harness.reply(running_id).finish);
  EXPECT_EQ(harness.reply(running_id).finish->reason, FinishReason::timed_out);
  EXPECT_EQ(harness.reply(running_id).tokens.size(), 2U);
  EXPECT_EQ(harness.engine.stats().num_timed_out, 2);
  EXPECT_FALSE(harness.engine.has_work());
  EXPECT_EQ(harness.engine.stats().num_blocks_used, 0);
}

TEST(EnginePolicy, ARequestThatEndsInTimeIsNotTouchedByItsLimit) {
  std::mt19937_64 random(44);
  Harness harness;
  engine::GenerationRequest request = endless(random, 5);
  request.time_limit = 1s;
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  harness.clock.advance(2s);
  EXPECT_FALSE(harness.engine.step());
  EXPECT_EQ(harness.reply(id).finish->reason, FinishReason::length);
}

TEST(EnginePolicy, TheFullQueueSaysWhenAPlaceIsFree) {
  std::mt19937_64 random(45);
  Harness harness({.max_requests = 1, .max_queue = 2});
  EXPECT_EQ(engine::retry_after(harness.engine.stats()), 1s) << "before anything is known";
  for (int i = 0; i < 3; ++i) {
    engine::GenerationRequest request = endless(random, 3);
    request.max_tokens = 1;
    harness.submit(request);
  }
  const auto refused = harness.engine.submit(endless(random, 3), [](engine::Output&&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  while (harness.engine.has_work()) {
    harness.clock.advance(7s);
    harness.engine.step();
  }
  EXPECT_EQ(engine::retry_after(harness.engine.stats()), 7s);
}

TEST(EnginePolicy, OverlappedIsSynchronous) {
  std::mt19937_64 random(46);
  for (int round = 0; round < 10; ++round) {
    std::vector<engine::GenerationRequest> requests;
    for (int i = 0; i < 12; ++i) {
      requests.push_back(random_request(random, 40, 30));
      if (i % 4 == 0) {
        requests.back().stop_strings = {"ab", "q"};
      }
    }
    std::vector<std::vector<TokenId>> replies;
    for (const std::int32_t overlap_depth : {0, 1}) {
      Harness harness({.max_requests = 5,
                       .max_batched_tokens = 16,
                       .max_model_len = 100,
                       .num_blocks = 40,
                       .overlap_depth = overlap_depth,
                       .prefix_cache = true});
      std::vector<RequestId> ids;
      for (const engine::GenerationRequest& request : requests) {
        ids.push_back(harness.submit(request));
        harness.engine.step();
        harness.engine.check_integrity();
      }
      harness.run_to_the_end();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const Reply& reply = harness.reply(ids[i]);
        const Reply expected = alone(requests[i]);
        EXPECT_EQ(reply.tokens, expected.tokens) << "overlap " << overlap_depth;
        EXPECT_EQ(reply.finish->reason, expected.finish->reason);
      }
    }
  }
}

TEST(EnginePolicy, OverlappedDeliversWhileTheDeviceComputes) {
  std::mt19937_64 random(47);
  Harness harness({.overlap_depth = 1});
  std::vector<std::size_t> num_delivered;
  const auto id = harness.submit(endless(random, 3));
  harness.model.on_forward = [&](std::span<const model::Chunk>) { num_delivered.push_back(harness.reply(id).tokens.size()); };
  for (int i = 0; i < 4; ++i) {
    harness.engine.step();
  }
  // A forward begins before the token of the one before is delivered.
  EXPECT_EQ(num_delivered, (std::vector<std::size_t>{0, 0, 1, 2}));
  harness.run_to_the_end();
}

}  // namespace
}  // namespace deepinfer::test
