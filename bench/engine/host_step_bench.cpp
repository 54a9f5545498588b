// What the engine itself costs per step: planning, block tables, bookkeeping and delivery, with a device that computes nothing and a
// vocabulary of 8, so that sampling, which is measured elsewhere, does not count.
#include <benchmark/benchmark.h>

#include <memory>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace {

using namespace deepinfer;

constexpr std::int32_t kVocab = 8;
constexpr std::int32_t kContext = 8192;

std::unique_ptr<engine::Engine> null_engine(std::int32_t num_requests, std::int32_t overlap_depth) {
  auto logits = std::make_shared<std::vector<float>>(static_cast<std::size_t>(num_requests * kVocab));
  for (std::size_t i = 0; i < logits->size(); ++i) {
    (*logits)[i] = static_cast<float>(i % kVocab);
  }
  engine::EngineParts parts{
      .model = engine::synchronous([logits](std::span<const model::Chunk> chunks) {
        std::size_t num_rows = 0;
        for (const model::Chunk& chunk : chunks) {
          num_rows += static_cast<std::size_t>(chunk.num_logit_rows);
        }
        return std::span<const float>(*logits).first(num_rows * kVocab);
      }),
      .token_bytes = [](TokenId) { return std::string_view("x"); },
      .vocab_size = kVocab,
      .eos = {0},
      .num_previous_tokens = 3,
      .geometry = {.positions_per_block = 128, .num_blocks = 1 + num_requests * (kContext / 128), .num_slots = 1 + 2 * num_requests}};
  parts.model.copy_state = [](SlotId, SlotId) {};
  return std::make_unique<engine::Engine>(std::move(parts), engine::EngineOptions{.max_requests = num_requests,
                                                                                  .max_batched_tokens = std::max(512, num_requests),
                                                                                  .max_model_len = kContext,
                                                                                  .max_queue = 4096,
                                                                                  .overlap_depth = overlap_depth});
}

void submit(engine::Engine& engine, std::int32_t number, std::int32_t num_tokens) {
  std::vector<TokenId> prompt(16);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = {(number >> i) % kVocab};
  }
  engine::GenerationRequest request{
      .prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = num_tokens, .ignore_eos = true};
  benchmark::DoNotOptimize(engine.submit(std::move(request), [](engine::Output&& output) { benchmark::DoNotOptimize(output); }));
}

/// One decode step of `range(0)` running requests; new ones replace those that end.
void decode_step(benchmark::State& state) {
  const auto num_requests = static_cast<std::int32_t>(state.range(0));
  const auto engine = null_engine(num_requests, static_cast<std::int32_t>(state.range(1)));
  for (std::int32_t i = 0; i < num_requests; ++i) {
    submit(*engine, i, kContext - 16);
  }
  while (engine->stats().num_waiting > 0) {
    engine->step();
  }
  std::int64_t num_submitted = num_requests;
  for (auto _ : state) {
    engine->step();
    if (engine->stats().num_finished + num_requests > num_submitted) {
      state.PauseTiming();
      while (engine->stats().num_finished + num_requests > num_submitted) {
        submit(*engine, static_cast<std::int32_t>(num_submitted++), kContext - 16);
      }
      state.ResumeTiming();
    }
  }
  state.counters["per_request"] = benchmark::Counter(static_cast<double>(num_requests),
                                                     benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(decode_step)->ArgsProduct({{1, 16, 64, 256}, {0, 1}})->ArgNames({"requests", "overlap"})->Unit(benchmark::kMicrosecond);

/// A request from submission to its end, one at a time beside `range(0)` running ones: hashing, admission, one token, release.
void short_request(benchmark::State& state) {
  const auto num_running = static_cast<std::int32_t>(state.range(0));
  const auto engine = null_engine(num_running + 1, 0);
  for (std::int32_t i = 0; i < num_running; ++i) {
    submit(*engine, i, kContext - 16);
  }
  std::int32_t number = num_running;
  for (auto _ : state) {
    submit(*engine, number++, 1);
    engine->step();
  }
}
BENCHMARK(short_request)->Arg(0)->Arg(255)->Unit(benchmark::kMicrosecond)->Iterations(8000);

}  // namespace
