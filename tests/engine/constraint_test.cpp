// Constrained requests: what they generate fits, and depends on nobody beside them. The fake model's logits are nearly random, so that
// unconstrained text fits none of these patterns. Its vocabulary has no tokens "a" and "b": their ids are control tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <regex>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using engine::GenerationRequest;

std::mt19937_64 seeded(std::uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

GenerationRequest constrained(std::string_view pattern, std::uint64_t seed = 5) {
  return {
      .prompt = {{7}, {8}, {9}}, .sampling = {.temperature = 1.0, .seed = seed}, .max_tokens = 50, .constraint = regex_constraint(pattern)};
}

const std::vector<std::string> kPatterns{"(cde)+f", "[c-m]{5,9}z", "(xy|zu|q)*", "c(d|e(f|g)*h)+k"};

TEST(EngineConstraint, FinishedTextFitsAndCutTextIsABeginningOfOneThatFits) {
  int num_finished = 0;
  for (const std::string& pattern : kPatterns) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      GenerationRequest request = constrained(pattern, seed);
      request.sampling.temperature = static_cast<double>(seed % 3);
      const Reply reply = alone(request);
      const bool fits = std::regex_match(reply.text(), std::regex(pattern));
      if (reply.finish->reason == FinishReason::stop) {
        ++num_finished;
        EXPECT_TRUE(fits) << pattern << ": " << reply.text();
      } else {
        EXPECT_EQ(reply.finish->reason, FinishReason::length);
        EXPECT_EQ(reply.tokens.size(), 50U);
      }
    }
  }
  EXPECT_GT(num_finished, 40);
}

TEST(EngineConstraint, EndsByItselfWhenNothingCanFollow) {
  const Reply reply = alone(constrained("hello"));
  EXPECT_EQ(reply.text(), "hello");
  EXPECT_EQ(reply.finish->reason, FinishReason::stop);
}

TEST(EngineConstraint, ATextThatIsCompleteWithTheLastTokenIsNotCut) {
  GenerationRequest request = constrained("[h-k]{4}");
  const auto num_tokens = static_cast<std::int32_t>(alone(request).tokens.size());
  request.max_tokens = num_tokens;
  EXPECT_EQ(alone(request).finish->reason, FinishReason::stop);
  request.max_tokens = num_tokens - 1;
  EXPECT_EQ(alone(request).finish->reason, FinishReason::length);
}

TEST(EngineConstraint, IgnoringTheEndGoesOnWhileSomethingCanFollow) {
  GenerationRequest request = constrained("(pq)*");
  request.ignore_eos = true;
  const Reply endless = alone(request);
  EXPECT_EQ(endless.finish->reason, FinishReason::length);
  EXPECT_EQ(std::ranges::count(endless.tokens, kEos), 0);
  request.constraint = regex_constraint("(pq){3}");
  const Reply finite = alone(request);
  EXPECT_EQ(finite.text(), "pqpqpq");
  EXPECT_EQ(finite.finish->reason, FinishReason::stop);
}

TEST(EngineConstraint, ATriggerSwitchesTheGrammarOn) {
  GenerationRequest request = constrained("stop");
  request.max_tokens = 150;
  request.ignore_eos = true;
  request.constraint->trigger_ids = {{40}};
  const Reply reply = alone(request);
  ASSERT_EQ(reply.finish->reason, FinishReason::stop);
  const auto trigger = std::ranges::find(reply.tokens, TokenId{40});
  std::string behind;
  for (auto it = trigger + 1; it != reply.tokens.end(); ++it) {
    behind += fake_bytes(*it);
  }
  EXPECT_EQ(behind, "stop");
}

TEST(EngineConstraint, LogprobsAreThoseUnderTheMask) {
  GenerationRequest request = constrained("cd?");
  request.sampling.want_logprobs = true;
  request.sampling.num_top_logprobs = 5;
  const Reply reply = alone(request);
  ASSERT_FALSE(reply.outputs.empty());
  for (const engine::TokenOutput& token : reply.outputs) {
    double total = 0;
    for (const auto& [id, logprob] : token.top_logprobs) {
      total += std::exp(static_cast<double>(logprob));
    }
    EXPECT_NEAR(total, 1.0, 1e-5);
  }
}

TEST(EngineConstraint, ABiasBringsNoMaskedTokenBackAndCannotForbidWhatIsForced) {
  for (const double temperature : {0.0, 1.0}) {
    GenerationRequest request = constrained("cd{3}e[f-h]");
    request.sampling.temperature = temperature;
    request.sampling.adjustments = {.bias = {{TokenId{10}, 100.0F}}};  // "k"
    for (std::int32_t id = 2; id < 8; ++id) {                          // all that the pattern is made of
      request.sampling.adjustments.bias.emplace_back(TokenId{id}, -100.0F);
    }
    const Reply reply = alone(request);
    EXPECT_EQ(reply.finish->reason, FinishReason::stop);
    EXPECT_TRUE(std::regex_match(reply.text(), std::regex("cd{3}e[f-h]"))) << reply.text();
  }
}

TEST(EngineConstraint, AGrammarThatNoTokenSpellsFailsAlone) {
  Harness harness;
  const RequestId bad = harness.submit(constrained("[0-9]+"));
  const GenerationRequest other = constrained("(cde)+f");
  const RequestId good = harness.submit(other);
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(bad).finish->reason, FinishReason::failed);
  EXPECT_EQ(harness.reply(bad).finish->message, "at position 3 no token is allowed at this position");
  EXPECT_EQ(harness.reply(good).tokens, alone(other).tokens);
}

TEST(EngineConstraint, BadConstraintsAreRefused) {
  Harness harness;
  GenerationRequest request = constrained("a");
  request.constraint->bound_id = TokenId{3};
  EXPECT_EQ(harness.engine.submit(request, [](engine::Output&&) {}).error().message, "a bound token needs trigger tokens");
  request.constraint->trigger_ids = {{kVocab}};
  EXPECT_EQ(harness.engine.submit(request, [](engine::Output&&) {}).error().message,
            "trigger and bound tokens of a constraint go from 0 to 63");
  request.constraint = engine::Constraint{};
  EXPECT_EQ(harness.engine.submit(request, [](engine::Output&&) {}).error().message, "the constraint has no grammar");
}

/// Preempted (few blocks), chunked and in company: the same tokens as alone.
TEST(EngineConstraint, CompanyChunksAndPreemptionChangeNothing) {
  std::mt19937_64 random = seeded(31);
  std::int64_t num_preemptions = 0;
  for (int round = 0; round < 8; ++round) {
    Harness harness({.max_requests = 8, .max_batched_tokens = 20, .max_model_len = 100, .num_blocks = 26});
    std::vector<std::pair<RequestId, GenerationRequest>> requests;
    for (int i = 0; i < 10; ++i) {
      GenerationRequest request = random_request(random, 30, 60);
      if (random() % 4 != 0) {
        request.constraint = regex_constraint(kPatterns[random() % kPatterns.size()]);
      }
      requests.emplace_back(harness.submit(request), request);
    }
    harness.run_to_the_end();
    num_preemptions += harness.engine.stats().num_preemptions;
    for (const auto& [id, request] : requests) {
      const Reply expected = alone(request);
      EXPECT_EQ(harness.reply(id).tokens, expected.tokens);
      EXPECT_EQ(harness.reply(id).finish->reason, expected.finish->reason);
    }
  }
  EXPECT_GT(num_preemptions, 10);
}

}  // namespace
}  // namespace deepinfer::test
