// CachePool: slots and blocks move together or not at all.
#include "kvcache/cache_pool.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer::kvcache {
namespace {

CacheGeometry geometry(std::int32_t num_blocks, std::int32_t num_slots) {
  return {.positions_per_block = 4, .num_blocks = num_blocks, .num_slots = num_slots};
}

TEST(CachePool, CountsTheBlocksOfPositionsRoundedUp) {
  const CachePool pool(geometry(10, 2));
  EXPECT_EQ(pool.num_blocks_for(0), 0);
  EXPECT_EQ(pool.num_blocks_for(1), 1);
  EXPECT_EQ(pool.num_blocks_for(4), 1);
  EXPECT_EQ(pool.num_blocks_for(5), 2);
  EXPECT_EQ(pool.max_positions(), 36);
}

TEST(CachePool, TakesNoBlockWhenNoSlotIsFree) {
  CachePool pool(geometry(10, 2));
  auto first = pool.acquire(5);
  ASSERT_TRUE(first);
  EXPECT_FALSE(pool.acquire(5));
  EXPECT_EQ(pool.blocks().num_used(), 2);
  const Holding* holdings[] = {&*first};
  pool.check_integrity(holdings);
}

TEST(CachePool, TakesNoSlotWhenBlocksAreShort) {
  CachePool pool(geometry(4, 3));
  EXPECT_FALSE(pool.acquire(13));
  EXPECT_EQ(pool.slots().num_used(), 0);
  EXPECT_TRUE(pool.acquire(12));
}

TEST(CachePool, ExtendsAHoldingByWhatIsMissing) {
  CachePool pool(geometry(4, 2));
  auto holding = pool.acquire(3);
  ASSERT_TRUE(holding);
  EXPECT_TRUE(pool.extend(*holding, 4));
  EXPECT_EQ(holding->blocks.size(), 1U);
  EXPECT_TRUE(pool.extend(*holding, 9));
  EXPECT_EQ(holding->blocks.size(), 3U);
  EXPECT_FALSE(pool.extend(*holding, 13));
  EXPECT_EQ(holding->blocks.size(), 3U);
}

TEST(CachePool, ReleasesSlotAndBlocksTogether) {
  CachePool pool(geometry(4, 2));
  auto holding = pool.acquire(9);
  ASSERT_TRUE(holding);
  pool.release(std::move(*holding));
  EXPECT_EQ(pool.blocks().num_used(), 0);
  EXPECT_EQ(pool.slots().num_used(), 0);
  pool.check_integrity({});
}

TEST(CachePoolDeathTest, AHoldingThatWasLostIsFound) {
  CachePool pool(geometry(4, 2));
  auto holding = pool.acquire(1);
  ASSERT_TRUE(holding);
  EXPECT_DEATH(pool.check_integrity({}), "a block is counted once per holding");
}

TEST(CachePool, KeepsItsCountsOverRandomOperations) {
  const std::uint64_t seed = 20262;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  CachePool pool(geometry(30, 6));
  std::vector<Holding> held;
  for (int step = 0; step < 10'000; ++step) {
    const auto choice = random() % 3;
    const auto num_positions = static_cast<std::int32_t>(random() % 40);
    if (choice == 0) {
      const bool fits = pool.slots().num_free() > 0 && pool.num_blocks_for(num_positions) <= pool.blocks().num_free();
      auto holding = pool.acquire(num_positions);
      ASSERT_EQ(holding.has_value(), fits);
      if (holding) {
        held.push_back(std::move(*holding));
      }
    } else if (!held.empty()) {
      const std::size_t chosen = random() % held.size();
      if (choice == 1) {
        const auto num_missing = pool.num_blocks_for(num_positions) - static_cast<std::int32_t>(held[chosen].blocks.size());
        const bool fits = num_missing <= pool.blocks().num_free();
        ASSERT_EQ(pool.extend(held[chosen], num_positions), fits);
      } else {
        pool.release(std::move(held[chosen]));
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
    }
    std::vector<const Holding*> live;
    for (const Holding& holding : held) {
      live.push_back(&holding);
    }
    pool.check_integrity(live);
  }
}

/// Prefixes of `num_blocks` blocks of the text number `text`.
std::vector<BlockHash> prefixes_of(std::int32_t text, std::int32_t num_blocks) {
  std::vector<BlockHash> out;
  BlockHash last = root_hash("");
  for (std::int32_t block = 0; block < num_blocks; ++block) {
    const TokenId token{100 * text + block};
    last = next_hash(last, std::span(&token, 1));
    out.push_back(last);
  }
  return out;
}

TEST(CachePool, ReleasedBlocksAreFoundUntilTheyAreNeeded) {
  CachePool pool(geometry(7, 3));
  const auto prefixes = prefixes_of(1, 2);
  auto first = pool.acquire(10);
  pool.publish(prefixes[0], first->blocks[0]);
  pool.publish(prefixes[1], first->blocks[1]);
  const std::vector<BlockId> blocks = first->blocks;
  pool.release(std::move(*first));
  EXPECT_EQ(pool.blocks().num_used(), 0);
  EXPECT_EQ(pool.match(prefixes).num_blocks, 2);
  auto again = pool.acquire(10, prefixes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->blocks[0], blocks[0]);
  EXPECT_EQ(again->blocks[1], blocks[1]);
  pool.release(std::move(*again));
  auto other = pool.acquire(20);  // five of six blocks: the end of the prefix goes before its beginning
  EXPECT_EQ(pool.match(prefixes).num_blocks, 1);
  pool.release(std::move(*other));
  EXPECT_TRUE(pool.acquire(24));
  EXPECT_EQ(pool.match(prefixes).num_blocks, 0);
  EXPECT_TRUE(pool.index().was_here(prefixes[0]));
}

TEST(CachePool, HeldBlocksAreSharedAndCostNothing) {
  CachePool pool(geometry(5, 4));
  const auto prefixes = prefixes_of(1, 2);
  auto first = pool.acquire(12);
  pool.publish(prefixes[0], first->blocks[0]);
  pool.publish(prefixes[1], first->blocks[1]);
  EXPECT_EQ(pool.num_blocks_needed(12, prefixes), 1);
  auto second = pool.acquire(12, prefixes);
  ASSERT_TRUE(second);
  EXPECT_EQ(pool.blocks().num_holders(first->blocks[0]), 2);
  EXPECT_EQ(pool.blocks().num_free(), 0);
  EXPECT_FALSE(pool.acquire(12, prefixes)) << "the third block is missing";
  const Holding* both[] = {&*first, &*second};
  pool.check_integrity(both);
  pool.release(std::move(*first));
  const Holding* one[] = {&*second};
  pool.check_integrity(one);
}

TEST(CachePool, AStateIsKeptUntilItsSlotIsTheLastOne) {
  CachePool pool(geometry(9, 4));
  const auto prefixes = prefixes_of(1, 1);
  auto first = pool.acquire(4);
  pool.publish(prefixes[0], first->blocks[0]);
  ASSERT_TRUE(pool.acquire_state(*first));
  pool.publish_state(prefixes[0], *first);
  const SlotId state = pool.state_behind(prefixes[0]);
  ASSERT_NE(state, SlotId{});
  auto second = pool.acquire(8, prefixes, state);
  EXPECT_NE(second->slot, state);
  EXPECT_EQ(pool.state_behind(prefixes[0]), state);
  auto third = pool.acquire(8, prefixes, state);
  EXPECT_EQ(third->slot, state) << "no other slot was left";
  EXPECT_FALSE(pool.has_state(prefixes[0]));
  const Holding* all[] = {&*first, &*second, &*third};
  pool.check_integrity(all);
}

TEST(CachePool, ACopyThatNobodyKnowsYetReturnsWithItsHolding) {
  CachePool pool(geometry(9, 4));
  auto holding = pool.acquire(4);
  ASSERT_TRUE(pool.acquire_state(*holding));
  const Holding* all[] = {&*holding};
  pool.check_integrity(all);
  EXPECT_EQ(pool.slots().num_used(), 2);
  pool.release(std::move(*holding));
  EXPECT_EQ(pool.slots().num_used(), 0);
  pool.check_integrity({});
}

TEST(CachePool, KeepsItsPromisesOverRandomSharing) {
  const std::uint64_t seed = 20263;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  CachePool pool(geometry(30, 9));
  struct Held {
    Holding holding;
    std::vector<BlockHash> prefixes;
  };
  std::vector<Held> held;
  int num_hits = 0;
  for (int step = 0; step < 10'000; ++step) {
    if (random() % 2 == 0) {
      auto prefixes = prefixes_of(static_cast<std::int32_t>(random() % 4), static_cast<std::int32_t>(1 + random() % 6));
      const PrefixMatch match = pool.match(prefixes);
      const auto shared = std::span(prefixes).first(static_cast<std::size_t>(match.num_blocks));
      const SlotId state =
          match.num_state_blocks == 0 ? SlotId{} : pool.state_behind(prefixes[static_cast<std::size_t>(match.num_state_blocks) - 1]);
      const auto num_positions = static_cast<std::int32_t>(4 * prefixes.size() + random() % 4);
      auto holding = pool.acquire(num_positions, shared, state);
      if (!holding) {
        continue;
      }
      num_hits += match.num_blocks;
      for (std::size_t block = 0; block < prefixes.size(); ++block) {
        pool.publish(prefixes[block], holding->blocks[block]);
      }
      if (random() % 2 == 0 && !pool.has_state(prefixes.back()) && pool.acquire_state(*holding) && random() % 2 == 0) {
        pool.publish_state(prefixes.back(), *holding);
      }
      held.push_back({std::move(*holding), std::move(prefixes)});
    } else if (!held.empty()) {
      const std::size_t chosen = random() % held.size();
      pool.release(std::move(held[chosen].holding));
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    std::vector<const Holding*> live;
    for (const Held& one : held) {
      live.push_back(&one.holding);
      ASSERT_EQ(pool.match(one.prefixes).num_blocks, static_cast<std::int32_t>(one.prefixes.size())) << "what is held is found";
    }
    pool.check_integrity(live);
  }
  EXPECT_GT(num_hits, 1000);
}

}  // namespace
}  // namespace deepinfer::kvcache
