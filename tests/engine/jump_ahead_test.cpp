// Jump-ahead: what a constraint forces is computed in one step, and the tokens are those of plain steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::FinishReason;
using engine::GenerationRequest;
using engine::SpeculationMode;
using engine::VerificationRule;

GenerationRequest constrained(std::string_view pattern, std::uint64_t seed = 5) {
  return {
      .prompt = {{7}, {8}, {9}}, .sampling = {.temperature = 1.0, .seed = seed}, .max_tokens = 60, .constraint = regex_constraint(pattern)};
}

/// No pair of the fake vocabulary is in it: only one split, so that every forced draft is accepted.
constexpr std::string_view kOnlyLetters = "hijklmnopqrstu";

/// A drafter that is never right.
HarnessOptions without_help(std::int32_t max_drafts, SpeculationMode mode = SpeculationMode::full) {
  return {.max_requests = 4, .max_drafts = max_drafts, .speculation = mode};
}

TEST(JumpAhead, ForcedTextNeedsAStepForEveryFewTokens) {
  for (const bool jump_ahead : {true, false}) {
    HarnessOptions options = without_help(5);
    options.jump_ahead = jump_ahead;
    Harness harness(options);
    harness.model.draft_error_every = 1;
    const RequestId id = harness.submit(constrained(kOnlyLetters));
    harness.run_to_the_end();
    const Reply& reply = harness.reply(id);
    EXPECT_EQ(reply.text(), kOnlyLetters);
    EXPECT_EQ(reply.finish->reason, FinishReason::stop);
    const engine::SpeculationStats stats = harness.engine.stats().speculation;
    if (jump_ahead) {
      EXPECT_EQ(reply.num_outputs, 4);  // the first token comes of the prompt, then 6, 6 and 1
      EXPECT_EQ(stats.num_forced, 11);
      EXPECT_EQ(stats.num_forced_accepted, 11);
      EXPECT_EQ(stats.num_draft_passes, 0);  // nothing was left for the drafter
    } else {
      EXPECT_EQ(stats.num_forced, 0);
    }
  }
}

TEST(JumpAhead, IsThereInStepsWithoutTheDrafterToo) {
  Harness harness(without_help(3, SpeculationMode::confidence));  // which begins with plain steps
  const RequestId id = harness.submit(constrained("hij(k|l)mnopq"));
  harness.run_to_the_end();
  EXPECT_LE(harness.reply(id).num_outputs, 4);
  EXPECT_EQ(harness.engine.stats().speculation.num_draft_passes, 0);
  EXPECT_EQ(harness.engine.stats().speculation.num_forced_accepted, harness.engine.stats().speculation.num_accepted);
}

TEST(JumpAhead, TriggersAreForced) {
  Harness harness(without_help(5));
  harness.model.draft_error_every = 1;
  GenerationRequest request = constrained("hijklm");
  request.constraint->trigger_ids = {{30}, {31}, {32}};
  request.constraint->bound_id = TokenId{40};
  request.sampling.adjustments = {.bias = {{TokenId{40}, 4.0F}}};
  request.max_tokens = 150;
  request.ignore_eos = true;
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  EXPECT_EQ(harness.reply(id).tokens, alone(request).tokens);
  EXPECT_EQ(harness.reply(id).finish->reason, FinishReason::stop);
  EXPECT_GE(harness.engine.stats().speculation.num_forced_accepted, 5);
}

/// Forced parts that the model may split otherwise ("cfec" has pairs), choices between them, and what is not forced at all.
const std::vector<std::string> kPatterns{"(cfecdghf|mdneofpg|zczczc){2,5}", "[c-m]{2,9}(cfcf|dgdgdg)z", "hijklmn(xy|zu|q)*rstu",
                                         "(u|vf|wgwg){3,9}hello"};

void expect_same(const Reply& reply, const Reply& expected) {
  ASSERT_TRUE(reply.finish && expected.finish);
  ASSERT_EQ(reply.tokens, expected.tokens);
  EXPECT_EQ(reply.finish->reason, expected.finish->reason);
  for (std::size_t i = 0; i < reply.outputs.size(); ++i) {
    EXPECT_EQ(reply.outputs[i].logprob, expected.outputs[i].logprob);
  }
}

TEST(JumpAhead, TokensAreThoseWithoutIt) {
  std::mt19937_64 random(91);
  engine::SpeculationStats total;
  std::int64_t num_preemptions = 0;
  for (int round = 0; round < 24; ++round) {
    Harness harness({.max_requests = 1 + round % 8,
                     .max_batched_tokens = 10 + 6 * (round % 8) + round,
                     .max_model_len = 100,
                     .num_blocks = round % 3 != 2 ? 26 : 200,
                     .num_extra_slots = round % 2 == 0 ? 10 : 0,
                     .overlap_depth = round % 2,
                     .prefix_cache = round % 4 < 2,
                     .max_drafts = 1 + round % 5,
                     .speculation = round % 2 == 0 ? SpeculationMode::full : SpeculationMode::confidence});
    harness.model.draft_error_every = round % 5;
    std::vector<std::pair<RequestId, GenerationRequest>> requests;
    while (requests.size() < 14 || harness.engine.has_work()) {
      if (requests.size() < 14 && random() % 2 == 0) {
        GenerationRequest request = random_request(random, 40, 40);
        request.sampling.want_logprobs = random() % 2 == 0;
        if (random() % 5 != 0) {
          request.constraint = regex_constraint(kPatterns[random() % kPatterns.size()]);
          request.ignore_eos = false;
        }
        requests.emplace_back(harness.submit(request), request);
      }
      harness.clock.advance(std::chrono::microseconds(100 + random() % 100));
      harness.engine.step();
      harness.engine.check_integrity();
    }
    total.num_forced += harness.engine.stats().speculation.num_forced;
    total.num_forced_accepted += harness.engine.stats().speculation.num_forced_accepted;
    num_preemptions += harness.engine.stats().num_preemptions;
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(id.value));
      expect_same(harness.reply(id), alone(request));
    }
  }
  std::printf("%lld forced drafts, %lld accepted\n", static_cast<long long>(total.num_forced),
              static_cast<long long>(total.num_forced_accepted));
  EXPECT_GT(total.num_forced_accepted, 500);
  EXPECT_GT(total.num_forced - total.num_forced_accepted, 50);
  EXPECT_GT(num_preemptions, 5);
}

/// By the rejection rule tokens depend on where steps begin, but neither the text's form nor how often each split comes.
TEST(JumpAhead, TheRejectionRuleKeepsTheDistribution) {
  std::vector<std::int64_t> num_pairs;
  for (const bool jump_ahead : {false, true}) {
    HarnessOptions options{.max_requests = 16, .max_batched_tokens = 200, .max_queue = 10'000, .max_drafts = 4};
    options.verification_rule = VerificationRule::rejection;
    options.jump_ahead = jump_ahead;
    Harness harness(options);
    std::vector<RequestId> ids;
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
      GenerationRequest request = constrained("hicfi", seed);
      request.sampling.temperature = 3.0;
      ids.push_back(harness.submit(request));
    }
    harness.run_to_the_end();
    num_pairs.push_back(std::ranges::count_if(ids, [&](RequestId id) { return harness.reply(id).tokens.size() == 4; }));
    EXPECT_TRUE(std::ranges::all_of(ids, [&](RequestId id) { return harness.reply(id).text() == "hicfi"; }));
  }
  EXPECT_GT(num_pairs[0], 200);
  EXPECT_LT(num_pairs[0], 3800);
  // Five deviations of the difference of two counts of 4,000 draws, at most sqrt(2 * 4000 / 4) each.
  EXPECT_LT(std::abs(num_pairs[0] - num_pairs[1]), 5 * 45);
}

}  // namespace
}  // namespace deepinfer::test
