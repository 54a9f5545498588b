// Log probabilities of prompts: those that the same tokens have when they are generated, whoever is beside, however it is chunked.
#include <gtest/gtest.h>

#include "engine/harness.h"

namespace deepinfer {
namespace {

using namespace test;

engine::GenerationRequest scored(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  return {.prompt = std::move(prompt),
          .sampling = {.temperature = 0.0, .want_logprobs = true, .num_top_logprobs = 3, .want_prompt_logprobs = true},
          .max_tokens = max_tokens,
          .ignore_eos = true};
}

void expect_equal(const engine::TokenOutput& given, const engine::TokenOutput& expected) {
  EXPECT_EQ(given.token, expected.token);
  EXPECT_EQ(given.logprob, expected.logprob);
  EXPECT_EQ(given.top_logprobs, expected.top_logprobs);
}

/// A prompt and what `alone` generates behind it, as a prompt.
struct Text {
  std::vector<TokenId> tokens;
  std::size_t num_first = 0;
  std::vector<engine::TokenOutput> generated;
};

Text generated_text(std::uint64_t seed, std::size_t num_first, std::int32_t num_generated) {
  std::mt19937_64 random(seed);
  Text out{.tokens = random_prompt(random, num_first), .num_first = num_first, .generated = {}};
  const Reply reply = alone(scored(out.tokens, num_generated));
  EXPECT_EQ(reply.prompt.size(), num_first - 1);
  out.generated = reply.outputs;
  out.tokens.insert(out.tokens.end(), reply.tokens.begin(), reply.tokens.end());
  return out;
}

void expect_scores(const Reply& reply, const Text& text) {
  ASSERT_TRUE(reply.finish.has_value());
  ASSERT_EQ(reply.finish->reason, engine::FinishReason::length) << reply.finish->message;
  ASSERT_EQ(reply.prompt.size(), text.tokens.size() - 1);
  for (std::size_t i = 0; i < reply.prompt.size(); ++i) {
    ASSERT_EQ(reply.prompt[i].token, text.tokens[i + 1]);
    if (i + 1 >= text.num_first) {
      expect_equal(reply.prompt[i], text.generated[i + 1 - text.num_first]);
    }
  }
}

TEST(EnginePromptLogprobs, AreThoseOfGenerationForEveryChunking) {
  const Text text = generated_text(21, 30, 50);
  for (const std::int32_t max_requests : {1, 2, 7, 16, 64}) {
    for (const std::int32_t overlap_depth : {0, 1}) {
      Harness harness({.max_requests = max_requests, .max_batched_tokens = 64, .overlap_depth = overlap_depth});
      const RequestId id = harness.submit(scored(text.tokens, 3));
      harness.run_to_the_end();
      expect_scores(harness.reply(id), text);
      EXPECT_EQ(harness.reply(id).tokens, alone(scored(text.tokens, 3)).tokens);
    }
  }
}

TEST(EnginePromptLogprobs, NoStepHasMoreRowsOfLogitsThanRequestsMayRun) {
  std::mt19937_64 random(22);
  Harness harness({.max_requests = 5, .max_batched_tokens = 64});
  std::int32_t most = 0;
  harness.model.on_forward = [&most](std::span<const model::Chunk> chunks) {
    std::int32_t rows = 0;
    for (const model::Chunk& chunk : chunks) {
      rows += chunk.num_logit_rows;
    }
    most = std::max(most, rows);
  };
  for (int i = 0; i < 12; ++i) {
    harness.submit(i % 3 == 0 ? random_request(random, 40, 20) : scored(random_prompt(random, 1 + random() % 50), 4));
  }
  harness.run_to_the_end();
  EXPECT_EQ(most, 5);
}

TEST(EnginePromptLogprobs, CompanyPreemptionAndCachedPrefixesChangeNothing) {
  std::mt19937_64 random(23);
  const Text text = generated_text(24, 20, 40);
  std::int64_t num_preemptions = 0;
  for (int round = 0; round < 8; ++round) {
    Harness harness(
        {.max_requests = 6, .max_batched_tokens = 20, .max_model_len = 100, .num_blocks = 30, .num_extra_slots = 4, .prefix_cache = true});
    for (int i = 0; i < 4; ++i) {
      harness.submit({.prompt = text.tokens, .sampling = random_sampling(random), .max_tokens = 1 + i * 5});
      harness.submit(random_request(random, 30, 40));
    }
    const RequestId first = harness.submit(scored(text.tokens, 20));
    const RequestId second = harness.submit(scored(text.tokens, 20));
    harness.submit(random_request(random, 30, 40));
    harness.run_to_the_end();
    expect_scores(harness.reply(first), text);
    expect_scores(harness.reply(second), text);
    EXPECT_EQ(harness.reply(first).num_cached_tokens, 0);
    num_preemptions += harness.engine.stats().num_preemptions;
  }
  EXPECT_GT(num_preemptions, 0);
}

TEST(EnginePromptLogprobs, ABadRowEndsTheRequestAndNobodyElse) {
  const Text text = generated_text(25, 20, 20);
  Harness harness({.max_requests = 4});
  TokenId unused{2};
  while (std::ranges::count(text.tokens, unused) > 0) {
    ++unused.value;
  }
  harness.model.bad_token = unused;
  std::vector<TokenId> bad = text.tokens;
  bad[5] = unused;
  const RequestId failed = harness.submit(scored(bad, 3));
  const RequestId good = harness.submit(scored(text.tokens, 3));
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(failed).finish->reason, engine::FinishReason::failed);
  EXPECT_EQ(harness.reply(failed).prompt.size(), 5U);  // the row of the bad token is about the next one
  expect_scores(harness.reply(good), text);
}

}  // namespace
}  // namespace deepinfer
