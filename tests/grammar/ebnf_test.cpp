#include "grammar/ebnf.h"

#include <gtest/gtest.h>

#include "support.h"

namespace deepinfer::grammar {
namespace {

using testing::matches;
using testing::try_compile;

std::shared_ptr<const CompiledGrammar> ebnf(std::string_view text) {
  auto out = try_compile(GrammarKind::ebnf, text);
  EXPECT_TRUE(out.has_value()) << text << ": " << (out ? "" : out.error().message);
  return out.value_or(nullptr);
}

CompileError ebnf_error(std::string_view text) {
  auto out = try_compile(GrammarKind::ebnf, text);
  EXPECT_FALSE(out.has_value()) << text;
  return out ? CompileError{} : out.error();
}

TEST(Ebnf, RecursionOfEveryShapeIsFine) {
  const auto left = ebnf("root ::= x\nx ::= y \"1\" | \"0\"\ny ::= x \"2\" | \"3\"");
  EXPECT_TRUE(matches(left, "02121"));
  EXPECT_FALSE(matches(left, "0212"));
  const auto nested = ebnf("root ::= \"a\" root \"b\" | \"\"");
  EXPECT_TRUE(matches(nested, "aaabbb"));
  EXPECT_FALSE(matches(nested, "aabbb"));
  const auto unit = ebnf("root ::= a\na ::= b | \"\"\nb ::= a | \"x\"");
  EXPECT_TRUE(matches(unit, "x"));
  EXPECT_TRUE(matches(unit, ""));
  EXPECT_FALSE(matches(unit, "xx"));
}

TEST(Ebnf, CountedLoopsOfWhatHasNoTextAreNotEntered) {
  const auto grammar = ebnf("root ::= \"x\" | [^x]{1,3} r \"y\"\nr ::= r{1,2}");
  EXPECT_TRUE(matches(grammar, "x"));
  Matcher matcher = testing::matcher_of(grammar, testing::vocabulary_of({}));
  EXPECT_FALSE(matcher.accept(TokenId{2 + 'a'}));
  EXPECT_EQ(ebnf_error("root ::= \"a\" root{2,3}").code, ErrorCode::unsatisfiable);
  const auto optional = ebnf("root ::= \"a\" root{0,2}");
  EXPECT_TRUE(matches(optional, "aaa"));
}

TEST(Ebnf, AmbiguityDoesNotMultiplyWork) {
  const auto grammar = ebnf("root ::= root root | \"a\"");
  EXPECT_TRUE(matches(grammar, std::string(200, 'a')));
  EXPECT_FALSE(matches(grammar, ""));
}

TEST(Ebnf, GroupsWithRecursionAreCounted) {
  const auto grammar = ebnf("root ::= (\"<\" root \">\"){2,3} | \"x\"");
  EXPECT_TRUE(matches(grammar, "<x><x>"));
  EXPECT_TRUE(matches(grammar, "<x><x><x>"));
  EXPECT_FALSE(matches(grammar, "<x>"));
  EXPECT_FALSE(matches(grammar, "<x><x><x><x>"));
  const auto open = ebnf("root ::= (\"<\" root? \">\"){2,}");
  EXPECT_TRUE(matches(open, "<><><><>"));
  EXPECT_FALSE(matches(open, "<>"));
}

TEST(Ebnf, TagsInFreeTextHandOverToTheirRules) {
  const auto grammar = ebnf("root ::= TagDispatch((\"<n>\", num), (\"<w>\", word))\nnum ::= [0-9]+ \"</n>\"\nword ::= [a-z]+ \"</w>\"");
  EXPECT_TRUE(matches(grammar, "free < text"));
  EXPECT_TRUE(matches(grammar, "one <n>12</n> two <w>ab</w>"));
  EXPECT_FALSE(matches(grammar, "one <n>x</n>"));
  EXPECT_FALSE(matches(grammar, "one <n>1"));
}

TEST(Ebnf, ErrorsNameTheRuleAndThePlace) {
  const CompileError undefined = ebnf_error("root ::= \"a\"\n  | missing");
  EXPECT_EQ(undefined.code, ErrorCode::syntax);
  EXPECT_NE(undefined.message.find("missing"), std::string::npos);
  EXPECT_EQ(undefined.line, 2U);
  EXPECT_EQ(undefined.column, 5U);
  for (const char* text : {"root ::= \"a\"\nroot ::= \"b\"", "start ::= \"a\"", "root ::= [a-z", "root ::= (\"a\"", "root ::= \"a\"{4,2}",
                           "root ::= \"a\"{,4}", "root ::= \"a\"++", "root ::= [z-a]", "root ::= [\\d]", "", "root = \"a\"",
                           "root ::= \"\\U00110000\"", "root ::= \"a"}) {
    EXPECT_EQ(ebnf_error(text).code, ErrorCode::syntax) << text;
  }
  EXPECT_EQ(ebnf_error("root ::= \"a\" root").code, ErrorCode::unsatisfiable);
  EXPECT_EQ(ebnf_error("root(max_tokens=3) ::= \"a\"").code, ErrorCode::unsupported);
  EXPECT_EQ(ebnf_error("root ::= Substring(\"abc\")").code, ErrorCode::unsupported);
}

TEST(Ebnf, HostileNestingIsALimitNotACrash) {
  EXPECT_EQ(ebnf_error("root ::= " + std::string(100000, '(')).code, ErrorCode::limit);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) {
    chain += "r" + std::to_string(i) + " ::= \"a\"? r" + std::to_string(i + 1) + "\n";
  }
  chain += "r5000 ::= \"z\"\n";
  EXPECT_TRUE(matches(ebnf(chain), "aaz"));
}

}  // namespace
}  // namespace deepinfer::grammar
