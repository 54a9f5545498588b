// Speculative decoding changes when tokens come, never which: coupled rule, over random requests with the fake model and its drafter.
// The rejection rule keeps the distribution.
#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "engine/harness.h"

namespace deepinfer::test {
namespace {

using engine::SpeculationMode;
using engine::VerificationRule;

std::mt19937_64 seeded(std::uint64_t seed) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return std::mt19937_64(seed);
}

/// Every kind of request: sampled or greedy, penalties, stop strings, logprobs, constraints.
engine::GenerationRequest any_request(std::mt19937_64& random) {
  engine::GenerationRequest request = random_request(random, 40, 40);
  if (random() % 3 == 0) {
    request.stop_strings = {std::string(fake_bytes({static_cast<std::int32_t>(2 + random() % 24)})) + "a"};
  }
  if (random() % 4 == 0) {
    request.constraint = regex_constraint("[a-m]{3,30}(no|yes)");
    request.ignore_eos = false;
  }
  if (random() % 3 == 0) {
    request.sampling.want_logprobs = true;
    request.sampling.num_top_logprobs = 3;
    request.sampling.logprob_kind = random() % 2 == 0 ? sampling::LogprobKind::raw : sampling::LogprobKind::processed;
  }
  return request;
}

void expect_same(const Reply& reply, const Reply& expected) {
  ASSERT_TRUE(reply.finish && expected.finish);
  ASSERT_EQ(reply.tokens, expected.tokens);
  EXPECT_EQ(reply.finish->reason, expected.finish->reason);
  EXPECT_EQ(reply.finish->num_generated, expected.finish->num_generated);
  EXPECT_EQ(reply.finish->text_before_stop, expected.finish->text_before_stop);
  for (std::size_t i = 0; i < reply.outputs.size(); ++i) {
    EXPECT_EQ(reply.outputs[i].logprob, expected.outputs[i].logprob);
    EXPECT_EQ(reply.outputs[i].top_logprobs, expected.outputs[i].top_logprobs);
  }
}

TEST(Speculation, TokensAreThoseWithoutDrafts) {
  std::mt19937_64 random = seeded(71);
  std::int64_t num_accepted = 0;
  std::int64_t num_rejected = 0;
  std::int64_t num_preemptions = 0;
  for (int round = 0; round < 24; ++round) {
    Harness harness({.max_requests = 1 + round % 8,
                     .max_batched_tokens = 10 + 6 * (round % 8) + round,
                     .max_model_len = 100,
                     .num_blocks = round % 3 == 0 ? 26 : 200,
                     .num_extra_slots = round % 2 == 0 ? 10 : 0,
                     .overlap_depth = round % 2,
                     .prefix_cache = round % 4 < 2,
                     .max_drafts = 1 + round % 5,
                     .speculation = round % 2 == 0 ? SpeculationMode::full : SpeculationMode::confidence});
    harness.model.draft_error_every = round % 5;
    std::vector<std::pair<RequestId, engine::GenerationRequest>> requests;
    while (requests.size() < 14 || harness.engine.has_work()) {
      if (requests.size() < 14 && random() % 2 == 0) {
        const auto request = any_request(random);
        requests.emplace_back(harness.submit(request), request);
      }
      harness.clock.advance(std::chrono::microseconds(100 + random() % 100));
      harness.engine.step();
      harness.engine.check_integrity();
    }
    const engine::EngineStats stats = harness.engine.stats();
    EXPECT_EQ(stats.num_blocks_used, 0);
    EXPECT_EQ(stats.num_slots_used, 0);
    num_accepted += stats.speculation.num_accepted;
    num_rejected += stats.speculation.num_verified - stats.speculation.num_accepted;
    num_preemptions += stats.num_preemptions;
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(id.value));
      expect_same(harness.reply(id), alone(request));
    }
  }
  EXPECT_GT(num_accepted, 1000);
  EXPECT_GT(num_rejected, 1000);
  EXPECT_GT(num_preemptions, 10);
}

TEST(Speculation, APerfectDrafterIsAlwaysAccepted) {
  Harness harness({.max_requests = 2, .max_drafts = 5});
  harness.model.draft_error_every = 0;
  std::mt19937_64 random = seeded(72);
  for (const double temperature : {0.0, 1.0}) {
    engine::GenerationRequest request{
        .prompt = random_prompt(random, 9), .sampling = {.temperature = temperature, .seed = 5}, .max_tokens = 61, .ignore_eos = true};
    const RequestId id = harness.submit(request);
    harness.run_to_the_end();
    const Reply& reply = harness.reply(id);
    EXPECT_EQ(reply.finish->num_accepted_drafts, reply.finish->num_verified_drafts);
    EXPECT_EQ(reply.finish->num_accepted_drafts, 50);  // ten rounds of six behind the first token
    EXPECT_EQ(reply.num_outputs, 11);
  }
  const engine::SpeculationStats stats = harness.engine.stats().speculation;
  EXPECT_EQ(stats.num_rounds, 20);
  EXPECT_EQ(stats.accepted_lengths[5], 20);
  EXPECT_EQ(stats.num_accepted, 100);
}

TEST(Speculation, AWrongDrafterCostsRowsAndIsNoticed) {
  Harness harness({.max_requests = 2, .max_model_len = 2000, .num_blocks = 2000, .max_drafts = 5});
  harness.model.draft_error_every = 1;
  std::mt19937_64 random = seeded(73);
  const engine::GenerationRequest request{
      .prompt = random_prompt(random, 9), .sampling = {.temperature = 0}, .max_tokens = 600, .ignore_eos = true};
  const RequestId id = harness.submit(request);
  harness.run_to_the_end();
  EXPECT_LT(harness.reply(id).finish->num_accepted_drafts, 60);
  EXPECT_TRUE(harness.engine.stats().speculation.seems_broken()) << "even a confidence of 0.12 is too much for chance";
  engine::SpeculationStats doubtful = harness.engine.stats().speculation;
  doubtful.confidence_sum = {};
  EXPECT_FALSE(doubtful.seems_broken());
}

/// What `count` requests with seeds 0, 1, 2, … give, as pairs of their first two tokens.
std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> first_two_tokens(VerificationRule rule,
                                                                               const engine::GenerationRequest& prototype,
                                                                               std::uint64_t count) {
  Harness harness({.max_requests = 16, .max_batched_tokens = 200, .max_queue = 20'000, .max_drafts = 3, .verification_rule = rule});
  harness.model.draft_error_every = 2;
  std::vector<RequestId> ids;
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    engine::GenerationRequest request = prototype;
    request.sampling.seed = seed;
    ids.push_back(harness.submit(request));
  }
  harness.run_to_the_end();
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> out;
  for (const RequestId id : ids) {
    const auto& tokens = harness.reply(id).tokens;
    ++out[{tokens.at(1).value, tokens.at(2).value}];
  }
  return out;
}

/// Pearson's statistic of two samples of equal size over the same cells.
double chi_square(const std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>& a,
                  const std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t>& b) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<double, double>> cells;
  for (const auto& [cell, count] : a) {
    cells[cell].first = static_cast<double>(count);
  }
  for (const auto& [cell, count] : b) {
    cells[cell].second = static_cast<double>(count);
  }
  double sum = 0;
  for (const auto& [cell, counts] : cells) {
    sum += std::pow(counts.first - counts.second, 2) / (counts.first + counts.second);
  }
  return sum;
}

TEST(Speculation, BothRulesKeepTheDistribution) {
  std::mt19937_64 random = seeded(74);
  engine::GenerationRequest request{
      .prompt = random_prompt(random, 5), .sampling = {.temperature = 1.5, .top_k = 3}, .max_tokens = 4, .ignore_eos = true};
  // The second and third token are verified drafts; the first one is always the same.
  request.sampling.adjustments = {};
  constexpr std::uint64_t kCount = 6000;
  const auto drawn_directly = [&] {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> out;
    Harness harness({.max_requests = 16, .max_batched_tokens = 200, .max_queue = 20'000});
    std::vector<RequestId> ids;
    for (std::uint64_t seed = 1'000'000; seed < 1'000'000 + kCount; ++seed) {
      request.sampling.seed = seed;
      ids.push_back(harness.submit(request));
    }
    harness.run_to_the_end();
    for (const RequestId id : ids) {
      ++out[{harness.reply(id).tokens.at(1).value, harness.reply(id).tokens.at(2).value}];
    }
    return out;
  }();
  for (const VerificationRule rule : {VerificationRule::coupled, VerificationRule::rejection}) {
    const auto drafted = first_two_tokens(rule, request, kCount);
    const auto num_cells = static_cast<double>(std::max(drawn_directly.size(), drafted.size()));
    EXPECT_GE(num_cells, 8);
    // Mean of the statistic is the number of cells less one; five deviations above it is one in a million.
    EXPECT_LT(chi_square(drafted, drawn_directly), num_cells + 5 * std::sqrt(2 * num_cells))
        << (rule == VerificationRule::coupled ? "coupled" : "rejection") << ", " << num_cells << " cells";
  }
}

TEST(Speculation, TheRejectionRuleAcceptsMore) {
  std::mt19937_64 random = seeded(75);
  std::map<VerificationRule, double> rate;
  for (const VerificationRule rule : {VerificationRule::coupled, VerificationRule::rejection}) {
    Harness harness({.max_requests = 8, .max_batched_tokens = 100, .max_drafts = 3, .verification_rule = rule});
    harness.model.draft_error_every = 1;  // always another distribution: what is accepted is chance
    for (int i = 0; i < 200; ++i) {
      engine::GenerationRequest request{.prompt = random_prompt(random, 5),
                                        .sampling = {.temperature = 3.0, .seed = static_cast<std::uint64_t>(i)},
                                        .max_tokens = 60,
                                        .ignore_eos = true};
      harness.submit(request);
      if (i % 50 == 0) {
        harness.run_to_the_end();
      }
    }
    harness.run_to_the_end();
    const engine::SpeculationStats stats = harness.engine.stats().speculation;
    rate[rule] = static_cast<double>(stats.num_accepted_at[0]) / static_cast<double>(stats.num_judged[0]);
  }
  std::printf("first draft accepted: coupled %.3f, rejection %.3f\n", rate[VerificationRule::coupled], rate[VerificationRule::rejection]);
  EXPECT_GT(rate[VerificationRule::rejection], rate[VerificationRule::coupled] + 0.05);
}

TEST(Speculation, GreedyTokensAreTheSameByBothRules) {
  std::mt19937_64 random = seeded(76);
  for (int i = 0; i < 20; ++i) {
    engine::GenerationRequest request{
        .prompt = random_prompt(random, 1 + random() % 30), .sampling = {.temperature = 0}, .max_tokens = 30, .ignore_eos = true};
    Harness harness({.max_requests = 2, .max_drafts = 4, .verification_rule = VerificationRule::rejection});
    const RequestId id = harness.submit(request);
    harness.run_to_the_end();
    expect_same(harness.reply(id), alone(request));
  }
}

TEST(Speculation, ChoicesOfOnePromptDraftToo) {
  std::mt19937_64 random = seeded(77);
  const engine::GenerationRequest request{.prompt = random_prompt(random, 11), .max_tokens = 30, .ignore_eos = true};
  Harness harness({.max_requests = 4, .num_extra_slots = 4, .prefix_cache = true, .max_drafts = 5});
  std::vector<std::shared_ptr<Reply>> replies;
  std::vector<engine::Choice> choices;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    replies.push_back(std::make_shared<Reply>());
    choices.push_back({.seed = seed, .sink = [reply = replies.back()](engine::Output&& output) { reply->take(output); }});
  }
  ASSERT_TRUE(harness.engine.submit_choices(request, std::move(choices)));
  harness.run_to_the_end();
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    engine::GenerationRequest single = request;
    single.sampling.seed = seed;
    expect_same(*replies[seed], alone(single));
    EXPECT_GT(replies[seed]->finish->num_accepted_drafts, 0);
  }
}

// --- the numbers behind the choices -------------------------------------------------------------------------------

TEST(TemperatureFit, FindsTheTemperatureOfItsOutcomes) {
  std::mt19937_64 random = seeded(78);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal(0, 3);
  for (const double temperature : {0.5, 1.0, 2.5}) {
    engine::TemperatureFit fit;
    for (int i = 0; i < 1024; ++i) {
      const double logit = normal(random);
      fit.add(static_cast<float>(logit), uniform(random) < 1 / (1 + std::exp(-logit / temperature)));
    }
    ASSERT_TRUE(fit.is_due());
    EXPECT_NEAR(fit.fit() / temperature, 1.0, 0.2);
    EXPECT_FALSE(fit.is_due());
  }
}

}  // namespace
}  // namespace deepinfer::test
