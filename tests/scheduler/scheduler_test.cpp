// The policy of the scheduler, one sentence per test. Blocks of 4 positions keep the numbers small.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace deepinfer::scheduler {
namespace {

constexpr std::int32_t kPositionsPerBlock = 4;

/// A scheduler with the engine's part played by a few lines: every planned chunk succeeds.
class Bench {
 public:
  Bench(Limits limits, std::int32_t num_blocks)
      : scheduler_(limits,
                   {.positions_per_block = kPositionsPerBlock, .num_blocks = num_blocks + 1, .num_slots = limits.max_requests + 1}) {}

  RequestId submit(std::int32_t num_tokens, std::int32_t num_outputs) {
    const RequestId id{++last_id_};
    apply(Submitted{.request = id, .num_tokens = num_tokens, .max_positions = num_tokens + num_outputs - 1});
    return id;
  }
  void end(RequestId id) { apply(Ended{.request = id}); }

  const StepPlan& plan() { return scheduler_.plan(); }

  /// Reports the last plan as done; requests that know max_positions + 1 tokens end.
  void finish(const StepPlan& plan) {
    std::vector<Event> events;
    for (const PlannedChunk& chunk : plan.chunks) {
      const Request& request = *scheduler_.find(chunk.request);
      if (request.num_tokens == request.max_positions && chunk.num_logit_rows == 1) {
        events.push_back(Ended{.request = chunk.request});
      } else {
        events.push_back(Advanced{.request = chunk.request, .num_computed = chunk.num_tokens, .num_new_tokens = chunk.num_logit_rows});
      }
    }
    scheduler_.apply(events);
    scheduler_.check_integrity();
  }

  const StepPlan& step() {
    const StepPlan& planned = plan();
    finish(planned);
    return planned;
  }

  /// Rows of `id` in `plan`; nullopt when it has none.
  static std::optional<std::int32_t> rows(const StepPlan& plan, RequestId id) {
    const auto chunk = std::ranges::find(plan.chunks, id, &PlannedChunk::request);
    return chunk == plan.chunks.end() ? std::nullopt : std::optional(chunk->num_tokens);
  }

  template <class S>
  bool is(RequestId id) const {
    const Request* request = scheduler_.find(id);
    return request != nullptr && std::holds_alternative<S>(request->state);
  }

  const Scheduler& scheduler() const { return scheduler_; }

 private:
  void apply(Event event) { scheduler_.apply(std::span(&event, 1)); }

  Scheduler scheduler_;
  std::uint64_t last_id_ = 0;
};

TEST(Scheduler, PlansNothingWhenThereIsNothing) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 8}, 10);
  EXPECT_TRUE(bench.plan().chunks.empty());
}

TEST(Scheduler, APromptIsComputedInChunksOfTheBudgetAndThenDecodes) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 8}, 10);
  const RequestId id = bench.submit(19, 3);
  std::vector<std::pair<std::int32_t, std::int32_t>> chunks;
  std::vector<std::int32_t> logit_rows;
  for (int i = 0; i < 5; ++i) {
    const StepPlan& plan = bench.step();
    ASSERT_EQ(plan.chunks.size(), 1U);
    chunks.emplace_back(plan.chunks[0].first_position, plan.chunks[0].num_tokens);
    logit_rows.push_back(plan.chunks[0].num_logit_rows);
  }
  EXPECT_EQ(chunks, (std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 8}, {8, 8}, {16, 3}, {19, 1}, {20, 1}}));
  EXPECT_EQ(logit_rows, (std::vector<std::int32_t>{0, 0, 1, 1, 1}));
  EXPECT_TRUE(bench.is<Finished>(id));
  EXPECT_TRUE(bench.plan().chunks.empty());
  EXPECT_EQ(bench.scheduler().find(id), nullptr);
  EXPECT_EQ(bench.scheduler().pool().blocks().num_used(), 0);
}

TEST(Scheduler, RunningRequestsGetTheirRowInEveryStepBesideALongPrompt) {
  Bench bench({.max_requests = 4, .max_batched_tokens = 8}, 60);
  const RequestId first = bench.submit(3, 50);
  const RequestId second = bench.submit(3, 50);
  bench.step();
  const RequestId long_prompt = bench.submit(90, 2);
  for (int i = 0; i < 15; ++i) {
    const StepPlan& plan = bench.plan();
    EXPECT_EQ(Bench::rows(plan, first), 1);
    EXPECT_EQ(Bench::rows(plan, second), 1);
    EXPECT_EQ(Bench::rows(plan, long_prompt), 6);
    EXPECT_EQ(plan.num_decode_chunks, 2);
    EXPECT_EQ(plan.num_tokens, 8);
    bench.finish(plan);
  }
  EXPECT_TRUE(bench.is<Decoding>(long_prompt));
}

TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  Bench bench({.max_requests = 4, .max_batched_tokens = 16}, 300);
  const RequestId long_prompt = bench.submit(1000, 2);
  bench.step();
  const RequestId longer_prompt = bench.submit(100, 2);
  const RequestId short_prompt = bench.submit(7, 2);
  const StepPlan& plan = bench.plan();
  EXPECT_EQ(Bench::rows(plan, long_prompt), 12);
  EXPECT_EQ(Bench::rows(plan, short_prompt), 4);
  EXPECT_EQ(Bench::rows(plan, longer_prompt), std::nullopt);
  bench.finish(plan);
  bench.step();
  EXPECT_TRUE(bench.is<Decoding>(short_prompt));
}

TEST(Scheduler, SeveralPromptsShareOneStep) {
  Bench bench({.max_requests = 4, .max_batched_tokens = 16}, 60);
  const RequestId a = bench.submit(5, 2);
  const RequestId b = bench.submit(6, 2);
  const RequestId c = bench.submit(30, 2);
  const StepPlan& plan = bench.plan();
  EXPECT_EQ(Bench::rows(plan, a), 5);
  EXPECT_EQ(Bench::rows(plan, b), 6);
  EXPECT_EQ(Bench::rows(plan, c), 5);
  EXPECT_EQ(plan.chunks[0].num_logit_rows, 1);
  EXPECT_EQ(plan.chunks[2].num_logit_rows, 0);
}

TEST(Scheduler, NoMoreRequestsRunThanMayAndTheRestFollowsInOrder) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 16}, 60);
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) {
    ids.push_back(bench.submit(3, 2));
  }
  bench.step();
  EXPECT_EQ(bench.scheduler().num_running(), 2);
  EXPECT_EQ(bench.scheduler().num_queued(), 3);
  EXPECT_TRUE(bench.is<Decoding>(ids[0]) && bench.is<Decoding>(ids[1]));
  bench.step();
  const StepPlan& plan = bench.plan();
  EXPECT_EQ(Bench::rows(plan, ids[2]), 3);
  EXPECT_EQ(Bench::rows(plan, ids[3]), 3);
  EXPECT_EQ(Bench::rows(plan, ids[4]), std::nullopt);
}

TEST(Scheduler, AdmissionLeavesABlockForEveryRunningRequestThatCanGrow) {
  Bench bench({.max_requests = 4, .max_batched_tokens = 32}, 4);
  const RequestId growing = bench.submit(3, 10);  // one block now, three at its end
  bench.step();
  const RequestId large = bench.submit(11, 1);  // three blocks, never more
  bench.step();
  EXPECT_TRUE(bench.is<Waiting>(large));
  bench.end(growing);
  bench.step();
  EXPECT_TRUE(bench.is<Finished>(large));
}

TEST(Scheduler, ARequestThatDoesNotFitIsPassedABoundedNumberOfTimes) {
  Bench bench({.max_requests = 4, .max_batched_tokens = 32}, 10);
  const RequestId resident = bench.submit(16, 1000 / 50);  // holds at least half of the blocks for 20 steps
  bench.step();
  const RequestId large = bench.submit(32, 2);
  int num_passed = 0;
  for (int i = 0; i < 3 * kMaxOvertakes && bench.is<Waiting>(large); ++i) {
    const RequestId small = bench.submit(2, 1);
    bench.step();
    num_passed += bench.is<Finished>(small) ? 1 : 0;
    if (i == kMaxOvertakes + 2) {
      EXPECT_TRUE(bench.is<Decoding>(resident) || bench.is<Finished>(resident));
    }
  }
  EXPECT_EQ(num_passed, kMaxOvertakes);
  EXPECT_FALSE(bench.is<Waiting>(large));
}

TEST(Scheduler, PreemptsTheYoungerRequestWithTheLeastToComputeAgain) {
  Bench bench({.max_requests = 3, .max_batched_tokens = 64}, 10);
  const RequestId oldest = bench.submit(7, 12);
  const RequestId costly = bench.submit(10, 12);
  const RequestId cheap = bench.submit(5, 12);
  // The requests take 2 + 3 + 2 blocks and grow by one in steps 3, 4 and 5: nothing is left when the oldest grows again in step 7.
  for (int step = 1; step <= 6; ++step) {
    EXPECT_TRUE(bench.step().preempted.empty());
    EXPECT_EQ(bench.scheduler().num_running(), 3);
  }
  EXPECT_EQ(bench.scheduler().pool().blocks().num_free(), 0);
  const StepPlan& plan = bench.plan();
  EXPECT_EQ(plan.preempted, std::vector<RequestId>{cheap});
  EXPECT_EQ(Bench::rows(plan, oldest), 1);
  EXPECT_EQ(Bench::rows(plan, costly), 1);
}

TEST(Scheduler, TheYoungestGivesWayWhenItNeedsABlockItself) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 64}, 4);
  const RequestId older = bench.submit(5, 8);     // two blocks, three at its end
  const RequestId younger = bench.submit(3, 10);  // one block, three at its end
  std::vector<RequestId> preempted;
  for (int i = 0; i < 8 && preempted.empty(); ++i) {
    preempted = bench.step().preempted;
  }
  EXPECT_EQ(preempted, std::vector<RequestId>{younger});
  EXPECT_TRUE(bench.is<Preempted>(younger));
  EXPECT_TRUE(bench.is<Decoding>(older));
}

TEST(Scheduler, APreemptedRequestComputesAllItsTokensAgainBeforeYoungerOnesStart) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 64}, 4);
  const RequestId older = bench.submit(5, 8);
  const RequestId younger = bench.submit(3, 10);
  while (!bench.is<Preempted>(younger)) {
    bench.step();
  }
  const std::int32_t num_known = bench.scheduler().find(younger)->num_tokens;
  EXPECT_GT(num_known, 3);
  const RequestId newest = bench.submit(16, 1);
  while (bench.is<Decoding>(older)) {
    bench.step();
  }
  const StepPlan& plan = bench.plan();
  ASSERT_EQ(plan.chunks.size(), 1U);
  EXPECT_EQ(plan.chunks[0].request, younger);
  EXPECT_EQ(plan.chunks[0].first_position, 0);
  EXPECT_EQ(plan.chunks[0].num_tokens, num_known);
  EXPECT_TRUE(bench.is<Waiting>(newest));
}

/// Blocks that a prompt shares and has not reached when it is preempted belong to what is saved: it never writes them.
TEST(Scheduler, WhatIsSavedOfARequestCoversTheSharedBlocksItHadNotReached) {
  const auto name = [](std::uint64_t number) { return kvcache::BlockHash{.words = {number, 0}}; };
  Scheduler scheduler({.max_requests = 2, .max_batched_tokens = 2, .reuse = {.reuse = Reuse::exact}, .notes_preempted_caches = true},
                      {.positions_per_block = kPositionsPerBlock, .num_blocks = 1 + 8, .num_slots = 1 + 6});
  const auto step = [&scheduler]() -> const StepPlan& {
    const StepPlan& plan = scheduler.plan();
    for (const PlannedChunk& chunk : plan.chunks) {
      const Event event = Advanced{.request = chunk.request, .num_computed = chunk.num_tokens, .num_new_tokens = chunk.num_logit_rows};
      scheduler.apply(std::span(&event, 1));
    }
    scheduler.check_integrity();
    return plan;
  };
  const auto apply = [&scheduler](const Event& event) { scheduler.apply(std::span(&event, 1)); };
  const RequestId first{1};
  const RequestId high{2};
  const RequestId low{3};
  apply(Submitted{.request = first, .num_tokens = 17, .max_positions = 17, .prefixes = {name(1), name(2), name(3), name(4)}});
  while (scheduler.find(first)->num_tokens == 17) {
    step();
  }
  apply(Ended{.request = first});
  apply(Submitted{.request = high, .num_tokens = 11, .max_positions = 30, .priority = 1});
  while (!std::holds_alternative<Decoding>(scheduler.find(high)->state)) {
    step();
  }
  apply(Submitted{.request = low, .num_tokens = 14, .max_positions = 20, .prefixes = {name(1), name(2), name(9)}});
  int num_steps = 0;
  std::vector<FreedCache> freed;
  while (freed.empty()) {
    ASSERT_LT(++num_steps, 20);
    freed = step().freed;
  }
  EXPECT_EQ(freed.at(0).request, low);
  EXPECT_EQ(freed[0].blocks.size(), 2U);
  const Progress progress = std::get<Preempted>(scheduler.find(low)->state).progress;
  EXPECT_EQ(progress.stored_until, 8);
  EXPECT_GT(progress.num_computed, 4);
  EXPECT_LT(progress.num_computed, 8);
  apply(Saved{.request = low});
  apply(Ended{.request = high});
  const StepPlan& resumed = scheduler.plan();
  ASSERT_EQ(resumed.admitted.size(), 1U);
  EXPECT_TRUE(resumed.admitted[0].is_resumed);
  EXPECT_EQ(resumed.chunks.at(0).first_position, progress.num_computed);
  EXPECT_EQ(resumed.chunks[0].stored_until, 8);
}

TEST(Scheduler, RequestsThatDoNotFitTogetherAllFinish) {
  Bench bench({.max_requests = 4, .max_batched_tokens = 16}, 8);
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) {
    ids.push_back(bench.submit(10, 23));  // eight blocks at the end: the whole pool
  }
  int num_steps = 0;
  while (bench.scheduler().num_running() + bench.scheduler().num_queued() > 0) {
    ASSERT_LT(++num_steps, 400);
    bench.step();
  }
  EXPECT_EQ(bench.scheduler().pool().blocks().num_used(), 0);
}

TEST(Scheduler, EndingInEveryStateReturnsEverything) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 8}, 5);
  const RequestId decoding = bench.submit(3, 12);
  bench.step();
  const RequestId prefilling = bench.submit(11, 2);
  bench.step();
  const RequestId waiting = bench.submit(3, 2);
  ASSERT_TRUE(bench.is<Decoding>(decoding) && bench.is<Prefilling>(prefilling) && bench.is<Waiting>(waiting));
  bench.end(waiting);
  bench.end(prefilling);
  bench.scheduler().check_integrity();
  EXPECT_EQ(bench.scheduler().pool().slots().num_used(), 1);
  bench.end(decoding);
  EXPECT_EQ(bench.scheduler().pool().slots().num_used(), 0);
  EXPECT_EQ(bench.scheduler().pool().blocks().num_used(), 0);
  EXPECT_TRUE(bench.plan().chunks.empty());
}

TEST(Scheduler, EndingAPreemptedRequestReturnsNothingTwice) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 64}, 4);
  const RequestId older = bench.submit(5, 8);
  const RequestId younger = bench.submit(3, 10);
  while (!bench.is<Preempted>(younger)) {
    bench.step();
  }
  bench.end(younger);
  bench.scheduler().check_integrity();
  bench.end(older);
  EXPECT_EQ(bench.scheduler().pool().blocks().num_used(), 0);
}

TEST(SchedulerDeathTest, ARequestLargerThanThePoolIsTheCallersMistake) {
  Bench bench({.max_requests = 2, .max_batched_tokens = 8}, 3);
  EXPECT_DEATH(bench.submit(13, 1), "a request fits into the pool when it is alone");
}

}  // namespace
}  // namespace deepinfer::scheduler
