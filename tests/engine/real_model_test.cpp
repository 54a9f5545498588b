// The laws of the engine with the real model: tiny for the laws, nano for its stored texts.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/harness.h"
#include "engine/load.h"
#include "support/golden_file.h"
#include "support/test_device.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(DEEPINFER_TEST_DATA) / "tiny";

struct RealEngine {
  std::unique_ptr<Device> device;
  engine::LoadedEngine loaded;

  static RealEngine load(const fs::path& directory, const engine::EngineOptions& options, std::int32_t num_threads = 0) {
    std::unique_ptr<Device> device = test_device({.num_threads = num_threads});
    auto loaded = engine::load_engine(directory, options, *device);
    check(loaded.has_value(), "the model loads");
    return {.device = std::move(device), .loaded = std::move(*loaded)};
  }

  std::shared_ptr<Reply> submit(const engine::GenerationRequest& request) {
    auto reply = std::make_shared<Reply>();
    const auto id = loaded.engine->submit(request, [reply](engine::Output&& output) { reply->take(output); });
    check(id.has_value(), "the request is accepted");
    return reply;
  }
  void run_to_the_end() {
    while (loaded.engine->step()) {
    }
    check(loaded.engine->stats().num_blocks_used == 0 && loaded.engine->stats().num_slots_used == 0, "everything came back");
  }
};

const fs::path kNano = fs::path(DEEPINFER_MODELS) / "nano";

/// A random prompt of `num_prompt` tokens; at this seed the reply is what it is, EOS or not.
engine::GenerationRequest request_of(std::mt19937_64& random, std::size_t num_prompt, std::int32_t num_tokens) {
  engine::GenerationRequest request{.sampling = random_sampling(random), .max_tokens = num_tokens, .ignore_eos = true};
  while (request.prompt.size() < num_prompt) {
    request.prompt.push_back({static_cast<std::int32_t>(random() % 1000)});
  }
  return request;
}

std::vector<TokenId> tokens_alone(const fs::path& directory, const engine::GenerationRequest& request) {
  RealEngine engine = RealEngine::load(directory, {.max_requests = 1, .max_batched_tokens = 512, .max_model_len = 512});
  const auto reply = engine.submit(request);
  engine.run_to_the_end();
  return reply->tokens;
}

class RealModelLaw : public testing::TestWithParam<fs::path> {};

TEST_P(RealModelLaw, BatchedWithCompanionsIsAlone) {
  const std::uint64_t seed = 21;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (const std::size_t num_companions : {1U, 6U, 15U}) {
    RealEngine engine = RealEngine::load(GetParam(), {.max_requests = 16, .max_batched_tokens = 40, .max_model_len = 256});
    std::vector<std::pair<engine::GenerationRequest, std::shared_ptr<Reply>>> requests;
    for (std::size_t i = 0; i <= num_companions; ++i) {
      const auto request = request_of(random, 1 + random() % 40, 5);
      requests.emplace_back(request, engine.submit(request));
      if (random() % 2 == 0) {
        engine.loaded.engine->step();
      }
    }
    engine.run_to_the_end();
    for (std::size_t i = 0; i < requests.size(); i += 3) {
      EXPECT_EQ(requests[i].second->tokens, tokens_alone(GetParam(), requests[i].first)) << num_companions << " companions";
    }
  }
}

TEST_P(RealModelLaw, AnyChunkingIsTheWholePrompt) {
  std::mt19937_64 random(22);
  const engine::GenerationRequest request = request_of(random, 100, 4);
  const std::vector<TokenId> whole = tokens_alone(GetParam(), request);
  for (const std::int32_t budget : {1, 7, 16, 33, 64, 99}) {
    RealEngine engine = RealEngine::load(GetParam(), {.max_requests = 1, .max_batched_tokens = budget, .max_model_len = 256});
    const auto reply = engine.submit(request);
    engine.run_to_the_end();
    EXPECT_EQ(reply->tokens, whole) << "budget " << budget;
  }
}

TEST_P(RealModelLaw, PreemptedAndResumedIsUninterrupted) {
  std::mt19937_64 random(23);
  // Three blocks for two requests of up to two blocks: the second one to cross position 128 must give way.
  engine::EngineOptions options{.max_requests = 2, .max_batched_tokens = 160, .max_model_len = 256};
  options.kv_memory_bytes = 4 * RealEngine::load(GetParam(), options).loaded.memory.cache.per_block();
  RealEngine engine = RealEngine::load(GetParam(), options);
  ASSERT_EQ(engine.loaded.engine->stats().num_blocks, 3);
  std::vector<std::pair<engine::GenerationRequest, std::shared_ptr<Reply>>> requests;
  for (const std::size_t num_prompt : {120U, 122U}) {
    const auto request = request_of(random, num_prompt, 12);
    requests.emplace_back(request, engine.submit(request));
  }
  engine.run_to_the_end();
  EXPECT_GT(engine.loaded.engine->stats().num_preemptions, 0);
  for (const auto& [request, reply] : requests) {
    EXPECT_EQ(reply->tokens, tokens_alone(GetParam(), request));
  }
}

TEST_P(RealModelLaw, SwappedAndRestoredIsKept) {
  for (const std::int32_t overlap_depth : {0, 1}) {
    std::mt19937_64 random(29);
    engine::EngineOptions options{.max_requests = 2,
                                  .max_batched_tokens = 160,
                                  .max_model_len = 384,
                                  .prefix_cache = false,
                                  .swap_memory_bytes = std::size_t{1} << 30,
                                  .overlap_depth = overlap_depth};
    options.kv_memory_bytes = 6 * RealEngine::load(GetParam(), options).loaded.memory.cache.per_block();
    RealEngine engine = RealEngine::load(GetParam(), options);
    ASSERT_EQ(engine.loaded.engine->stats().num_blocks, 5);
    std::vector<std::pair<engine::GenerationRequest, std::shared_ptr<Reply>>> requests;
    for (const std::size_t num_prompt : {248U, 250U}) {
      const auto request = request_of(random, num_prompt, 12);
      requests.emplace_back(request, engine.submit(request));
    }
    engine.run_to_the_end();
    EXPECT_EQ(engine.loaded.engine->stats().swap.num_restored, 1);
    EXPECT_EQ(engine.loaded.engine->stats().num_prefill_tokens, 248 + 250 + 1) << "only the row that follows is computed";
    for (const auto& [request, reply] : requests) {
      EXPECT_EQ(reply->tokens, tokens_alone(GetParam(), request));
    }
  }
}

TEST_P(RealModelLaw, AnyNumberOfThreadsGivesTheSameTokens) {
  std::mt19937_64 random(24);
  std::vector<engine::GenerationRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(request_of(random, 1 + random() % 60, 5));
  }
  std::vector<std::vector<TokenId>> want;
  for (const std::int32_t num_threads : {1, 2, 5}) {
    RealEngine engine = RealEngine::load(GetParam(), {.max_requests = 4, .max_batched_tokens = 64, .max_model_len = 256}, num_threads);
    std::vector<std::shared_ptr<Reply>> replies;
    for (const engine::GenerationRequest& request : requests) {
      replies.push_back(engine.submit(request));
    }
    engine.run_to_the_end();
    std::vector<std::vector<TokenId>> tokens;
    for (const auto& reply : replies) {
      tokens.push_back(reply->tokens);
    }
    want = want.empty() ? tokens : want;
    EXPECT_EQ(tokens, want) << num_threads << " threads";
  }
}

TEST_P(RealModelLaw, ACancelReturnsItsBlocksWithinOneStepAndChangesNobodyElse) {
  std::mt19937_64 random(25);
  RealEngine engine = RealEngine::load(GetParam(), {.max_requests = 3, .max_batched_tokens = 32, .max_model_len = 256});
  const auto kept = request_of(random, 20, 60);
  const auto reply = engine.submit(kept);
  // One is cancelled while it decodes, one in the middle of its prompt.
  for (const std::size_t num_prompt : {10U, 200U}) {
    engine::FinishReason reason{};
    const auto id = engine.loaded.engine->submit(request_of(random, num_prompt, 50), [&](engine::Output&& output) {
      if (output.finish) {
        reason = output.finish->reason;
      }
    });
    ASSERT_TRUE(id);
    engine.loaded.engine->step();
    engine.loaded.engine->step();
    const std::int32_t num_used = engine.loaded.engine->stats().num_blocks_used;
    engine.loaded.engine->cancel(*id);
    engine.loaded.engine->step();
    EXPECT_EQ(reason, engine::FinishReason::cancelled);
    EXPECT_EQ(engine.loaded.engine->stats().num_slots_used, 1);
    EXPECT_EQ(engine.loaded.engine->stats().num_blocks_used, num_used - (num_prompt == 10U ? 1 : 2));
  }
  engine.run_to_the_end();
  EXPECT_EQ(reply->tokens, tokens_alone(GetParam(), kept));
}

/// `num_common` tokens of `base`, then others.
engine::GenerationRequest variant_of(std::mt19937_64& random, const engine::GenerationRequest& base, std::size_t num_common,
                                     std::size_t size) {
  engine::GenerationRequest out = request_of(random, size, 4);
  std::copy_n(base.prompt.begin(), num_common, out.prompt.begin());
  if (num_common < base.prompt.size() && out.prompt[num_common] == base.prompt[num_common]) {
    out.prompt[num_common] = {(base.prompt[num_common].value + 1) % 1000};
  }
  return out;
}

TEST_P(RealModelLaw, AnExactPrefixHitIsAColdStart) {
  std::mt19937_64 random(26);
  for (const std::int32_t overlap_depth : {0, 1}) {
    RealEngine engine =
        RealEngine::load(GetParam(), {.max_requests = 2, .max_batched_tokens = 96, .max_model_len = 512, .overlap_depth = overlap_depth});
    const auto base = request_of(random, 300, 1);
    static_cast<void>(engine.submit(base));
    engine.run_to_the_end();
    // Around blocks, windows and chunks; the first of a kind leaves the state that the second starts from.
    for (const std::uint32_t num_common : overlap_depth == 0 ? std::vector{127U, 128U, 129U, 192U, 255U, 256U} : std::vector{128U, 257U}) {
      for (int i = 0; i < 2; ++i) {
        const auto request = variant_of(random, base, num_common, std::size_t{num_common} + 1 + 20 * static_cast<std::size_t>(i));
        const auto reply = engine.submit(request);
        engine.run_to_the_end();
        EXPECT_EQ(reply->tokens, tokens_alone(GetParam(), request)) << num_common << " tokens in common";
        if (i == 1) {
          EXPECT_EQ(reply->num_cached_tokens, static_cast<std::int32_t>(num_common / 128 * 128));
        }
      }
    }
  }
}

std::vector<TokenId> tokens_bounded(const fs::path& directory, const std::vector<engine::GenerationRequest>& requests,
                                    engine::EngineOptions options) {
  options.replay = engine::Replay::bounded;
  RealEngine engine = RealEngine::load(directory, options);
  std::shared_ptr<Reply> last;
  for (const engine::GenerationRequest& request : requests) {
    last = engine.submit(request);
    engine.run_to_the_end();
  }
  return last->tokens;
}

TEST_P(RealModelLaw, BoundedReplayDoesNotDependOnChunksAndIsExactForShortPrompts) {
  std::mt19937_64 random(27);
  const auto keep = static_cast<std::size_t>(
      RealEngine::load(GetParam(), {.max_requests = 1, .max_batched_tokens = 16, .max_model_len = 128}).loaded.config.sliding_window +
      engine::kDefaultKeepBeyondWindow);
  for (const std::size_t num_prompt : {keep - 8, keep, keep + 1, std::size_t{150}}) {
    const auto request = request_of(random, num_prompt, 6);
    const auto whole = tokens_bounded(GetParam(), {request}, {.max_requests = 1, .max_batched_tokens = 512, .max_model_len = 512});
    EXPECT_EQ(tokens_bounded(GetParam(), {request},
                             {.max_requests = 1, .max_batched_tokens = 64, .max_model_len = 512, .replay_masks = true}),
              whole);
    for (const std::int32_t budget : {1, 13, 64}) {
      EXPECT_EQ(tokens_bounded(GetParam(), {request}, {.max_requests = 1, .max_batched_tokens = budget, .max_model_len = 512}), whole);
    }
    if (num_prompt <= keep) {
      EXPECT_EQ(whole, tokens_alone(GetParam(), request));
    }
  }
}

TEST_P(RealModelLaw, PromptLogprobsAreThoseOfGenerationAlsoBesideBoundedReplayAndCachedPrefixes) {
  std::mt19937_64 random(29);
  engine::GenerationRequest request = request_of(random, 150, 20);
  request.sampling = {.temperature = 0.0, .want_logprobs = true, .num_top_logprobs = 2};
  RealEngine exact = RealEngine::load(GetParam(), {.max_requests = 1, .max_batched_tokens = 512, .max_model_len = 512});
  const auto generated = exact.submit(request);
  exact.run_to_the_end();
  const std::size_t num_first = request.prompt.size();
  request.prompt.insert(request.prompt.end(), generated->tokens.begin(), generated->tokens.end());
  request.max_tokens = 1;
  for (const engine::Replay replay : {engine::Replay::exact, engine::Replay::bounded}) {
    RealEngine engine = RealEngine::load(GetParam(), {.max_requests = 6, .max_batched_tokens = 64, .max_model_len = 512, .replay = replay});
    request.sampling.want_prompt_logprobs = false;
    static_cast<void>(engine.submit(request));  // leaves its prefix
    engine.run_to_the_end();
    request.sampling.want_prompt_logprobs = true;
    const auto scored = engine.submit(request);
    static_cast<void>(engine.submit(request_of(random, 40, 5)));
    engine.run_to_the_end();
    EXPECT_EQ(scored->num_cached_tokens, 0);
    ASSERT_EQ(scored->prompt.size(), request.prompt.size() - 1);
    for (std::size_t i = 0; i < generated->outputs.size(); ++i) {
      const engine::TokenOutput& given = scored->prompt[num_first - 1 + i];
      ASSERT_EQ(given.token, generated->outputs[i].token);
      ASSERT_EQ(given.logprob, generated->outputs[i].logprob);
      ASSERT_EQ(given.top_logprobs, generated->outputs[i].top_logprobs);
    }
  }
}

TEST_P(RealModelLaw, ABoundedPrefixHitDoesNotDependOnChunksOrTheSlot) {
  std::mt19937_64 random(28);
  const auto base = request_of(random, 300, 1);
  const auto request = variant_of(random, base, 290, 310);
  RealEngine engine =
      RealEngine::load(GetParam(), {.max_requests = 2, .max_batched_tokens = 512, .max_model_len = 512, .replay = engine::Replay::bounded});
  static_cast<void>(engine.submit(base));
  engine.run_to_the_end();
  const auto reply = engine.submit(request);
  engine.run_to_the_end();
  EXPECT_EQ(reply->num_cached_tokens, 256 - engine.loaded.config.sliding_window) << "one window before the two blocks that are there";
  for (const std::int32_t budget : {7, 40}) {
    EXPECT_EQ(tokens_bounded(GetParam(), {base, request}, {.max_requests = 1, .max_batched_tokens = budget, .max_model_len = 512}),
              reply->tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealModelLaw, testing::Values(kTiny, kNano),
                         [](const auto& tested) { return tested.param.filename().string(); });

TEST(RealModel, NanoAnswersAsItsStoredSamples) {
  RealEngine engine = RealEngine::load(kNano, {.max_requests = 4, .max_batched_tokens = 64, .max_model_len = 512});
  const json::Value samples = read_json(kNano / "samples.json");
  int num_compared = 0;
  for (const json::Value& sample : *samples.as_array()) {
    const std::vector<std::int32_t> expected = integers(*sample.find("output_ids"));
    const std::vector<std::int32_t> prompt = integers(*sample.find("prompt_ids"));
    if (prompt.size() > 40 || expected.size() > 20) {
      continue;
    }
    engine::GenerationRequest request{.sampling = {.temperature = 0.0}, .max_tokens = 200};
    for (const std::int32_t id : prompt) {
      request.prompt.push_back({id});
    }
    const auto reply = engine.submit(request);
    engine.run_to_the_end();
    const std::vector<double> margins = numbers(*sample.find("margins"));
    // Where two tokens are nearly equal another order of summation may choose the other one; what follows is another text.
    const auto close = std::ranges::find_if(margins, [](double margin) { return margin < 0.5; });
    const auto num_certain = static_cast<std::size_t>(close - margins.begin());
    ASSERT_GE(reply->tokens.size() + 1, num_certain);
    for (std::size_t i = 0; i < std::min(num_certain, reply->tokens.size()); ++i) {
      EXPECT_EQ(reply->tokens[i].value, expected[i]) << *sample.find("name")->as_string() << " token " << i;
    }
    if (num_certain == margins.size()) {
      EXPECT_EQ(reply->finish->reason, engine::FinishReason::stop);
    }
    ++num_compared;
  }
  std::printf("%d samples compared\n", num_compared);
  EXPECT_GE(num_compared, 3);
}

}  // namespace
}  // namespace deepinfer::test
