// Speculation with the real model and its drafter: the same tokens whatever is drafted and verified, and as many accepted as nano's README says.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "engine/harness.h"
#include "engine/load.h"
#include "support/golden_file.h"
#include "support/test_device.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;
using engine::SpeculationMode;

const fs::path kTiny = fs::path(DEEPINFER_TEST_DATA) / "tiny";
const fs::path kNano = fs::path(DEEPINFER_MODELS) / "nano";

struct Answers {
  std::vector<Reply> replies;
  engine::SpeculationStats stats;
};

/// The replies to `requests`, all submitted at once or at random moments.
Answers answer(const fs::path& model, engine::EngineOptions options, const std::vector<engine::GenerationRequest>& requests,
               bool at_random_moments = false) {
  const auto device = test_device({});
  options.max_model_len = 1024;
  auto loaded = engine::load_engine(model, options, *device);
  check(loaded.has_value(), "the model loads");
  std::mt19937_64 random(17);
  std::vector<std::shared_ptr<Reply>> replies;
  for (const engine::GenerationRequest& request : requests) {
    replies.push_back(std::make_shared<Reply>());
    const auto id = loaded->engine->submit(request, [reply = replies.back()](engine::Output&& output) { reply->take(output); });
    check(id.has_value(), "the request is accepted");
    while (at_random_moments && random() % 3 != 0 && loaded->engine->step()) {
    }
  }
  while (loaded->engine->step()) {
  }
  const engine::EngineStats stats = loaded->engine->stats();
  check(stats.num_blocks_used == 0 && stats.num_slots_used == 0, "everything came back");
  Answers out{.replies = {}, .stats = stats.speculation};
  for (const auto& reply : replies) {
    out.replies.push_back(std::move(*reply));
  }
  return out;
}

void expect_same(const Answers& answers, const Answers& expected) {
  for (std::size_t i = 0; i < expected.replies.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    ASSERT_EQ(answers.replies[i].tokens, expected.replies[i].tokens);
    for (std::size_t t = 0; t < expected.replies[i].outputs.size(); ++t) {
      ASSERT_EQ(answers.replies[i].outputs[t].logprob, expected.replies[i].outputs[t].logprob);
    }
  }
}

std::vector<engine::GenerationRequest> random_requests(std::size_t count, std::int32_t max_tokens, std::int32_t vocab) {
  std::mt19937_64 random(61);
  std::vector<engine::GenerationRequest> out;
  for (std::size_t i = 0; i < count; ++i) {
    engine::GenerationRequest request{.sampling = random_sampling(random), .max_tokens = max_tokens, .ignore_eos = true};
    request.sampling.want_logprobs = i % 2 == 0;
    for (std::size_t n = 1 + random() % 60; n > 0; --n) {
      request.prompt.push_back({static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab))});
    }
    out.push_back(std::move(request));
  }
  return out;
}

/// Nano's samples, greedy and sampled.
std::vector<engine::GenerationRequest> sample_requests() {
  std::vector<engine::GenerationRequest> out;
  const json::Value samples = read_json(kNano / "samples.json");
  for (const json::Value& sample : *samples.as_array()) {
    engine::GenerationRequest request{.sampling = {.temperature = 0.0}, .max_tokens = 60};
    for (const std::int32_t id : integers(*sample.find("prompt_ids"))) {
      request.prompt.push_back({id});
    }
    out.push_back(request);
    request.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = out.size()};
    request.sampling.want_logprobs = true;
    out.push_back(request);
  }
  return out;
}

engine::EngineOptions with(SpeculationMode mode, std::int32_t max_drafts = -1, std::int32_t max_requests = 8) {
  return {.max_requests = max_requests, .max_batched_tokens = 128, .speculation = mode, .max_drafts = max_drafts};
}

TEST(RealSpeculation, TinyGivesTheSameTokensWithEveryNumberOfDrafts) {
  const auto requests = random_requests(24, 12, 1000);
  const Answers plain = answer(kTiny, with(SpeculationMode::off), requests);
  for (std::int32_t max_drafts = 1; max_drafts <= 5; ++max_drafts) {
    SCOPED_TRACE(max_drafts);
    const Answers drafted = answer(kTiny, with(SpeculationMode::full, max_drafts), requests, max_drafts % 2 == 0);
    expect_same(drafted, plain);
    EXPECT_GT(drafted.stats.num_verified, 100);
  }
  expect_same(answer(kTiny, with(SpeculationMode::full, -1, 1), requests), plain);
}

TEST(RealSpeculation, NanoGivesTheSameTokensForSamplesAndRandomPrompts) {
  std::vector<engine::GenerationRequest> requests = sample_requests();
  for (engine::GenerationRequest& request : random_requests(200, 10, 8000)) {
    requests.push_back(std::move(request));
  }
  const Answers plain = answer(kNano, with(SpeculationMode::off), requests);
  expect_same(answer(kNano, with(SpeculationMode::full), requests), plain);
  expect_same(answer(kNano, with(SpeculationMode::confidence), requests, true), plain);
}

TEST(RealSpeculation, NanoAcceptsAsManyAsItsReadmeSays) {
  std::vector<engine::GenerationRequest> requests;
  for (engine::GenerationRequest& request : sample_requests()) {
    if (request.sampling.temperature == 0.0) {
      request.max_tokens = 0;
      requests.push_back(std::move(request));
    }
  }
  const engine::SpeculationStats stats = answer(kNano, with(SpeculationMode::full, -1, 1), requests).stats;
  const double mean = 1 + static_cast<double>(stats.num_accepted) / static_cast<double>(stats.num_rounds);
  std::printf("mean accepted length %.3f over %lld rounds; by position", mean, static_cast<long long>(stats.num_rounds));
  for (std::size_t i = 0; i < 5; ++i) {
    std::printf(" %.3f", static_cast<double>(stats.num_accepted_at[i]) / static_cast<double>(stats.num_judged[i]));
  }
  std::printf("\n");
  EXPECT_NEAR(mean / 4.0, 1.0, 0.05);
}

}  // namespace
}  // namespace deepinfer::test
