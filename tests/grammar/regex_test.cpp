#include "grammar/regex.h"

#include <gtest/gtest.h>

#include "support.h"

namespace deepinfer::grammar {
namespace {

using testing::matches;
using testing::try_compile;

std::shared_ptr<const CompiledGrammar> regex(std::string_view pattern) {
  auto out = try_compile(GrammarKind::regex, pattern);
  EXPECT_TRUE(out.has_value()) << pattern << ": " << (out ? "" : out.error().message);
  return out.value_or(nullptr);
}

CompileError regex_error(std::string_view pattern) {
  auto out = try_compile(GrammarKind::regex, pattern);
  EXPECT_FALSE(out.has_value()) << pattern;
  return out ? CompileError{} : out.error();
}

TEST(Regex, TheWholeTextMustMatch) {
  const auto grammar = regex("^a(b|c)*$");
  EXPECT_TRUE(matches(grammar, "a"));
  EXPECT_TRUE(matches(grammar, "abcb"));
  EXPECT_FALSE(matches(grammar, "xa"));
  EXPECT_FALSE(matches(grammar, "ad"));
}

TEST(Regex, AnchorsMayStandInAlternativesAndTwice) {
  EXPECT_TRUE(matches(regex("^abc$|^def$"), "def"));
  EXPECT_TRUE(matches(regex("^(^a|b)$"), "a"));
  EXPECT_EQ(regex_error("a^b").code, ErrorCode::unsatisfiable);
}

TEST(Regex, CountedRepeatsCostNothingToCompile) {
  const auto grammar = regex("(?:[ab]{1,100000}c){2,1000000}");
  EXPECT_TRUE(matches(grammar, "abcbbc"));
  EXPECT_FALSE(matches(grammar, "abc"));
}

TEST(Regex, CountsOfCountsAreOneCountWhereNothingIsLeftOut) {
  const auto nested = regex("((a{1,5}){2,3}){2}");
  EXPECT_FALSE(matches(nested, "aaa"));
  EXPECT_TRUE(matches(nested, "aaaa"));
  EXPECT_TRUE(matches(nested, std::string(30, 'a')));
  EXPECT_FALSE(matches(nested, std::string(31, 'a')));
  const auto gaps = regex("(?:(?:a{4}){0,2}|b(?:a{3,4}){1,3})");
  for (const int count : {0, 4, 8}) {
    EXPECT_TRUE(matches(gaps, std::string(static_cast<std::size_t>(count), 'a'))) << count;
  }
  for (const int count : {1, 3, 5, 7, 9, 12}) {
    EXPECT_FALSE(matches(gaps, std::string(static_cast<std::size_t>(count), 'a'))) << count;
  }
  for (int count = 0; count < 15; ++count) {
    const bool fits = count == 3 || count == 4 || (count >= 6 && count <= 12);
    EXPECT_EQ(matches(gaps, "b" + std::string(static_cast<std::size_t>(count), 'a')), fits) << count;
  }
}

TEST(Regex, StatesThatWouldExplodeAreBuiltOnlyWhenVisited) {
  const auto grammar = regex("(a|b)*a(a|b){20}");
  EXPECT_TRUE(matches(grammar, std::string(21, 'a')));
  EXPECT_FALSE(matches(grammar, std::string(21, 'b')));
}

TEST(Regex, ClassesAreOverCodePoints) {
  EXPECT_TRUE(matches(regex("[一-龥]{2}"), "中文"));
  EXPECT_FALSE(matches(regex("[一-龥]{2}"), "中a"));
  EXPECT_TRUE(matches(regex("\\p{Lu}\\P{Lu}+"), "Éa1"));
  EXPECT_FALSE(matches(regex("."), "\n"));
  EXPECT_TRUE(matches(regex("\\u{1F600}\\ud83d\\ude00"), "😀😀"));
}

TEST(Regex, LookaheadAtTheStartIsAnIntersection) {
  const auto grammar = regex("^(?!foo$)(?=[a-z]*o)[a-z]{3,4}$");
  EXPECT_TRUE(matches(grammar, "boo"));
  EXPECT_TRUE(matches(grammar, "fooz"));
  EXPECT_FALSE(matches(grammar, "foo"));
  EXPECT_FALSE(matches(grammar, "bar"));
}

TEST(Regex, LookbehindAtTheEndIsAnIntersection) {
  const auto grammar = regex("[a-z]+(?<=x)");
  EXPECT_TRUE(matches(grammar, "abx"));
  EXPECT_FALSE(matches(grammar, "xa"));
}

TEST(Regex, WhatCannotBeDoneExactlyIsRefused) {
  EXPECT_EQ(regex_error("(a)\\1").code, ErrorCode::unsupported);
  EXPECT_EQ(regex_error("a\\bb").code, ErrorCode::unsupported);
  EXPECT_EQ(regex_error("((?!ab)[a-z])*c").code, ErrorCode::unsupported);
  EXPECT_EQ(regex_error("a(?i)b").code, ErrorCode::unsupported);
}

TEST(Regex, SyntaxErrorsCarryTheirPosition) {
  EXPECT_EQ(regex_error("ab[").code, ErrorCode::syntax);
  EXPECT_EQ(regex_error("a**").column, 3U);
  for (const char* pattern : {"*a", "[z-a]", "abc\\", "\\xZZ", "(?<n", "a{4,2}", "(a", "a)", "(?=a)*"}) {
    EXPECT_EQ(regex_error(pattern).code, ErrorCode::syntax) << pattern;
  }
  EXPECT_EQ(regex_error("a{1,3000000000}").code, ErrorCode::limit);
  EXPECT_EQ(regex_error(std::string(300, '(') + std::string(300, ')')).code, ErrorCode::limit);
}

TEST(Regex, CaseIsFoldedWhereThePatternAsksForIt) {
  EXPECT_TRUE(matches(regex("(?i)straße[x-z]"), "STRAßEY"));
  EXPECT_FALSE(matches(regex("(?i)abc"), "abd"));
}

}  // namespace
}  // namespace deepinfer::grammar
