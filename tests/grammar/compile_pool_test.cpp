#include "grammar/compile_pool.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <thread>
#include <string>

#include "grammar/matcher.h"
#include "support.h"

namespace deepinfer::grammar {
namespace {

using namespace std::chrono_literals;

CompositeJob regex_job(std::string pattern) {
  return {.body = CompositeJob::Body{.kind = GrammarKind::regex, .text = std::move(pattern)}};
}

/// A schema whose compile takes seconds unless it is called off.
CompositeJob slow_job(int salt) {
  std::string schema = R"({"$defs":{"n0":{"type":"string"})";
  for (int i = 1; i < 40; ++i) {
    const std::string before = R"({"$ref":"#/$defs/n)" + std::to_string(i - 1) + R"("})";
    schema += R"(,"n)" + std::to_string(i) + R"(":{"oneOf":[{"properties":{"a":)" + before + R"(}},{"properties":{"b":)" + before + "}}]}";
  }
  schema += R"(},"$ref":"#/$defs/n39","title":")" + std::to_string(salt) + "\"}";
  return {.body = CompositeJob::Body{.kind = GrammarKind::json_schema, .text = std::move(schema)}};
}

struct Waited {
  std::binary_semaphore due{0};
  std::optional<CompileResult> result;

  CompilePool::Done done() {
    return [this](CompileResult&& compiled) {
      result = std::move(compiled);
      due.release();
    };
  }
};

TEST(CompilePool, GivesTheGrammarAndRemembersIt) {
  CompilePool pool(testing::vocabulary_of({}), {});
  EXPECT_FALSE(pool.find(regex_job("ab")));
  Waited waited;
  const auto ticket = pool.submit(regex_job("ab"), waited.done());
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(waited.due.try_acquire_for(10s));
  ASSERT_TRUE(waited.result->has_value());
  const auto known = pool.find(regex_job("ab"));
  ASSERT_TRUE(known && *known);
  EXPECT_EQ((*known)->get(), (*waited.result)->get());
  EXPECT_GT(pool.cache_bytes(), 0U);
}

TEST(CompilePool, RemembersErrorsAndTellsJobsApart) {
  CompilePool pool(testing::vocabulary_of({}), {});
  Waited waited;
  const auto ticket = pool.submit(regex_job("("), waited.done());
  ASSERT_TRUE(waited.due.try_acquire_for(10s));
  EXPECT_EQ(waited.result->error().code, ErrorCode::syntax);
  EXPECT_EQ((*pool.find(regex_job("("))).error().code, ErrorCode::syntax);

  CompositeJob other = regex_job("(");
  other.reasoning_end_ids = {TokenId{3}};
  EXPECT_FALSE(pool.find(other));
  other = {.tools = {{.name = "(", .parameters = "", .is_strict = true}}, .tool_use = ToolUse::required};
  CompositeJob twin = {.tools = {{.name = "(", .parameters = "", .is_strict = false}}, .tool_use = ToolUse::required};
  EXPECT_NE(cache_key(other), cache_key(twin));
}

TEST(CompilePool, ACancelledJobFreesItsThread) {
  CompilePool pool(testing::vocabulary_of({}), {.num_threads = 1});
  Waited slow;
  {
    const auto ticket = pool.submit(slow_job(1), slow.done());
    std::this_thread::sleep_for(20ms);
  }
  Waited quick;
  const auto ticket = pool.submit(regex_job("a"), quick.done());
  EXPECT_TRUE(quick.due.try_acquire_for(3s));
}

TEST(CompilePool, AFullQueueRefusesAndDestructionCallsEverythingOff) {
  Waited waited;
  const auto begin = std::chrono::steady_clock::now();
  {
    CompilePool pool(testing::vocabulary_of({}), {.num_threads = 1, .max_waiting = 2});
    std::vector<CompileTicket> tickets;
    bool was_refused = false;
    for (int i = 0; i < 6; ++i) {
      auto ticket = pool.submit(slow_job(i), [](CompileResult&&) {});
      was_refused = was_refused || !ticket;
      if (ticket) {
        tickets.push_back(*std::move(ticket));
      }
    }
    EXPECT_TRUE(was_refused);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
}

TEST(CompilePool, AJobThatWaitedTooLongIsATimeout) {
  CompilePool pool(testing::vocabulary_of({}), {.max_delay = 0ms});
  Waited waited;
  const auto ticket = pool.submit(regex_job("ab"), waited.done());
  ASSERT_TRUE(waited.due.try_acquire_for(10s));
  EXPECT_EQ(waited.result->error().code, ErrorCode::timeout);
  EXPECT_FALSE(pool.find(regex_job("ab")));
}

TEST(CompilePool, CountsHitsAndMisses) {
  CompilePool pool(testing::vocabulary_of({}), {});
  EXPECT_FALSE(pool.find(regex_job("ab")));
  for (int i = 0; i < 2; ++i) {
    Waited waited;
    const auto ticket = pool.submit(regex_job("ab"), waited.done());
    ASSERT_TRUE(waited.due.try_acquire_for(10s));
  }
  EXPECT_TRUE(pool.find(regex_job("ab")));
  EXPECT_EQ(pool.counters().num_hits, 2U);
  EXPECT_EQ(pool.counters().num_misses, 1U);
  EXPECT_EQ(pool.counters().cache_bytes, pool.cache_bytes());
}

/// A matcher that reads a while leaves a runtime that is far larger than its grammar.
TEST(CompilePool, WarmRuntimesCountInTheCachesBytesAndAreBounded) {
  const auto vocabulary = testing::vocabulary_of({});
  constexpr std::size_t kCacheBytes = 2'000'000;
  CompilePool pool(vocabulary, {.num_threads = 1, .cache_bytes = kCacheBytes});
  std::size_t most = 0;
  for (int i = 0; i < 30; ++i) {
    Waited waited;
    const auto ticket = pool.submit(regex_job("(a|b)*a(a|b){" + std::to_string(i + 6) + "}"), waited.done());
    ASSERT_TRUE(waited.due.try_acquire_for(10s));
    const std::size_t before = pool.cache_bytes();
    {
      Matcher matcher = testing::matcher_of(waited.result->value(), vocabulary);
      EXPECT_LE(pool.cache_bytes(), before) << "a runtime in use is its matcher's";
      std::vector<std::uint32_t> mask(vocabulary->mask_words());
      for (int k = 0; k < 200; ++k) {
        ASSERT_TRUE(matcher.accept(TokenId{2 + (k * k % 7 < 3 ? 'a' : 'b')}));
        matcher.fill_mask(mask);
      }
    }
    EXPECT_LE(pool.cache_bytes(), kCacheBytes) << "entries and runtimes together";
    most = std::max(most, pool.cache_bytes());
  }
  EXPECT_GT(most, kCacheBytes / 2);
}

TEST(CompilePool, TheCacheStaysWithinItsBytes) {
  CompilePool pool(testing::vocabulary_of({}), {.num_threads = 1, .cache_bytes = 30'000});
  for (int i = 0; i < 60; ++i) {
    Waited waited;
    const auto ticket = pool.submit(regex_job("a{" + std::to_string(i + 1) + "}"), waited.done());
    ASSERT_TRUE(waited.due.try_acquire_for(10s));
    EXPECT_LE(pool.cache_bytes(), 30'000U);
  }
}

}  // namespace
}  // namespace deepinfer::grammar
