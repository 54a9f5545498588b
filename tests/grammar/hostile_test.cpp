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
