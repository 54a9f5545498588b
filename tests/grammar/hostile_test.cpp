// Input made to hurt: every one ends in a grammar or in an error that says why, soon, within the bounds of time and memory.
#include <gtest/gtest.h>

#include <malloc.h>

#include <chrono>
#include <semaphore>

#include "grammar/compile_pool.h"
#include "support.h"
#include "support/hostile_input.h"

namespace deepinfer::grammar {
namespace {

using namespace testing;
using test::doubling_schema;
using test::repeated;
using test::resident_bytes;
using namespace std::chrono_literals;

struct Outcome {
  Compiled<std::shared_ptr<const CompiledGrammar>> result;
  std::chrono::steady_clock::duration took{};
};

Outcome timed(GrammarKind kind, std::string_view text, Limits limits = {}) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = compile({.kind = kind, .text = text, .options = {}, .limits = limits});
  return {.result = std::move(result), .took = std::chrono::steady_clock::now() - begin};
}

/// Follows as much of `text` as fits, with a mask before every byte.
void walk(const std::shared_ptr<const CompiledGrammar>& grammar, std::string_view text) {
  static const auto kBytes = vocabulary_of({"aa", "aaaa", "aaaaaaaaaaaaaaaa"});
  Matcher matcher = matcher_of(grammar, kBytes);
  std::vector<std::uint32_t> mask(kBytes->mask_words());
  for (const char byte : text) {
    matcher.fill_mask(mask);
    if (!matcher.accept(TokenId{2 + static_cast<unsigned char>(byte)})) {
      return;
    }
  }
}

TEST(Hostile, CatastrophicRegularExpressionsAreOrdinaryOnes) {
  const std::string nested = repeated("(", 100) + "a" + repeated(")+", 100);
  for (const std::string& pattern :
       {std::string("(a+)+b"), std::string("(a|a)*b"), std::string("(a|aa)+$"), std::string("([a-z]+)*[0-9]"), std::string("(.*a){25}"),
        std::string("(a?){60}a{60}"), std::string("((a{1,100}){1,100}){1,100}"), std::string("(a*)*(a*)*(a*)*b"), std::string("(a|b)*a(a|b){60}"),
        std::string("(?=(a+)+$)a*"), nested, std::string("a{1,2147483647}b{0,2147483647}")}) {
    SCOPED_TRACE(pattern.substr(0, 60));
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = timed(GrammarKind::regex, pattern);
    ASSERT_TRUE(outcome.result.has_value()) << outcome.result.error().message;
    walk(*outcome.result, repeated("a", 300));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  }
}

/// Counts that leave gaps inside counts, and lookaheads side by side: sets of places that grow with every character.
TEST(Hostile, AMaskThatNeedsTooMuchEndsTheRequestNotTheStep) {
  for (const char* pattern : {"((a{1,50}b?){1,50}){1,50}", "(((a{3,50}b?){3,50}c?){3,50}d?){3,50}", "(.{0,30}a.{0,30}b.{0,30}){3,9}",
                              "(?=.*a.{0,40}b)(?=.*c.{0,40}d)(?=.*e.{0,40}f).{0,200}", "((a{2,3}b{0,4}){5,70}|(a{3,4}b?){4,60}|(ab?a?){9,80}){2,30}",
                              "(a.{3,9}|b.{2,7}|.c.{5,8}){10,60}", "([^a]{0,9}a){9,99}b[^c]{9,99}"}) {
    SCOPED_TRACE(pattern);
    const Outcome outcome = timed(GrammarKind::regex, pattern);
    ASSERT_TRUE(outcome.result.has_value()) << outcome.result.error().message;
    const auto tokens = vocabulary_of({"aa", "aaa", "aaaaaaaa", "abab", "a b", "cde", "bc", "def"});
    Matcher matcher = matcher_of(*outcome.result, tokens);
    std::vector<std::uint32_t> mask(tokens->mask_words());
    auto longest = std::chrono::steady_clock::duration{};
    for (const char byte : repeated("aaabaaaabaabaaabcdef", 6)) {
      const auto begin = std::chrono::steady_clock::now();
      matcher.fill_mask(mask);
      longest = std::max(longest, std::chrono::steady_clock::now() - begin);
      if (matcher.is_exhausted() || !matcher.accept(TokenId{2 + static_cast<unsigned char>(byte)})) {
        break;
      }
    }
    EXPECT_LT(longest, 500ms);  // 50 ms of processor time on a loaded machine
  }
}

/// Whether any text fits is a search of its own here, over many thousands of expressions.
TEST(Hostile, ASearchForATextStopsWithTheBudget) {
  const std::string schema =
      R"({"allOf":[{"pattern":"^([a-z][0-9])+$"},{"pattern":"((c1d3g3).{4,8}){6,6}"},{"pattern":"(t|8){10,10}$"},)"
      R"({"anyOf":[{"not":{"pattern":"^([a-z][0-9])+$"}},{"not":{"pattern":"^((c1d3g3).{4,8}){}$"}}]}],"minLength":100})";
  const Outcome whole = timed(GrammarKind::json_schema, schema);
  EXPECT_TRUE(whole.result.has_value() || whole.result.error().code == ErrorCode::unsatisfiable || whole.result.error().code == ErrorCode::limit)
      << whole.result.error().message;
  const Outcome late = timed(GrammarKind::json_schema, schema, {.compile_time = 5ms});
  EXPECT_LT(late.took, std::max<std::chrono::steady_clock::duration>(whole.took / 2, 100ms));
  if (whole.took > 200ms) {
    ASSERT_FALSE(late.result.has_value());
    EXPECT_EQ(late.result.error().code, ErrorCode::timeout) << late.result.error().message;
  }
}

TEST(Hostile, DepthIsALimit) {
  constexpr std::size_t kDeep = 100'000;
  const std::string groups = repeated("(", kDeep) + "a" + repeated(")", kDeep);
  EXPECT_EQ(timed(GrammarKind::regex, groups).result.error().code, ErrorCode::limit);
  EXPECT_EQ(timed(GrammarKind::ebnf, "root ::= " + repeated("(", kDeep) + "\"a\"" + repeated(")", kDeep)).result.error().code,
            ErrorCode::limit);
  for (const std::string_view open : {R"({"items":)", R"({"not":)", R"({"anyOf":[)", R"({"properties":{"a":)"}) {
    const std::string closing = open.ends_with("[") ? "]}" : open.find("properties") != std::string_view::npos ? "}}" : "}";
    const Outcome outcome = timed(GrammarKind::json_schema, repeated(open, 10'000) + "{}" + repeated(closing, 10'000));
    ASSERT_FALSE(outcome.result.has_value()) << open;
    EXPECT_EQ(outcome.result.error().code, ErrorCode::limit) << outcome.result.error().message;
    EXPECT_LT(outcome.took, 2s);
  }
}

TEST(Hostile, ExponentialSchemasEndInTimeAndMemory) {
  for (const char* combine : {"allOf", "anyOf", "oneOf"}) {
    const Outcome outcome = timed(GrammarKind::json_schema, doubling_schema(combine), {.compile_time = 500ms, .compiled_bytes = 16U << 20});
    EXPECT_LT(outcome.took, 5s) << combine;
    if (!outcome.result) {
      const ErrorCode code = outcome.result.error().code;
      EXPECT_TRUE(code == ErrorCode::timeout || code == ErrorCode::limit || code == ErrorCode::unsupported)
          << outcome.result.error().message;
    }
  }
  std::string names;
  for (int i = 0; i < 30; ++i) {
    const std::string name = "p" + std::to_string(i);
    names += (i == 0 ? "" : ",") + std::string(R"({"required":[")") + name + R"("]})";
  }
  const Outcome optional = timed(GrammarKind::json_schema, R"({"type":"object","anyOf":[)" + names + "]}", {.compile_time = 1s});
  EXPECT_LT(optional.took, 5s);
}

TEST(Hostile, TenMegabytesAreRefusedAtOnce) {
  const std::string filler = R"("description":")" + std::string(10U << 20, 'x') + '"';
  for (const auto& [kind, text] : {std::pair(GrammarKind::json_schema, "{" + filler + "}"),
                                   std::pair(GrammarKind::regex, std::string(10U << 20, 'a')),
                                   std::pair(GrammarKind::ebnf, "root ::= \"" + std::string(10U << 20, 'a') + "\"")}) {
    const Outcome outcome = timed(kind, text);
    ASSERT_FALSE(outcome.result.has_value());
    EXPECT_EQ(outcome.result.error().code, ErrorCode::limit);
    EXPECT_LT(outcome.took, 200ms);
  }
}

TEST(Hostile, ABudgetThatIsExceededIsAnErrorThatSaysSo) {
  const Outcome late = timed(GrammarKind::json_schema, doubling_schema("oneOf"), {.compile_time = 1ms});
  ASSERT_FALSE(late.result.has_value());
  EXPECT_EQ(late.result.error().code, ErrorCode::timeout);
  EXPECT_LT(late.took, 500ms);
  std::string names;
  for (int i = 0; i < 20'000; ++i) {
    names += (i == 0 ? "\"" : ",\"") + std::to_string(i * 7919) + "\"";
  }
  const Outcome large = timed(GrammarKind::json_schema, R"({"enum":[)" + names + "]}", {.compiled_bytes = 100'000});
  ASSERT_FALSE(large.result.has_value());
  EXPECT_EQ(large.result.error().code, ErrorCode::limit) << large.result.error().message;
}

/// Through the pool that the server has: memory stays where it was after the first few hundred.
TEST(Hostile, ThousandsOfDistinctSchemasLeaveMemoryWhereItWas) {
  constexpr std::size_t kCacheBytes = 4U << 20;
  CompilePool pool(vocabulary_of({}), {.num_threads = 1, .cache_bytes = kCacheBytes});
  std::size_t early = 0;
  for (int i = 0; i < 2500; ++i) {
    const std::string name = "member" + std::to_string(i);
    std::binary_semaphore due{0};
    const auto ticket = pool.submit(
        {.body = CompositeJob::Body{.kind = GrammarKind::json_schema,
                                    .text = R"({"type":"object","properties":{")" + name + R"(":{"type":"string","maxLength":)" +
                                            std::to_string(i) + R"(}},"required":[")" + name + "\"]}"}},
        [&due](CompileResult&& compiled) {
          EXPECT_TRUE(compiled.has_value());
          due.release();
        });
    ASSERT_TRUE(due.try_acquire_for(10s));
    ASSERT_LE(pool.cache_bytes(), kCacheBytes);
    if (i == 1000) {
      malloc_trim(0);
      early = resident_bytes();
    }
  }
  malloc_trim(0);
  EXPECT_LT(resident_bytes(), early + (8U << 20));
}

}  // namespace
}  // namespace deepinfer::grammar
