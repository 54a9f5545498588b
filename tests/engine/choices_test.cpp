// Several replies to one prompt: each is what it is alone with its seed, the prompt is computed once, and everything comes back.
#include <gtest/gtest.h>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

struct Choices {
  std::vector<RequestId> ids;
  std::vector<std::shared_ptr<Reply>> replies;
};

Choices submit(Harness& harness, const engine::GenerationRequest& request, std::size_t num_choices) {
  Choices out;
  std::vector<engine::Choice> choices;
  for (std::size_t i = 0; i < num_choices; ++i) {
    auto reply = std::make_shared<Reply>();
    out.replies.push_back(reply);
    choices.push_back({.seed = 100 + i, .sink = [reply](engine::Output&& output) { reply->take(output); }});
  }
  auto ids = harness.engine.submit_choices(request, std::move(choices));
  check(ids.has_value(), "the choices are accepted");
  out.ids = std::move(*ids);
  return out;
}

std::vector<TokenId> alone_with_seed(engine::GenerationRequest request, std::uint64_t seed) {
  request.sampling.seed = seed;
  return alone(request).tokens;
}

TEST(EngineChoices, EachIsWhatItIsAloneAndThePromptIsComputedOnce) {
  std::mt19937_64 random(71);
  for (const std::int32_t overlap_depth : {0, 1}) {
    for (std::size_t num_prompt = 1; num_prompt <= 14; ++num_prompt) {
      Harness harness({.max_requests = 5, .overlap_depth = overlap_depth, .prefix_cache = num_prompt % 2 == 0});
      const engine::GenerationRequest request{
          .prompt = random_prompt(random, num_prompt), .sampling = {.temperature = 1}, .max_tokens = 11};
      const Choices choices = submit(harness, request, 4);
      while (harness.engine.has_work()) {
        harness.engine.step();
        harness.engine.check_integrity();
      }
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(choices.replies[i]->tokens, alone_with_seed(request, 100 + i)) << "choice " << i << " behind " << num_prompt << " tokens";
      }
      EXPECT_EQ(harness.engine.stats().num_prefill_tokens, static_cast<std::int64_t>(num_prompt));
      EXPECT_EQ(harness.engine.stats().num_blocks_used, 0);
      EXPECT_EQ(harness.engine.stats().num_slots_used, 0);
    }
  }
}

TEST(EngineChoices, TheySharePromptBlocks) {
  std::mt19937_64 random(72);
  Harness harness({.max_requests = 4});
  const Choices choices = submit(harness, {.prompt = random_prompt(random, 41), .max_tokens = 3, .ignore_eos = true}, 4);
  harness.engine.step();
  EXPECT_EQ(harness.engine.stats().num_running, 4);
  EXPECT_EQ(harness.engine.stats().num_blocks_used, 10 + 4) << "ten full blocks and one of its own for each";
  harness.run_to_the_end();
}

/// What the forks displace is kept before they write.
TEST(EngineChoices, PrefixesThatTheyDisplaceComeBackAsTheyWere) {
  std::mt19937_64 random(76);
  Harness harness({.max_requests = 4,
                   .max_model_len = 50,
                   .num_blocks = 14,
                   .num_extra_slots = 2,
                   .prefix_cache = true,
                   .has_tiers = true,
                   .tier_memory_bytes = 1 << 20});
  const engine::GenerationRequest first{
      .prompt = random_prompt(random, 33), .sampling = {.temperature = 0}, .max_tokens = 3, .ignore_eos = true};
  harness.submit(first);
  harness.run_to_the_end();
  submit(harness, {.prompt = random_prompt(random, 41), .max_tokens = 3, .ignore_eos = true}, 4);
  harness.run_to_the_end();
  const RequestId again = harness.submit(first);
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(again).num_cached_tokens, 32);
  EXPECT_EQ(harness.reply(again).tokens, alone(first).tokens);
}

TEST(EngineChoices, WithoutRoomTheyComputeThePromptLaterAndAgain) {
  std::mt19937_64 random(73);
  for (const std::int32_t overlap_depth : {0, 1}) {
    Harness harness({.max_requests = 3, .max_model_len = 60, .num_blocks = 17, .overlap_depth = overlap_depth, .prefix_cache = true});
    const engine::GenerationRequest request{
        .prompt = random_prompt(random, 30), .sampling = {.temperature = 1}, .max_tokens = 30, .ignore_eos = true};
    const Choices choices = submit(harness, request, 7);
    while (harness.engine.has_work()) {
      harness.engine.step();
      harness.engine.check_integrity();
    }
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(choices.replies[i]->tokens, alone_with_seed(request, 100 + i)) << "choice " << i;
    }
  }
}

TEST(EngineChoices, WhoeverIsCancelledWhenever) {
  std::mt19937_64 random(74);
  for (int round = 0; round < 200; ++round) {
    Harness harness({.max_requests = 4, .max_batched_tokens = 8, .overlap_depth = round % 2, .prefix_cache = round % 3 == 0});
    const engine::GenerationRequest request{
        .prompt = random_prompt(random, 5 + random() % 25), .sampling = {.temperature = 1}, .max_tokens = 8, .ignore_eos = true};
    const Choices choices = submit(harness, request, 4);
    while (harness.engine.has_work()) {
      if (random() % 4 == 0) {
        harness.engine.cancel(choices.ids[random() % 4]);
      }
      harness.engine.step();
      harness.engine.check_integrity();
    }
    for (std::size_t i = 0; i < 4; ++i) {
      const Reply& reply = *choices.replies[i];
      const auto expected = alone_with_seed(request, 100 + i);
      ASSERT_TRUE(reply.finish);
      ASSERT_LE(reply.tokens.size(), expected.size());
      EXPECT_TRUE(std::equal(reply.tokens.begin(), reply.tokens.end(), expected.begin()));
      EXPECT_TRUE(reply.finish->reason == engine::FinishReason::cancelled || reply.tokens.size() == expected.size());
    }
    EXPECT_EQ(harness.engine.stats().num_blocks_used, 0);
    EXPECT_EQ(harness.engine.stats().num_slots_used, 0);
  }
}

TEST(EngineChoices, AllTogetherFitIntoTheQueueOrNone) {
  std::mt19937_64 random(75);
  Harness harness({.max_requests = 1, .max_queue = 2});
  const engine::GenerationRequest request{.prompt = random_prompt(random, 3), .max_tokens = 2};
  std::vector<engine::Choice> four(4);
  for (engine::Choice& choice : four) {
    choice.sink = [](engine::Output&&) {};
  }
  const auto refused = harness.engine.submit_choices(request, std::move(four));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::exhausted);
  EXPECT_FALSE(harness.engine.has_work());
}

}  // namespace
}  // namespace deepinfer::test
