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

}  // namespace
}  // namespace deepinfer::kvcache
