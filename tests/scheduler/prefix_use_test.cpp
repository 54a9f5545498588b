// What an admission takes from the cache, and why it took no more. Blocks of 4 positions, tokens 0, 1, 2, …
#include "scheduler/prefix_use.h"

#include <gtest/gtest.h>

namespace deepinfer::scheduler {
namespace {

using kvcache::BlockHash;

/// Prefixes of the blocks that tokens 0 … num_tokens − 1 fill; token number `different`, if any, is another one.
std::vector<BlockHash> chain(std::int32_t num_tokens, std::int32_t different = -1) {
  std::vector<BlockHash> out;
  BlockHash last = kvcache::root_hash("");
  for (std::int32_t end = 4; end <= num_tokens; end += 4) {
    std::vector<TokenId> tokens;
    for (std::int32_t i = end - 4; i < end; ++i) {
      tokens.push_back({i == different ? 1000 : i});
    }
    last = kvcache::next_hash(last, tokens);
    out.push_back(last);
  }
  return out;
}

/// A pool in which a request left the blocks of 20 tokens and states behind the blocks in `state_blocks`.
class PrefixUseTest : public testing::Test {
 protected:
  void leave(std::span<const std::int32_t> state_blocks) {
    auto cache = pool_.acquire(20);
    const auto prefixes = chain(20);
    for (std::size_t i = 0; i < prefixes.size(); ++i) {
      pool_.publish(prefixes[i], cache->blocks[i]);
    }
    for (const std::int32_t block : state_blocks) {
      ASSERT_TRUE(pool_.acquire_state(*cache));
      pool_.publish_state(prefixes[static_cast<std::size_t>(block) - 1], *cache);
    }
    pool_.release(std::move(*cache));
    pool_.check_integrity({});
  }

  PrefixUse exact(std::int32_t num_tokens, std::int32_t different = -1) {
    return choose_prefix(pool_, {.reuse = Reuse::exact}, chain(num_tokens, different), num_tokens, num_tokens);
  }
  PrefixUse bounded(std::int32_t num_tokens, std::int32_t different = -1) {
    return choose_prefix(pool_, {.reuse = Reuse::bounded, .bounded_replay = true, .window = 4, .keep = 7}, chain(num_tokens, different),
                         num_tokens, num_tokens);
  }

  kvcache::CachePool pool_{{.positions_per_block = 4, .num_blocks = 12, .num_slots = 5}};
};

TEST_F(PrefixUseTest, ExactStartsBehindTheLastState) {
  const std::int32_t states[] = {2, 4};
  leave(states);
  const PrefixUse use = exact(30);
  EXPECT_EQ(use.first_position, 16);
  EXPECT_NE(use.state, SlotId{});
  EXPECT_EQ(use.num_shared_blocks, 5) << "blocks without a state behind them are shared too, only computed again";
  EXPECT_EQ(use.stored_until, 20);
  EXPECT_EQ(use.checkpoint, 20) << "so that the next one finds a state where the blocks end";
  EXPECT_EQ(use.first_valid, 0);
  EXPECT_EQ(use.report.num_cached, 16);
  EXPECT_EQ(use.report.miss, PrefixMiss::diverged);
  EXPECT_EQ(use.report.first_miss, 20);
}

TEST_F(PrefixUseTest, AtLeastOneTokenIsComputed) {
  const std::int32_t states[] = {4, 5};
  leave(states);
  EXPECT_EQ(exact(20).first_position, 16);
  EXPECT_EQ(exact(20).report.miss, PrefixMiss::none);
  EXPECT_EQ(exact(21).first_position, 20);
  EXPECT_EQ(exact(21).report.miss, PrefixMiss::none);
}

TEST_F(PrefixUseTest, SaysWhyNoMoreWasFound) {
  const std::int32_t states[] = {2};
  leave(states);
  EXPECT_EQ(exact(4).report.miss, PrefixMiss::too_short);
  EXPECT_EQ(exact(17).report.miss, PrefixMiss::no_state);
  EXPECT_EQ(exact(9).report.miss, PrefixMiss::none);
  const PrefixUse diverged = exact(17, 6);
  EXPECT_EQ(diverged.report.miss, PrefixMiss::diverged);
  EXPECT_EQ(diverged.report.first_miss, 4);
  EXPECT_EQ(diverged.report.num_cached, 0) << "there is no state behind the first block";
  auto everything = pool_.acquire(44);
  pool_.release(std::move(*everything));
  EXPECT_EQ(exact(17).report.miss, PrefixMiss::evicted);
  EXPECT_EQ(choose_prefix(pool_, {}, chain(17), 17, 17).report.miss, PrefixMiss::disabled);
}

TEST_F(PrefixUseTest, BoundedStartsAWindowBeforeTheHitAndComputesTheKeptRows) {
  leave({});
  const PrefixUse far = bounded(60);
  EXPECT_EQ(far.first_position, 16) << "a window before the 20 positions that are there";
  EXPECT_EQ(far.first_valid, 16);
  EXPECT_EQ(far.stored_until, 20);
  EXPECT_EQ(far.num_shared_blocks, 5);
  EXPECT_EQ(far.report.num_cached, 16);
  EXPECT_EQ(bounded(21).first_position, 14) << "seven rows are kept in any case";
  EXPECT_EQ(bounded(22).first_position, 14) << "even, so that no pair of tokens is cut";
}

TEST_F(PrefixUseTest, BoundedDropsAHitThatSavesNothing) {
  leave({});
  for (const std::int32_t num_tokens : {5, 8}) {
    EXPECT_EQ(bounded(num_tokens).num_shared_blocks, 0);
    EXPECT_EQ(bounded(num_tokens).report.miss, PrefixMiss::too_short);
  }
  EXPECT_EQ(bounded(30, 5).num_shared_blocks, 0);
  EXPECT_EQ(bounded(30, 5).report.miss, PrefixMiss::diverged);
}

}  // namespace
}  // namespace deepinfer::scheduler
