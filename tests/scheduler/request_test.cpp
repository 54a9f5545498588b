// Transitions of a request and what they do to the pool.
#include "scheduler/request.h"

#include <gtest/gtest.h>

namespace deepinfer::scheduler {
namespace {

kvcache::CachePool small_pool() { return kvcache::CachePool({.positions_per_block = 4, .num_blocks = 9, .num_slots = 3}); }

TEST(Request, CountsComputedPositionsByState) {
  kvcache::CachePool pool = small_pool();
  Request request{.id = {1}, .num_tokens = 10, .max_positions = 20, .state = Waiting{}};
  EXPECT_EQ(num_computed(request), 0);
  EXPECT_EQ(num_uncomputed(request), 10);
  EXPECT_EQ(holding(request), nullptr);
  request.state = admit(std::move(request.state), *pool.acquire(10));
  std::get<Prefilling>(request.state).num_computed = 7;
  EXPECT_EQ(num_uncomputed(request), 3);
  ASSERT_NE(holding(request), nullptr);
  EXPECT_EQ(holding(request)->blocks.size(), 3U);
  request.state = start_decoding(std::move(std::get<Prefilling>(request.state)));
  request.num_tokens = 11;
  EXPECT_EQ(num_computed(request), 10);
  EXPECT_EQ(num_uncomputed(request), 1);
}

TEST(Request, PreemptionGivesEverythingBack) {
  kvcache::CachePool pool = small_pool();
  State state = admit(Waiting{}, *pool.acquire(10));
  state = preempt(std::move(state), {}, pool);
  EXPECT_TRUE(std::holds_alternative<Preempted>(state));
  EXPECT_EQ(pool.blocks().num_used(), 0);
  EXPECT_EQ(pool.slots().num_used(), 0);
}

TEST(Request, FinishingInAnyStateGivesEverythingBack) {
  kvcache::CachePool pool = small_pool();
  std::vector<State> states;
  states.emplace_back(Waiting{});
  states.emplace_back(Preempted{});
  states.emplace_back(admit(Waiting{}, *pool.acquire(5)));
  states.emplace_back(start_decoding(admit(Preempted{}, *pool.acquire(5))));
  EXPECT_EQ(pool.slots().num_used(), 2);
  for (State& state : states) {
    state = finish(std::move(state), pool);
    EXPECT_TRUE(std::holds_alternative<Finished>(state));
  }
  EXPECT_EQ(pool.blocks().num_used(), 0);
  EXPECT_EQ(pool.slots().num_used(), 0);
  pool.check_integrity({});
}

TEST(RequestDeathTest, ForbiddenTransitionsAbort) {
  kvcache::CachePool pool = small_pool();
  EXPECT_DEATH((void)preempt(Waiting{}, {}, pool), "only a running request is preempted");
  EXPECT_DEATH((void)admit(Finished{}, kvcache::Holding()), "only a queued request is admitted");
  EXPECT_DEATH((void)finish(Finished{}, pool), "a request finishes once");
}

}  // namespace
}  // namespace deepinfer::scheduler
