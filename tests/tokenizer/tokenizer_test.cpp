#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "base/utf8.h"
#include "tokenizer/test_data.h"

namespace deepinfer::tokenizer {
namespace {

using testing::ids_of;

const Tokenizer& tokenizer_of(std::uint32_t index) {
  const Tokenizer* const all[] = {&testing::deepseek(), &testing::nano(), &testing::tiny()};
  return *all[index % 3];
}

TEST(Tokenizer, DecodedEncodingIsTheText) {
  std::cout << "seeds 0 … 299\n";
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::string text = testing::random_text(seed, 400);
    const std::vector<TokenId> ids = tokenizer_of(seed).encode(text, AddedTokens::ignore);
    ASSERT_EQ(tokenizer_of(seed).decode(ids, SpecialTokens::keep), text) << "seed " << seed;
  }
}

TEST(Tokenizer, IllFormedBytesKeepTheirBytesAndDecodeToReplacements) {
  std::cout << "seeds 0 … 299\n";
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::string bytes = testing::random_bytes(seed, 400);
    const std::vector<TokenId> ids = tokenizer_of(seed).encode(bytes, AddedTokens::ignore);
    std::string joined;
    for (const TokenId id : ids) {
      joined += tokenizer_of(seed).bytes(id);
    }
    ASSERT_EQ(joined, bytes) << "seed " << seed;
    ASSERT_EQ(tokenizer_of(seed).decode(ids, SpecialTokens::keep), utf8::replace_invalid(bytes)) << "seed " << seed;
  }
}

TEST(Tokenizer, ThreadsGiveTheIdsOfOne) {
  const Tokenizer& tokenizer = testing::deepseek();
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    std::string text;
    for (std::uint32_t part = 0; text.size() < 300'000; ++part) {
      text += testing::random_text(seed * 1000 + part, 3000);
      text += part % 3 == 0 ? "<｜User｜>" : (part % 3 == 1 ? "<｜begin▁of▁sentence｜>" : "<｜Us");
    }
    for (const AddedTokens mode : {AddedTokens::recognise, AddedTokens::ignore}) {
      const std::vector<TokenId> expected = tokenizer.encode(text, mode);
      for (const std::int32_t num_threads : {1, 2, 3, 8}) {
        ASSERT_TRUE(tokenizer.encode(text, mode, num_threads) == expected) << "seed " << seed << " threads " << num_threads;
      }
    }
  }
}

TEST(Tokenizer, TextWithoutAnyCertainBorderIsLeftInOnePart) {
  const Tokenizer& tokenizer = testing::nano();
  const std::string text(500'000, 'a');
  EXPECT_TRUE(tokenizer.encode(text, AddedTokens::recognise, 4) == tokenizer.encode(text, AddedTokens::recognise));
}

TEST(Tokenizer, AddedTokensAreFoundOnlyWhenAskedFor) {
  const Tokenizer& tokenizer = testing::nano();
  const TokenId user = *tokenizer.find("<｜User｜>");
  const std::vector<TokenId> ids = tokenizer.encode("a<｜User｜>b", AddedTokens::recognise);
  EXPECT_EQ(std::ranges::count(ids, user), 1);
  const std::vector<TokenId> plain = tokenizer.encode("a<｜User｜>b", AddedTokens::ignore);
  EXPECT_EQ(std::ranges::count(plain, user), 0);
  EXPECT_EQ(tokenizer.decode(plain, SpecialTokens::keep), "a<｜User｜>b");
}

TEST(Tokenizer, SpecialTokensAreSkippedOnRequest) {
  const Tokenizer& tokenizer = testing::tiny();
  const TokenId begin = *tokenizer.find("<｜begin▁of▁sentence｜>");
  EXPECT_TRUE(tokenizer.is_special(begin));
  const std::vector<TokenId> ids = tokenizer.encode("<｜begin▁of▁sentence｜>the", AddedTokens::recognise);
  EXPECT_EQ(ids.front(), begin);
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::skip), "the");
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::keep), "<｜begin▁of▁sentence｜>the");
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreEmpty) {
  const Tokenizer& tokenizer = testing::nano();
  EXPECT_EQ(tokenizer.vocab_size(), 8192);
  EXPECT_EQ(tokenizer.decode(ids_of({-1, 8192, 1 << 30}), SpecialTokens::skip), "");
  EXPECT_EQ(tokenizer.bytes(TokenId{-1}), "");
  EXPECT_EQ(tokenizer.spelling(TokenId{8192}), "");
  EXPECT_FALSE(tokenizer.is_special(TokenId{8192}));
  EXPECT_FALSE(tokenizer.find("the").has_value()) << "find is for added tokens";
}

TEST(Tokenizer, SpellingIsTheTextOfTheVocabulary) {
  const Tokenizer& tokenizer = testing::tiny();
  const TokenId word = tokenizer.encode(" the", AddedTokens::ignore).front();
  EXPECT_EQ(tokenizer.bytes(word), " the");
  EXPECT_EQ(tokenizer.spelling(word), "Ġthe");
  EXPECT_EQ(tokenizer.spelling(*tokenizer.find("<think>")), "<think>");
}

TEST(Tokenizer, EmptyTextHasNoIds) {
  EXPECT_TRUE(testing::nano().encode("", AddedTokens::recognise).empty());
  EXPECT_TRUE(testing::nano().encode("", AddedTokens::recognise, 8).empty());
  EXPECT_EQ(testing::nano().decode({}, SpecialTokens::keep), "");
}

TEST(Tokenizer, MissingFileIsNamed) {
  const Result<Tokenizer> tokenizer = Tokenizer::load("/nonexistent/tokenizer.json");
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().kind, ErrorKind::not_found);
  EXPECT_NE(tokenizer.error().message.find("/nonexistent/tokenizer.json"), std::string::npos);
  EXPECT_FALSE(Tokenizer::load("/").has_value()) << "a directory is no file";
}

/// Seconds of this thread to encode `unit` repeated to `num_bytes`, the best of three.
double encoding_seconds(const Tokenizer& tokenizer, std::string_view unit, std::size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) {
    text += unit;
  }
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    timespec begin{};
    timespec end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    const std::vector<TokenId> ids = tokenizer.encode(text, AddedTokens::recognise);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    EXPECT_FALSE(ids.empty());
    best = std::min(best, static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9);
  }
  return best;
}

TEST(Tokenizer, TimeIsLinearInTheTextWhateverItIs) {
  // Eight times the text: about 8 times the time when linear, 64 times when quadratic.
  constexpr std::size_t kSmall = 20'000;
  constexpr double kMaxRatio = 30;
  for (const Tokenizer* tokenizer : {&testing::deepseek(), &testing::tiny()}) {
    for (const std::string_view unit :
         {"a", "ab", " ",   "\n",      " \n",     "      x", "😀",    "👨‍👩‍👧", "中",   "中文", "7",
          "-", "<",  "<｜", "<｜User", "e\u0301", "\x01",    "\x80", "\xE4\xB8",           "qxzj", "=-",   "\t "}) {
      const double small = encoding_seconds(*tokenizer, unit, kSmall);
      const double large = encoding_seconds(*tokenizer, unit, kSmall * 8);
      EXPECT_LT(large / small, kMaxRatio) << "text of '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
