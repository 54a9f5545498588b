// How requests end, what outputs contain, what is refused, and what a step does: with the fake model.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using engine::GenerationRequest;

GenerationRequest greedy(std::vector<TokenId> prompt, std::int32_t max_tokens) {
  return {.prompt = std::move(prompt), .sampling = {.temperature = 0.0}, .max_tokens = max_tokens, .ignore_eos = true};
}

const std::vector<TokenId> kPrompt = {{5}, {9}, {14}, {3}, {22}, {40}, {7}};

/// The EOS token, moved to where a greedy reply to kPrompt has its fourth token.
class EosAtFourthToken {
 public:
  EosAtFourthToken() : reply_(alone(greedy(kPrompt, 10))), eos_(reply_.tokens[3]) {
    for (std::size_t i = 0; i < 3; ++i) {
      check(reply_.tokens[i] != eos_, "the example has its EOS at the fourth token first");
    }
  }
  TokenId eos() const { return eos_; }
  const Reply& reply() const { return reply_; }

 private:
  Reply reply_;
  TokenId eos_;
};

Reply run_with_eos(TokenId eos, const GenerationRequest& request) {
  const kvcache::CacheGeometry geometry{.positions_per_block = 4, .num_blocks = 100, .num_slots = 3};
  FakeModel model(geometry, kVocab);
  engine::EngineParts parts = fake_parts(model, geometry);
  parts.eos = eos;
  engine::Engine engine(std::move(parts), {.max_requests = 2, .max_batched_tokens = 16, .max_model_len = 100});
  Reply reply;
  check(engine.submit(request, [&reply](engine::Output&& output) { reply.take(output); }).has_value(), "accepted");
  while (engine.step()) {
  }
  return reply;
}

TEST(Engine, EndsAtEosWithoutShowingIt) {
  const EosAtFourthToken example;
  GenerationRequest request = greedy(kPrompt, 10);
  request.ignore_eos = false;
  const Reply reply = run_with_eos(example.eos(), request);
  ASSERT_TRUE(reply.finish);
  EXPECT_EQ(reply.finish->reason, FinishReason::stop);
  EXPECT_EQ(reply.finish->num_generated, 3);
  EXPECT_EQ(reply.tokens, std::vector<TokenId>(example.reply().tokens.begin(), example.reply().tokens.begin() + 3));
}

TEST(Engine, IgnoresEosWhenAskedTo) {
  const EosAtFourthToken example;
  const Reply reply = run_with_eos(example.eos(), greedy(kPrompt, 10));
  EXPECT_EQ(reply.finish->reason, FinishReason::length);
  EXPECT_EQ(reply.tokens, example.reply().tokens);
}

TEST(Engine, EndsAfterMaxTokens) {
  for (const std::int32_t max_tokens : {1, 2, 9}) {
    const Reply reply = alone(greedy(kPrompt, max_tokens));
    EXPECT_EQ(reply.finish->reason, FinishReason::length);
    EXPECT_EQ(reply.tokens.size(), static_cast<std::size_t>(max_tokens));
    EXPECT_EQ(reply.finish->num_generated, max_tokens);
    EXPECT_EQ(reply.num_outputs, max_tokens);
  }
}

TEST(Engine, EndsWithTheTokenSampledFromAFullContext) {
  for (const std::int32_t max_tokens : {0, 1'000'000'000}) {
    Harness harness({.max_model_len = 20, .num_blocks = 5});
    const RequestId id = harness.submit(greedy(kPrompt, max_tokens));
    harness.run_to_the_end();
    EXPECT_EQ(harness.reply(id).finish->reason, FinishReason::length);
    EXPECT_EQ(harness.reply(id).tokens.size(), 20 - kPrompt.size() + 1);
  }
}

TEST(Engine, APromptThatFillsTheContextGetsOneToken) {
  std::mt19937_64 random(1);
  Harness harness({.max_model_len = 20, .num_blocks = 5});
  const RequestId id = harness.submit(greedy(random_prompt(random, 20), 0));
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(id).tokens.size(), 1U);
}

TEST(Engine, ShowsNoByteOfAStopStringAndNothingAfterIt) {
  const Reply plain = alone(greedy(kPrompt, 30));
  const std::string text = plain.text();
  // Every substring of the reply as a stop string: the text ends before its first place.
  for (std::size_t start = 1; start + 5 < text.size(); ++start) {
    const std::string stop = text.substr(start, 1 + start % 5);
    GenerationRequest request = greedy(kPrompt, 30);
    request.stop_strings = {"never", stop};
    const Reply reply = alone(request);
    ASSERT_EQ(reply.finish->reason, FinishReason::stop_string);
    ASSERT_EQ(reply.finish->message, stop);
    ASSERT_EQ(reply.text(), text.substr(0, text.find(stop)));
  }
}

TEST(Engine, TokensThatMayBeginAStopStringComeLaterInOrder) {
  const Reply plain = alone(greedy(kPrompt, 12));
  GenerationRequest request = greedy(kPrompt, 12);
  // The first three tokens and something that does not follow.
  std::string almost;
  for (std::size_t i = 0; i < 3; ++i) {
    almost += fake_bytes(plain.tokens[i]);
  }
  request.stop_strings = {almost + "#"};
  Harness harness;
  const RequestId id = harness.submit(request);
  for (int step = 0; step < 3; ++step) {
    harness.engine.step();
    EXPECT_TRUE(harness.reply(id).tokens.empty());
  }
  harness.engine.step();
  EXPECT_GE(harness.reply(id).tokens.size(), 3U);
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(id).tokens, plain.tokens);
}

TEST(Engine, TokensHeldBackAreShownWhenTheRequestEndsOtherwise) {
  const Reply plain = alone(greedy(kPrompt, 2));
  GenerationRequest request = greedy(kPrompt, 2);
  request.stop_strings = {plain.text() + "#"};
  const Reply reply = alone(request);
  EXPECT_EQ(reply.finish->reason, FinishReason::length);
  EXPECT_EQ(reply.tokens, plain.tokens);
  EXPECT_EQ(reply.num_outputs, 1);
}

TEST(Engine, LogprobsComeWhenWanted) {
  GenerationRequest request = greedy(kPrompt, 5);
  const Reply plain = alone(request);
  EXPECT_EQ(plain.outputs[0].logprob, 0.0F);
  EXPECT_TRUE(plain.outputs[0].top_logprobs.empty());
  request.sampling.want_logprobs = true;
  request.sampling.num_top_logprobs = 4;
  const Reply reply = alone(request);
  ASSERT_EQ(reply.tokens, plain.tokens);
  for (const engine::TokenOutput& output : reply.outputs) {
    ASSERT_EQ(output.top_logprobs.size(), 4U);
    EXPECT_EQ(output.top_logprobs[0].first, output.token);
    EXPECT_EQ(output.top_logprobs[0].second, output.logprob);
    EXPECT_LT(output.logprob, 0.0F);
    EXPECT_GE(output.top_logprobs[0].second, output.top_logprobs[1].second);
  }
  request.sampling.logprob_kind = sampling::LogprobKind::processed;
  EXPECT_EQ(alone(request).outputs[0].logprob, 0.0F);
}

TEST(Engine, AHighFrequencyPenaltyLetsNoTokenComeTwice) {
  Harness harness;
  engine::GenerationRequest request{.prompt = {{5}, {6}}, .sampling = {.temperature = 0.0}, .max_tokens = 40, .ignore_eos = true};
  request.sampling.adjustments.frequency_penalty = 100.0F;
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  std::vector<TokenId> tokens = harness.reply(id).tokens;
  ASSERT_EQ(tokens.size(), 40U);
  std::ranges::sort(tokens);
  EXPECT_EQ(std::ranges::adjacent_find(tokens), tokens.end());
}

TEST(Engine, ABiasedTokenWinsAndItsRawLogprobIsTheModels) {
  Harness harness;
  engine::GenerationRequest request{
      .prompt = {{5}, {6}}, .sampling = {.temperature = 0.0, .want_logprobs = true, .num_top_logprobs = 1}, .max_tokens = 1};
  request.sampling.adjustments.bias = {{TokenId{9}, 100.0F}};
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  const engine::TokenOutput& output = harness.reply(id).outputs.at(0);
  EXPECT_EQ(output.token, TokenId{9});
  EXPECT_LT(output.logprob, output.top_logprobs.at(0).second);
  EXPECT_NE(output.top_logprobs.at(0).first, TokenId{9});
}

TEST(Engine, TheSameSeedGivesTheSameTokensAndAnotherSeedOthers) {
  GenerationRequest request = greedy(kPrompt, 20);
  request.sampling = {.temperature = 1.0, .seed = 7};
  const Reply first = alone(request);
  EXPECT_EQ(alone(request).tokens, first.tokens);
  request.sampling.seed = 8;
  EXPECT_NE(alone(request).tokens, first.tokens);
}

TEST(Engine, ACancelledRequestTakesPartInNoLaterStep) {
  Harness harness;
  const RequestId cancelled = harness.submit(greedy(kPrompt, 50));
  const RequestId kept = harness.submit(greedy(kPrompt, 50));
  harness.engine.step();
  harness.engine.step();
  harness.engine.cancel(cancelled);
  harness.engine.cancel(cancelled);
  std::size_t num_chunks = 0;
  harness.model.on_forward = [&](std::span<const model::Chunk> chunks) { num_chunks = chunks.size(); };
  harness.engine.step();
  EXPECT_EQ(num_chunks, 1U);
  EXPECT_EQ(harness.reply(cancelled).finish->reason, FinishReason::cancelled);
  EXPECT_EQ(harness.reply(cancelled).tokens.size(), 2U);
  EXPECT_EQ(harness.engine.stats().num_slots_used, 1);
  harness.engine.cancel(cancelled);
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(kept).tokens.size(), 50U);
}

TEST(Engine, CancellingTheLastRequestLeavesAnIdleEngine) {
  Harness harness;
  const RequestId id = harness.submit(greedy(kPrompt, 50));
  harness.engine.cancel(id);
  EXPECT_TRUE(harness.engine.step());
  EXPECT_EQ(harness.reply(id).finish->reason, FinishReason::cancelled);
  EXPECT_FALSE(harness.engine.has_work());
  EXPECT_FALSE(harness.engine.step());
}

TEST(Engine, RefusesWhatDoesNotFitWithTheNumbers) {
  Harness harness({.max_model_len = 20, .num_blocks = 5});
  std::mt19937_64 random(2);
  const auto refused = harness.engine.submit(greedy(random_prompt(random, 23), 1), [](engine::Output&&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
  EXPECT_EQ(refused.error().message, "the prompt has 23 tokens, but the context holds 20; shorten it by 3");
  EXPECT_FALSE(harness.engine.has_work());
}

TEST(Engine, AFullQueueRefusesUntilSomebodyIsDone) {
  Harness harness({.max_requests = 1, .max_batched_tokens = 8, .max_queue = 2});
  for (int i = 0; i < 3; ++i) {
    harness.submit(greedy(kPrompt, 1));
  }
  const auto refused = harness.engine.submit(greedy(kPrompt, 1), [](engine::Output&&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  EXPECT_EQ(refused.error().message, "the queue is full: 3 requests run or wait already; try again when some are done");
  harness.engine.step();
  harness.submit(greedy(kPrompt, 1));
  harness.run_to_the_end();
}

TEST(Engine, ASinkMaySubmitAndCancel) {
  Harness harness;
  std::optional<RequestId> second;
  Reply first_reply;
  Reply second_reply;
  const RequestId victim = harness.submit(greedy(kPrompt, 50));
  const auto submitted = harness.engine.submit(greedy(kPrompt, 3), [&](engine::Output&& output) {
    first_reply.take(output);
    if (output.finish) {
      harness.engine.cancel(victim);
      second = *harness.engine.submit(greedy(kPrompt, 4), [&](engine::Output&& next) { second_reply.take(next); });
    }
  });
  ASSERT_TRUE(submitted);
  harness.run_to_the_end();
  EXPECT_EQ(first_reply.tokens.size(), 3U);
  EXPECT_EQ(second_reply.tokens.size(), 4U);
  EXPECT_EQ(harness.reply(victim).finish->reason, FinishReason::cancelled);
  EXPECT_EQ(harness.reply(victim).tokens.size(), 3U);
}

TEST(Engine, CountsWhatItDoes) {
  const kvcache::CacheGeometry geometry{.positions_per_block = 4, .num_blocks = 11, .num_slots = 3};
  FakeModel model(geometry, kVocab);
  engine::EngineParts parts = fake_parts(model, geometry);
  auto owned_clock = std::make_unique<FakeClock>();
  FakeClock& clock = *owned_clock;
  parts.clock = std::move(owned_clock);
  engine::Engine engine(std::move(parts), {.max_requests = 2, .max_batched_tokens = 16, .max_model_len = 40, .prefix_cache = false});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(engine.submit(greedy(kPrompt, 4), [](engine::Output&&) {}));
  }
  EXPECT_EQ(engine.stats().num_waiting, 3);
  clock.advance(std::chrono::seconds(5));
  engine.step();
  engine::EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_steps, 1);
  EXPECT_EQ(stats.num_prefill_tokens, 14);
  EXPECT_EQ(stats.num_generated_tokens, 2);
  EXPECT_EQ(stats.num_running, 2);
  EXPECT_EQ(stats.num_waiting, 1);
  EXPECT_EQ(stats.num_blocks_used, 4);
  EXPECT_EQ(stats.num_blocks, 10);
  EXPECT_EQ(stats.num_slots_used, 2);
  EXPECT_EQ(stats.num_slots, 2);
  EXPECT_EQ(stats.last_progress, clock.now());
  while (engine.step()) {
  }
  clock.advance(std::chrono::seconds(5));
  EXPECT_FALSE(engine.step());
  stats = engine.stats();
  EXPECT_EQ(stats.num_finished, 3);
  EXPECT_EQ(stats.num_generated_tokens, 12);
  EXPECT_LT(stats.last_progress, clock.now());
}

}  // namespace
}  // namespace deepinfer::test
