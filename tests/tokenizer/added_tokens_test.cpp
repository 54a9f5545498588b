#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "tokenizer/text_index.h"

namespace deepinfer::tokenizer {
namespace {

AddedTokenFinder finder_of(const std::vector<std::string_view>& texts) {
  std::vector<ByteTrie::Entry> entries;
  for (const std::string_view text : texts) {
    entries.push_back({.text = text, .value = static_cast<std::int32_t>(entries.size())});
  }
  return *AddedTokenFinder::build(entries);
}

TEST(AddedTokenFinder, LeftmostComesFirstAndTheLongestOfThose) {
  const AddedTokenFinder finder = finder_of({"ab", "abc", "bcde", "cd"});
  const std::optional<AddedTokenMatch> match = finder.find_first("xxabcdexx", 0);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->id, TokenId{1});
  EXPECT_EQ(match->begin, 2U);
  EXPECT_EQ(match->end, 5U);
  EXPECT_EQ(finder.find_first("xxabcdexx", 3)->id, TokenId{2});
  EXPECT_FALSE(finder.find_first("xxabcdexx", 5).has_value());
}

TEST(AddedTokenFinder, PositionsAreFoundAtEveryOffsetAndAtTheEnd) {
  const AddedTokenFinder finder = finder_of({"<｜User｜>", "<think>"});
  for (std::size_t offset = 0; offset < 40; ++offset) {
    const std::string text = std::string(offset, '.') + "<｜Us<think>";
    const std::optional<AddedTokenMatch> match = finder.find_first(text, 0);
    ASSERT_TRUE(match.has_value()) << offset;
    EXPECT_EQ(match->end, text.size());
    EXPECT_EQ(match->id, TokenId{1});
  }
}

TEST(AddedTokenFinder, ManyDifferentFirstBytesWorkLikeFew) {
  const AddedTokenFinder finder = finder_of({"a1", "b2", "c3", "d4", "e5", "f6"});
  EXPECT_EQ(finder.find_first("aabbccddeeff aaaaaaaaaaaae5", 0)->id, TokenId{4});
}

TEST(AddedTokenFinder, WithoutTokensNothingIsFound) {
  const AddedTokenFinder finder = finder_of({});
  EXPECT_FALSE(finder.find_first("any text that is longer than a word", 0).has_value());
  EXPECT_FALSE(finder.find_exact("any").has_value());
}

TEST(AddedTokenFinder, ExactTextIsNeededToFindByName) {
  const AddedTokenFinder finder = finder_of({"<a>", "<a><b>"});
  EXPECT_EQ(finder.find_exact("<a>"), TokenId{0});
  EXPECT_EQ(finder.find_exact("<a><b>"), TokenId{1});
  EXPECT_FALSE(finder.find_exact("<a><").has_value());
  EXPECT_FALSE(finder.find_exact("<").has_value());
  EXPECT_FALSE(finder.find_exact("").has_value());
}

TEST(ByteTrie, LongestPrefixIsThatOfASortedMap) {
  constexpr std::uint32_t kSeed = 20250703;
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    std::map<std::string, std::int32_t> expected;
    const std::uint32_t num_letters = round % 3 == 0 ? 256 : 3;
    const auto draw = [&](std::size_t max_size) {
      std::string out(1 + random() % max_size, '\0');
      for (char& byte : out) {
        byte = static_cast<char>(random() % num_letters);
      }
      return out;
    };
    for (int i = 0; i < 300; ++i) {
      expected.emplace(draw(8), i);
    }
    std::vector<ByteTrie::Entry> entries;
    for (const auto& [text, value] : expected) {
      entries.push_back({.text = text, .value = value});
    }
    const ByteTrie trie = *ByteTrie::build(entries);
    for (int i = 0; i < 300; ++i) {
      const std::string text = draw(12);
      ByteTrie::Match longest;
      for (std::size_t length = 1; length <= text.size(); ++length) {
        const auto found = expected.find(text.substr(0, length));
        if (found != expected.end()) {
          longest = {.value = found->second, .length = length};
        }
      }
      ASSERT_EQ(trie.longest_prefix(text).value, longest.value) << "round " << round;
      ASSERT_EQ(trie.longest_prefix(text).length, longest.length) << "round " << round;
      const auto exact = expected.find(text);
      ASSERT_EQ(trie.find(text), exact == expected.end() ? ByteTrie::kNone : exact->second);
    }
  }
}

TEST(TextIndex, KeepsTheFirstValueOfAText) {
  std::vector<std::string> texts;
  for (int i = 0; i < 2000; ++i) {
    texts.push_back(std::string(static_cast<std::size_t>(i % 40), 'x') + std::to_string(i));
  }
  TextIndex index(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(index.get_or_add(texts[i], static_cast<std::int32_t>(i)), static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(index.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(index.get_or_add(texts[i], 7), static_cast<std::int32_t>(i));
    EXPECT_EQ(index.find(texts[i]), static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(index.find("nowhere"), TextIndex::kNone);
  EXPECT_EQ(index.find(""), TextIndex::kNone);
}

}  // namespace
}  // namespace deepinfer::tokenizer
