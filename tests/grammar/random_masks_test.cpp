// The law of masks: for random grammars and random prefixes, forwards and back again, the mask holds exactly the tokens that a slow
// acceptor takes (slow_grammar.h), which shares no code with the engine.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "random_grammars.h"
#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;

const std::shared_ptr<const Vocabulary>& tokens() {
  static const auto kTokens =
      vocabulary_of({"ab",       "abc",      "a1",  "((",    "(ab",      "b.",          "..",     "-a",      "11",     "中文",
                     "\xE4\xB8", "\xAD\xE6", "é1",  "\",\"", "\":",      "\",\"b-c\":", "{\"",    "{\"a\":", "[[",     "]]",
                     "],[",      "\\u00",    "\\n", "\\\"",  "true",     "null",        "null,",  "[true",   "\"a.",   "txt\"",
                     "1.",       ".5e",      "e+1", "-0",    "\xF0\x9F", "\x98\x80\"",  "\"ab\"", "ab\"]",   "D83D\\", "ab"});
  return kTokens;
}

std::vector<std::uint32_t> slow_mask(const SlowGrammar& slow, SlowGrammar::Chart& chart) {
  std::vector<std::uint32_t> mask(tokens()->mask_words());
  std::array<bool, 256> begins{};
  for (int byte = 0; byte < 256; ++byte) {
    begins[static_cast<std::size_t>(byte)] = slow.advance(chart, static_cast<char>(byte));
    slow.retreat(chart, 1);
  }
  for (std::int32_t id = 0; id < tokens()->num_rows(); ++id) {
    const std::string_view text = tokens()->text(TokenId{id});
    bool is_allowed = id == kEnd.value ? slow.is_complete(chart) : !text.empty() && begins[static_cast<std::uint8_t>(text[0])];
    if (is_allowed && text.size() > 1) {
      std::size_t taken = 0;
      for (; is_allowed && taken < text.size(); ++taken) {
        is_allowed = slow.advance(chart, text[taken]);
      }
      slow.retreat(chart, taken);
    }
    mask[static_cast<std::size_t>(id) / 32] |= is_allowed ? 1U << (id % 32) : 0U;
  }
  return mask;
}

/// Any allowed token; one of several bytes when the coin says so.
TokenId pick(const std::vector<std::uint32_t>& mask, std::mt19937& random) {
  std::vector<TokenId> allowed;
  std::vector<TokenId> longer;
  for (std::int32_t id = 1; id < tokens()->num_rows(); ++id) {
    if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) {
      allowed.push_back(TokenId{id});
      if (tokens()->text(TokenId{id}).size() > 1) {
        longer.push_back(TokenId{id});
      }
    }
  }
  const std::vector<TokenId>& from = longer.empty() || random() % 2 == 0 ? allowed : longer;
  return from.empty() ? kEnd : from[random() % from.size()];
}

void expect_slow_masks(const RandomGrammar& grammar, std::mt19937& random) {
  const auto compiled = try_compile(grammar.kind, grammar.text, grammar.options);
  if (!grammar.slow.productive_rules()[static_cast<std::size_t>(grammar.root)]) {
    ASSERT_FALSE(compiled.has_value()) << grammar.text;
    EXPECT_EQ(compiled.error().code, ErrorCode::unsatisfiable) << grammar.text;
    return;
  }
  ASSERT_TRUE(compiled.has_value()) << grammar.text << ": " << compiled.error().message;
  Matcher matcher = matcher_of(*compiled, tokens());
  SlowGrammar::Chart chart = grammar.slow.start(grammar.root);
  std::vector<TokenId> taken;
  std::vector<std::uint32_t> mask(tokens()->mask_words());
  for (int step = 0; step < 10; ++step) {
    matcher.fill_mask(mask);
    ASSERT_EQ(mask, slow_mask(grammar.slow, chart)) << grammar.text << "\nbehind \"" << chart.text << "\"";
    const TokenId next = pick(mask, random);
    if (next == kEnd || (!taken.empty() && random() % 4 == 0)) {
      if (next == kEnd) {  // an end is taken back like any other token
        ASSERT_TRUE(matcher.can_end()) << "a dead end in " << grammar.text << " behind \"" << chart.text << "\"";
        ASSERT_TRUE(matcher.accept(kEnd));
        matcher.rollback(1);
      }
      const std::size_t back = taken.empty() ? 0 : 1 + random() % taken.size();
      matcher.rollback(back);
      for (std::size_t i = 0; i < back; ++i) {
        grammar.slow.retreat(chart, tokens()->text(taken.back()).size());
        taken.pop_back();
      }
      continue;
    }
    ASSERT_TRUE(matcher.accept(next)) << grammar.text;
    for (const char byte : tokens()->text(next)) {
      ASSERT_TRUE(grammar.slow.advance(chart, byte)) << grammar.text;
    }
    taken.push_back(next);
  }
}

void expect_law(RandomGrammar (*make)(std::mt19937&), int count) {
  const auto seed = static_cast<std::uint32_t>(GTEST_FLAG_GET(random_seed));
  std::cout << "seed " << seed << " (--gtest_random_seed)\n";
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    std::mt19937 random(seed * 1000U + static_cast<std::uint32_t>(i));
    const RandomGrammar grammar = make(random);
    expect_slow_masks(grammar, random);
  }
}

TEST(RandomMasks, OfRegularExpressionsAreWhatASlowAcceptorTakes) { expect_law(random_regex, 25); }
TEST(RandomMasks, OfGrammarsAreWhatASlowAcceptorTakes) { expect_law(random_ebnf, 20); }
TEST(RandomMasks, OfSchemasAreWhatASlowAcceptorTakes) { expect_law(random_schema, 100); }

}  // namespace
}  // namespace deepinfer::grammar
