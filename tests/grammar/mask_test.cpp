#include "grammar/mask.h"

#include <gtest/gtest.h>

#include <random>

#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;

const std::shared_ptr<const Vocabulary>& words() {
  static const auto kWords = vocabulary_of({"ab",
                                            "abc",
                                            "aab",
                                            "12",
                                            "1.",
                                            ".5",
                                            "中文",
                                            "\xE4\xB8",
                                            "\xAD\xE6",
                                            "  ",
                                            "   \n",
                                            " \"",
                                            "\",",
                                            "\": \"",
                                            "\"}",
                                            "{\"",
                                            "\\n",
                                            "\\u00",
                                            "e\\",
                                            "ing",
                                            "running",
                                            " +",
                                            "(a",
                                            "))",
                                            "])",
                                            "ab",
                                            "\n\n",
                                            ": {",
                                            "true",
                                            "null",
                                            "a.txt",
                                            "txt",
                                            ".tx",
                                            "\xC3",
                                            "\xC3\xA9t",
                                            "x\xE4",
                                            "\x80z",
                                            "éa",
                                            "\xF0\x9F",
                                            "a\xFF",
                                            std::string(40, '-'),
                                            std::string(36, '-') + "b-c",
                                            std::string(36, '-') + "\",",
                                            std::string(33, 'a'),
                                            "abcabcabcabcabc",
                                            "\u2003",
                                            "b-c",
                                            "%20"});
  return kWords;
}

/// Walks random allowed tokens and compares every mask on the way with brute force.
void expect_exact_masks(GrammarKind kind, std::string_view text, std::uint32_t seed) {
  const auto grammar = try_compile(kind, text);
  ASSERT_TRUE(grammar.has_value()) << text << ": " << grammar.error().message;
  std::mt19937 random(seed);
  for (int run = 0; run < 6; ++run) {
    Matcher matcher = matcher_of(*grammar, words());
    std::vector<std::uint32_t> mask(words()->mask_words());
    for (int step = 0; step < 20; ++step) {
      matcher.fill_mask(mask);
      ASSERT_EQ(mask, brute_force_mask(matcher, *words())) << text << " run " << run << " step " << step << " seed " << seed;
      std::vector<TokenId> allowed;
      for (std::int32_t id = 1; id < words()->num_rows(); ++id) {
        if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) {
          allowed.push_back(TokenId{id});
        }
      }
      if (allowed.empty()) {
        EXPECT_TRUE(matcher.can_end()) << "a dead end in " << text;
        break;
      }
      ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()]));
    }
  }
}

TEST(Mask, EqualsBruteForceForRegularExpressions) {
  for (const char* pattern : {"[^abc]+",
                              ".*\\.txt",
                              "(\\S+\\s+){0,49}\\S+",
                              "\\p{L}+",
                              "([^,\n]*,){2}[^,\n]*",
                              "\\w{1,15}",
                              "[a-z]{1,40}",
                              "[\\s\\S]{0,50}!",
                              "([^:]+:[a-f0-9]+|[a-f0-9]{32})",
                              "((a{1,10}){1,10}){1,10}",
                              "(a|b)*a(a|b){3}",
                              "[^-]*(--[^-]+)*",
                              "(?!.*tx)[a-z.]+",
                              "x|[-a]{35,60}",
                              "[a-z ]*ing",
                              "(ab|abc)*c?",
                              "[0-9]+\\.[0-9]{1,3}",
                              ".{0,4}",
                              "[中文]*a",
                              "(?!ab)[ab]{1,5}",
                              "\\s{0,3}x?",
                              "-{0,50}(b-c)?",
                              "-{30,90}[^-]*\",x",
                              "[^\"]*\"}"}) {
    expect_exact_masks(GrammarKind::regex, pattern, 11);
  }
}

TEST(Mask, EqualsBruteForceForGrammars) {
  for (const char* text :
       {"root ::= \"(\" root \")\" root | \"\"", "root ::= expr\nexpr ::= expr \" + \" expr | [a-c]+ | \"(\" expr \")\"",
        "root ::= \"{\" ws (pair (ws \",\" ws pair)*)? ws \"}\"\npair ::= str ws \":\" ws val\nval ::= str | root\nstr ::= \"\\\"\" "
        "[^\"\\\\]* \"\\\"\"\nws ::= [ \\n]*"}) {
    expect_exact_masks(GrammarKind::ebnf, text, 12);
  }
}

TEST(Mask, EqualsBruteForceForStringsOfSchemas) {
  for (
      const char* schema :
      {R"({"type":"string","pattern":"^(?:\\S+\\s+){0,19}\\S+$","maxLength":60})", R"({"type":"string","pattern":"[0-9]{2}-[a-z]"})",
       R"({"type":"string","pattern":"^[^a]*$","minLength":2,"maxLength":50})", R"({"type":"string","maxLength":40})",
       R"({"type":"string","not":{"enum":["ab","abc","running"]}})", R"({"type":"string","pattern":"ing","maxLength":12})",
       R"({"type":"object","patternProperties":{"^a.*$":{"type":"null"}},"additionalProperties":{"type":"string","pattern":"^\\w+$"}})",
       R"({"type":"array","items":{"type":"string","format":"email"},"maxItems":3})",
       R"({"type":"array","items":{"anyOf":[{"type":"string","pattern":"^[-a]+b?-c?$","maxLength":70},{"type":"string","minLength":40}]}})",
       R"({"type":"object","oneOf":[{"patternProperties":{"a":{"type":"null"}},"required":["b"]},{"additionalProperties":{"pattern":"x"}}]})",
       R"({"type":"array","items":{"type":"string","format":"hostname"},"maxItems":3})"}) {
    expect_exact_masks(GrammarKind::json_schema, schema, 13);
  }
}

TEST(Mask, ControlTokensAreAllowedOnlyWhereNamed) {
  const auto grammar = try_compile(GrammarKind::ebnf, "root ::= [^]{0,9} Token(1) \"x\"");
  ASSERT_TRUE(grammar.has_value());
  Matcher matcher = matcher_of(*grammar, words());
  std::vector<std::uint32_t> mask(words()->mask_words());
  matcher.fill_mask(mask);
  EXPECT_EQ(mask[0] & 3, 2U);
  ASSERT_TRUE(matcher.accept(TokenId{1}));
  matcher.fill_mask(mask);
  EXPECT_EQ(mask[0] & 3, 0U);
}

TEST(Matcher, RollbackRestoresEverythingEvenOverAnEnd) {
  const auto grammar = try_compile(GrammarKind::regex, "(ab)*");
  ASSERT_TRUE(grammar.has_value());
  Matcher matcher = matcher_of(*grammar, words());
  std::vector<std::uint32_t> before(words()->mask_words());
  std::vector<std::uint32_t> after(words()->mask_words());
  matcher.fill_mask(before);
  ASSERT_TRUE(matcher.accept(TokenId{2 + 'a'}));
  ASSERT_FALSE(matcher.accept(kEnd));
  ASSERT_TRUE(matcher.accept(TokenId{2 + 'b'}));
  ASSERT_TRUE(matcher.accept(kEnd));
  EXPECT_TRUE(matcher.has_ended());
  EXPECT_TRUE(matcher.accept(TokenId{2 + 'z'}));  // behind the end everything is taken and ignored
  matcher.rollback(4);
  matcher.fill_mask(after);
  EXPECT_EQ(before, after);
  EXPECT_FALSE(matcher.has_ended());
}

TEST(Matcher, ForcedTextIsWhatEveryContinuationBeginsWith) {
  const auto grammar = try_compile(GrammarKind::regex, "prefix-(abc|abd)z");
  ASSERT_TRUE(grammar.has_value());
  Matcher matcher = matcher_of(*grammar, words());
  EXPECT_EQ(matcher.forced(), "prefix-ab");
}

TEST(Matcher, TheGrammarStartsBehindItsTrigger) {
  const auto grammar = try_compile(GrammarKind::regex, "x");
  ASSERT_TRUE(grammar.has_value());
  const auto byte = [](char c) { return TokenId{2 + c}; };
  Matcher matcher(*grammar, words(), {.end_ids = {kEnd}, .trigger_ids = {byte('a'), byte('a'), byte('b')}, .bound_id = byte('!')});
  for (const char c : std::string_view("zaaa")) {
    ASSERT_TRUE(matcher.accept(byte(c)));
  }
  ASSERT_TRUE(matcher.accept(byte('b')));  // "aaab" ends in the trigger
  EXPECT_FALSE(matcher.accept(byte('z')));
  EXPECT_TRUE(matcher.accept(byte('x')));
  matcher.rollback(6);
  ASSERT_TRUE(matcher.accept(byte('!')));
  EXPECT_FALSE(matcher.accept(byte('b')));
  EXPECT_TRUE(matcher.accept(byte('a')));
  EXPECT_TRUE(matcher.accept(byte('a')));
  EXPECT_TRUE(matcher.accept(byte('b')));
  EXPECT_TRUE(matcher.accept(byte('x')));
  EXPECT_TRUE(matcher.is_finished());
}

TEST(Matcher, CachesThatOutgrowTheirBoundAreRebuiltWithoutATrace) {
  const CompileJob job{.kind = GrammarKind::regex, .text = "(a|b)*a(a|b){9}", .options = {}, .limits = {.run = {.states = 200}}};
  const auto grammar = compile(job);
  ASSERT_TRUE(grammar.has_value());
  Matcher matcher = matcher_of(*grammar, words());
  std::vector<std::uint32_t> mask(words()->mask_words());
  std::mt19937 random(5);
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    const char c = random() % 2 == 0 ? 'a' : 'b';
    text.push_back(c);
    ASSERT_TRUE(matcher.accept(TokenId{2 + c}));
    matcher.fill_mask(mask);
    ASSERT_EQ(matcher.can_end(), text.size() > 9 && text[text.size() - 10] == 'a') << i;
  }
}

}  // namespace
}  // namespace deepinfer::grammar
