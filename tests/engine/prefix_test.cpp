// Reuse of cached prefixes with the fake model, exact mode: a hit gives the tokens of a cold start, whatever its length.
#include <gtest/gtest.h>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using scheduler::PrefixMiss;

engine::GenerationRequest greedy(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = max_tokens, .ignore_eos = true};
}

/// The first `num_common` tokens of `base`, then others.
std::vector<TokenId> variant(std::mt19937_64& random, const std::vector<TokenId>& base, std::size_t num_common, std::size_t size) {
  std::vector<TokenId> out(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(num_common));
  while (out.size() < size) {
    const TokenId token{static_cast<std::int32_t>(2 + random() % (kVocab - 2))};
    if (out.size() != num_common || num_common >= base.size() || token != base[num_common]) {
      out.push_back(token);
    }
  }
  return out;
}

Reply run_alone_in(Harness& harness, const engine::GenerationRequest& request) {
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  return harness.reply(id);
}

TEST(PrefixReuse, AHitIsAColdStartForEveryCommonLengthAndChunking) {
  std::mt19937_64 random(31);
  std::int64_t num_cached = 0;
  for (std::size_t num_common = 0; num_common <= 40; ++num_common) {
    for (const std::int32_t budget : {3, 8, 64}) {
      Harness harness({.max_requests = 3, .max_batched_tokens = budget, .num_extra_slots = 4, .prefix_cache = true});
      const auto base = random_prompt(random, 37);
      run_alone_in(harness, greedy(base, 1));
      const auto prompt = variant(random, base, std::min<std::size_t>(num_common, 37), num_common + 5);
      for (int turn = 0; turn < 3; ++turn) {
        const Reply reply = run_alone_in(harness, greedy(prompt, 8));
        ASSERT_EQ(reply.tokens, alone(greedy(prompt, 8)).tokens) << num_common << " common, budget " << budget;
        ASSERT_EQ(reply.num_cached_tokens % 4, 0);
        ASSERT_LT(reply.num_cached_tokens, static_cast<std::int32_t>(prompt.size()));
        num_cached += reply.num_cached_tokens;
        if (turn == 2) {
          EXPECT_EQ(reply.num_cached_tokens, static_cast<std::int32_t>(prompt.size() - 1) / 4 * 4) << "the third time all of it is there";
          EXPECT_EQ(reply.prefix_miss, PrefixMiss::none);
        }
      }
    }
  }
  EXPECT_GT(num_cached, 1000);
}

TEST(PrefixReuse, ACommonBeginningIsFoundFromTheThirdRequestOn) {
  std::mt19937_64 random(32);
  Harness harness({.prefix_cache = true});
  const auto base = random_prompt(random, 30);
  const auto second = variant(random, base, 22, 40);
  const auto third = variant(random, base, 22, 35);
  EXPECT_EQ(run_alone_in(harness, greedy(base, 1)).prefix_miss, PrefixMiss::diverged);
  const Reply before = run_alone_in(harness, greedy(second, 1));
  EXPECT_EQ(before.num_cached_tokens, 0) << "the blocks are there, the state behind them is kept from now on";
  EXPECT_EQ(before.first_prefix_miss, 20);
  const Reply hit = run_alone_in(harness, greedy(third, 5));
  EXPECT_EQ(hit.num_cached_tokens, 20);
  EXPECT_EQ(hit.tokens, alone(greedy(third, 5)).tokens);
}

TEST(PrefixReuse, AConversationGoesOnBehindItsLastFullBlock) {
  std::mt19937_64 random(33);
  for (const std::int32_t overlap_depth : {0, 1}) {
    Harness harness({.max_requests = 2, .overlap_depth = overlap_depth, .prefix_cache = true});
    std::vector<TokenId> text = random_prompt(random, 10);
    for (int turn = 0; turn < 6; ++turn) {
      const auto num_known = static_cast<std::int32_t>(text.size());
      const auto request = greedy(text, 13);
      const Reply reply = run_alone_in(harness, request);
      ASSERT_EQ(reply.tokens, alone(request).tokens);
      if (turn > 0) {
        // What was computed of the last turn ends one token before its end.
        EXPECT_EQ(reply.num_cached_tokens, (num_known - 4) / 4 * 4) << "turn " << turn << ", overlap " << overlap_depth;
      }
      text.insert(text.end(), reply.tokens.begin(), reply.tokens.end());
      const auto question = random_prompt(random, 3);
      text.insert(text.end(), question.begin(), question.end());
    }
  }
}

TEST(PrefixReuse, SaltsKeepTenantsApart) {
  std::mt19937_64 random(34);
  Harness harness({.prefix_cache = true});
  engine::GenerationRequest request = greedy(random_prompt(random, 20), 1);
  request.cache_salt = "one";
  run_alone_in(harness, request);
  EXPECT_EQ(run_alone_in(harness, request).num_cached_tokens, 16);
  request.cache_salt = "two";
  EXPECT_EQ(run_alone_in(harness, request).num_cached_tokens, 0);
  request.cache_salt.clear();
  EXPECT_EQ(run_alone_in(harness, request).num_cached_tokens, 0);
}

TEST(PrefixReuse, WhatNobodyUsedLongestIsEvictedFirst) {
  std::mt19937_64 random(35);
  // Room for three prompts of five blocks with one token of reply each, and slots for their states.
  Harness harness({.max_requests = 1, .max_model_len = 60, .num_blocks = 18, .num_extra_slots = 6, .prefix_cache = true});
  std::vector<engine::GenerationRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(greedy(random_prompt(random, 21), 1));
  }
  for (const int i : {0, 1, 2, 0, 3}) {  // 1 is the one that makes room
    run_alone_in(harness, requests[static_cast<std::size_t>(i)]);
  }
  EXPECT_EQ(run_alone_in(harness, requests[0]).num_cached_tokens, 20);
  EXPECT_EQ(run_alone_in(harness, requests[2]).num_cached_tokens, 20);
  const Reply evicted = run_alone_in(harness, requests[1]);
  EXPECT_LT(evicted.num_cached_tokens, 20);
  EXPECT_EQ(evicted.prefix_miss, PrefixMiss::evicted);
}

TEST(PrefixReuse, CountsTokensAndReasons) {
  std::mt19937_64 random(36);
  Harness harness({.prefix_cache = true});
  const auto request = greedy(random_prompt(random, 21), 1);
  run_alone_in(harness, request);
  run_alone_in(harness, request);
  run_alone_in(harness, greedy(random_prompt(random, 3), 1));
  const engine::EngineStats stats = harness.engine.stats();
  EXPECT_EQ(stats.num_prompt_tokens, 45);
  EXPECT_EQ(stats.num_cached_tokens, 20);
  EXPECT_EQ(stats.num_prefill_tokens, 25);
  const auto count = [&stats](PrefixMiss miss) { return stats.num_prefix_misses[static_cast<std::size_t>(miss)]; };
  EXPECT_EQ(count(PrefixMiss::diverged), 1);
  EXPECT_EQ(count(PrefixMiss::none), 1);
  EXPECT_EQ(count(PrefixMiss::too_short), 1);
  EXPECT_EQ(stats.num_cached_prefixes, 5);
  Harness without;
  run_alone_in(without, request);
  EXPECT_EQ(run_alone_in(without, request).prefix_miss, PrefixMiss::disabled);
  EXPECT_EQ(without.engine.stats().num_cached_prefixes, 0);
}

TEST(PrefixReuse, RequestsThatRunTogetherShareBlocks) {
  std::mt19937_64 random(37);
  Harness harness({.max_requests = 4, .prefix_cache = true});
  const auto base = random_prompt(random, 80);
  run_alone_in(harness, greedy(base, 1));
  for (int i = 0; i < 4; ++i) {
    harness.submit(greedy(variant(random, base, 80, 82), 6));
  }
  harness.engine.step();
  harness.engine.step();
  EXPECT_EQ(harness.engine.stats().num_running, 4);
  EXPECT_EQ(harness.engine.stats().num_blocks_used, 20 + 4);
  harness.run_to_the_end();
}

}  // namespace
}  // namespace deepinfer::test
