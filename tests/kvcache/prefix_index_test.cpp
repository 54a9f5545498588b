// Prefixes in blocks, states in slots, and what is forgotten when.
#include "kvcache/prefix_index.h"

#include <gtest/gtest.h>

namespace deepinfer::kvcache {
namespace {

BlockHash named(std::int32_t name) {
  const TokenId token{name};
  return next_hash(root_hash(""), std::span(&token, 1));
}

TEST(BlockHash, ABlocksNameTakesInTheImagesInIt) {
  const std::vector<TokenId> tokens{{3}, {3}, {3}, {3}};
  const BlockHash root = root_hash("");
  const BlockImage cat{.first = 1, .content = root_hash("cat")};
  const BlockImage dog{.first = 1, .content = root_hash("dog")};
  const BlockImage moved{.first = 2, .content = cat.content};
  const auto name = [&](const std::vector<BlockImage>& images) { return next_hash(root, tokens, images); };
  EXPECT_EQ(name({cat}), name({cat}));
  EXPECT_EQ(name({}), next_hash(root, tokens));
  for (const BlockHash& other : {name({}), name({dog}), name({moved}), name({cat, dog})}) {
    EXPECT_NE(name({cat}), other);
  }
}

TEST(BlockHash, CoversSaltAndEverythingBefore) {
  const std::vector<TokenId> tokens{{1}, {2}, {3}, {4}};
  const auto first = std::span(tokens).first(2);
  const auto second = std::span(tokens).last(2);
  const BlockHash chain = next_hash(next_hash(root_hash(""), first), second);
  EXPECT_EQ(chain, next_hash(next_hash(root_hash(""), first), second));
  EXPECT_NE(chain, next_hash(root_hash(""), second));
  EXPECT_NE(chain, next_hash(next_hash(root_hash(""), second), first));
  EXPECT_NE(chain, next_hash(next_hash(root_hash("tenant"), first), second));
  EXPECT_NE(next_hash(root_hash(""), first), next_hash(root_hash(""), tokens));
}

TEST(PrefixIndex, TheFirstBlockWithAPrefixStaysTheOne) {
  PrefixIndex index(10, 3);
  index.insert(named(1), {4});
  index.insert(named(1), {5});
  EXPECT_EQ(index.find(named(1))->block, BlockId{4});
  EXPECT_FALSE(index.holds_prefix({5}));
  index.forget(BlockId{5});
  EXPECT_NE(index.find(named(1)), nullptr);
  index.check_integrity();
}

TEST(PrefixIndex, AStateGoesWithItsPrefixButNotTheOtherWayRound) {
  PrefixIndex index(10, 4);
  index.insert(named(1), {1});
  index.insert(named(2), {2});
  index.set_state(named(1), {1});
  index.set_state(named(2), {2});
  index.forget(SlotId{1});
  EXPECT_EQ(index.find(named(1))->state, SlotId{});
  index.forget(BlockId{2});
  EXPECT_EQ(index.find(named(2)), nullptr);
  EXPECT_FALSE(index.holds_state({2}));
  index.set_state(named(1), {3});
  index.set_state(named(1), {2});
  EXPECT_FALSE(index.holds_state({3}));
  EXPECT_EQ(index.find(named(1))->state, SlotId{2});
  index.check_integrity();
}

TEST(PrefixIndex, RemembersWhatWasForgottenLast) {
  PrefixIndex index(3, 1);  // remembers four per block: twelve
  for (std::int32_t name = 0; name < 20; ++name) {
    index.insert(named(name), {1});
    index.forget(BlockId{1});
    index.check_integrity();
  }
  EXPECT_FALSE(index.was_here(named(7)));
  EXPECT_TRUE(index.was_here(named(8)));
  EXPECT_TRUE(index.was_here(named(19)));
  EXPECT_FALSE(index.was_here(named(20)));
}

}  // namespace
}  // namespace deepinfer::kvcache
