// IdPool against a naive model that keeps a list of holders per id.
#include "kvcache/id_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace deepinfer::kvcache {
namespace {

TEST(IdPool, NeverHandsOutIdZero) {
  BlockPool pool(5);
  const auto ids = pool.acquire(4);
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, (std::vector<BlockId>{{1}, {2}, {3}, {4}}));
  EXPECT_EQ(pool.num_free(), 0);
  pool.check_integrity();
}

TEST(IdPool, BatchAcquireIsAllOrNothing) {
  BlockPool pool(5);
  EXPECT_FALSE(pool.acquire(5));
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.acquire(3));
  EXPECT_FALSE(pool.acquire(2));
  EXPECT_EQ(pool.num_free(), 1);
  pool.check_integrity();
}

TEST(IdPool, AcquiringNothingSucceedsEvenWhenNothingIsFree) {
  SlotPool pool(1);
  EXPECT_EQ(pool.capacity(), 0);
  const auto ids = pool.acquire(0);
  ASSERT_TRUE(ids);
  EXPECT_TRUE(ids->empty());
  EXPECT_FALSE(pool.acquire(1));
  pool.check_integrity();
}

TEST(IdPool, ReusesTheLongestUnusedIdFirst) {
  BlockPool pool(6);
  const auto first = pool.acquire(3);
  ASSERT_TRUE(first);
  pool.release(*first);
  const auto second = pool.acquire(5);
  ASSERT_TRUE(second);
  EXPECT_EQ(*second, (std::vector<BlockId>{{4}, {5}, {3}, {2}, {1}}));
}

TEST(IdPool, ASharedIdIsFreeOnlyAfterItsLastHolderLeaves) {
  BlockPool pool(3);
  const auto ids = pool.acquire(1);
  ASSERT_TRUE(ids);
  pool.share(ids->front());
  EXPECT_EQ(pool.num_holders(ids->front()), 2);
  pool.release(*ids);
  EXPECT_EQ(pool.num_free(), 1);
  pool.check_integrity();
  pool.release(*ids);
  EXPECT_EQ(pool.num_free(), 2);
  pool.check_integrity();
}

TEST(IdPoolDeathTest, ReleasingTwiceAborts) {
  BlockPool pool(3);
  const auto ids = pool.acquire(1);
  pool.release(*ids);
  EXPECT_DEATH(pool.release(*ids), "only a held id can be released");
}

TEST(IdPoolDeathTest, ReleasingThePaddingIdAborts) {
  BlockPool pool(3);
  const std::vector<BlockId> padding{{0}};
  EXPECT_DEATH(pool.release(padding), "an id in use is one the pool handed out");
}

TEST(IdPool, AgreesWithANaiveModelOverRandomOperations) {
  const std::uint64_t seed = 20261;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::int32_t num_ids = 23;
  BlockPool pool(num_ids);
  std::vector<std::vector<BlockId>> held;  // one entry per holder; an id may appear in several
  for (int step = 0; step < 20'000; ++step) {
    std::set<BlockId> used;
    for (const auto& ids : held) {
      used.insert(ids.begin(), ids.end());
    }
    const auto num_free = num_ids - 1 - static_cast<std::int32_t>(used.size());
    ASSERT_EQ(pool.num_free(), num_free);
    if (random() % 2 == 0) {
      const auto count = static_cast<std::int32_t>(random() % 6);
      auto ids = pool.acquire(count);
      ASSERT_EQ(ids.has_value(), count <= num_free);
      if (ids) {
        for (const BlockId id : *ids) {
          ASSERT_NE(id.value, 0);
          ASSERT_TRUE(used.insert(id).second);
        }
        held.push_back(std::move(*ids));
      }
    } else if (!held.empty()) {
      const std::size_t chosen = random() % held.size();
      if (random() % 4 == 0) {
        std::ranges::for_each(held[chosen], [&](BlockId id) { pool.share(id); });
        held.push_back(held[chosen]);
      } else {
        pool.release(held[chosen]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(chosen));
      }
    }
    pool.check_integrity();
  }
}

TEST(IdPool, AReclaimedIdIsHeldAndTheOthersKeepTheirOrder) {
  BlockPool pool(6);
  pool.reclaim({3});
  EXPECT_EQ(pool.num_holders({3}), 1);
  EXPECT_EQ(*pool.acquire(4), (std::vector<BlockId>{{1}, {2}, {4}, {5}}));
  pool.check_integrity();
}

TEST(IdPool, ADiscardedIdIsReusedFirstAndATouchedOneLast) {
  BlockPool pool(6);
  const auto ids = *pool.acquire(2);
  pool.discard(ids[1]);
  pool.touch({3});
  EXPECT_EQ(*pool.acquire(4), (std::vector<BlockId>{{2}, {4}, {5}, {3}}));
  pool.check_integrity();
}

TEST(IdPool, ADiscardedIdThatOthersHoldStaysTheirs) {
  BlockPool pool(3);
  const auto ids = *pool.acquire(1);
  pool.share(ids[0]);
  pool.discard(ids[0]);
  EXPECT_EQ(pool.num_holders(ids[0]), 1);
  EXPECT_EQ(pool.num_free(), 1);
  pool.check_integrity();
}

TEST(IdPoolDeathTest, AHeldIdIsNeitherReclaimedNorTouched) {
  SlotPool pool(3);
  const auto ids = *pool.acquire(1);
  EXPECT_DEATH(pool.reclaim(ids[0]), "only a free id can be taken");
  EXPECT_DEATH(pool.touch(ids[0]), "only a free id has a place in the free list");
}

}  // namespace
}  // namespace deepinfer::kvcache
