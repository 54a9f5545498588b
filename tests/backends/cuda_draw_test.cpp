// Tokens of a GPU over the released model's vocabulary against the sampler. Skipped with the reason where there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/op_cases/op_case.h"
#include "sampling/sampler.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kVocab = 129'280;
constexpr std::int32_t kRows = 4;  // all equal, flat, peaked, as of a language model

std::vector<float> make_logits() {
  std::vector<float> out(static_cast<std::size_t>(kRows) * kVocab, 0.25F);
  std::mt19937 random(7);
  for (std::int32_t r = 1; r < kRows; ++r) {
    std::normal_distribution<float> normal(0.0F, r == 1 ? 0.01F : r == 2 ? 8.0F : 2.5F);
    std::generate_n(out.begin() + static_cast<std::ptrdiff_t>(r) * kVocab, kVocab, [&] { return normal(random); });
  }
  return out;
}

/// Row 0 comes with the temperature alone, where two columns may have the same noise.
std::vector<TokenDraw> make_draws(std::int32_t count) {
  constexpr double kTemperatures[] = {1.0, 0.6, 2.0, 1e-4, 1e7};
  std::vector<TokenDraw> out;
  for (std::int32_t i = 0; i < count; ++i) {
    TokenDraw draw{.seed = 77ULL + static_cast<std::uint64_t>(i) * 1'000'003, .position = i};
    if (i % kRows != 0) {
      draw.temperature = kTemperatures[i % 5];
      draw.top_p = i % 3 == 1 ? 0.95 : 1.0;
      draw.top_k = i % 7 == 2 ? 50 : -1;
      draw.min_p = i % 11 == 3 ? 0.02 : 0.0;
    }
    out.push_back(draw);
  }
  return out;
}

/// Two columns share the largest noise: of equal logits neither wins before sums are rounded.
bool has_tied_noise(const TokenDraw& draw) {
  std::uint32_t largest = 0;
  std::int32_t count = 0;
  for (std::int32_t group = 0; group < kVocab / 4; ++group) {
    for (const std::uint32_t word : sampling::noise_words({draw.seed, draw.position}, group)) {
      count = word >> 8 > largest ? 1 : count + (word >> 8 == largest ? 1 : 0);
      largest = std::max(largest, word >> 8);
    }
  }
  return count > 1;
}

TEST(CudaDraws, AreThoseOfTheSampler) {
  auto device = cuda::make_device({});
  if (!device) {
    GTEST_SKIP() << device.error().message;
  }
  constexpr std::int32_t kDraws = 1'200;
  const std::vector<float> logits = make_logits();
  const std::vector<TokenDraw> draws = make_draws(kDraws);
  std::vector<std::int32_t> index;
  for (std::int32_t i = 0; i < kDraws; ++i) {
    index.push_back(i % kRows);
  }
  OpMemory memory(**device);
  auto* const tokens = memory.room<std::int32_t>(kDraws);
  (*device)->ops().draw_tokens(memory.stream(), {.num_rows = kDraws,
                                                 .vocab = kVocab,
                                                 .logits = memory.put(logits),
                                                 .row_index = memory.put(index),
                                                 .draw = memory.put(draws),
                                                 .masks = nullptr,
                                                 .token = tokens});
  const std::vector<std::int32_t> got = memory.read(tokens, kDraws);
  sampling::Sampler sampler(kVocab);
  std::int32_t num_tied = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const TokenDraw& draw = draws[i];
    const std::span<const float> row = std::span(logits).subspan(static_cast<std::size_t>(index[i]) * kVocab, kVocab);
    const sampling::Params params{.temperature = draw.temperature, .top_p = draw.top_p, .top_k = draw.top_k, .min_p = draw.min_p};
    const auto wanted = sampler.sample(row, params, {draw.seed, draw.position});
    ASSERT_TRUE(wanted.has_value());
    EXPECT_EQ(got[i], wanted->value) << "draw " << i;
    num_tied += index[i] == 0 && has_tied_noise(draw) ? 1 : 0;
  }
  EXPECT_GT(num_tied, 0);
}

}  // namespace
}  // namespace deepinfer::test
