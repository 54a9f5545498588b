// The rejection rule beyond the reference's vectors: known draws and the distribution of its outputs.
#include "sampling/rejection.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepinfer::sampling {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

TEST(Rejection, DrawsTheKnownColumns) {
  // engine.md §10.1: 32 columns, weight ∝ column + 1, seeds 0 … 11, position 10.
  std::vector<float> weights;
  for (int c = 0; c < 32; ++c) {
    weights.push_back(static_cast<float>((c + 1) / 528.0));
  }
  RejectionRule rule(32);
  const std::vector<std::int32_t> expected = {22, 18, 8, 8, 29, 17, 24, 13, 21, 28, 16, 21};
  for (std::size_t seed = 0; seed < expected.size(); ++seed) {
    EXPECT_EQ(rule.draw(weights, WordStream({.seed = seed, .position = 10}, Purpose::fresh)).value, expected[seed]);
  }
}

TEST(Rejection, OutputsFollowTheTargetWhateverTheDraftIs) {
  const std::vector<float> target = {std::log(0.5F), std::log(0.3F), std::log(0.2F), kRemoved};
  const std::vector<float> draft = {std::log(0.1F), std::log(0.3F), kRemoved, std::log(0.6F)};
  RejectionRule rule(4);
  std::vector<int> counts(4);
  const int num_draws = 40'000;
  for (int position = 0; position < num_draws; ++position) {
    const RandomKey key{.seed = 21, .position = position};
    const TokenId proposal = rule.sample_draft(draft, key);
    ++counts[static_cast<std::size_t>(rule.verify(target, draft, proposal, key).token.value)];
  }
  EXPECT_EQ(counts[3], 0);
  double chi_square = 0.0;
  for (std::size_t c = 0; c < 3; ++c) {
    const double expected = num_draws * std::exp(target[c]);
    chi_square += std::pow(counts[c] - expected, 2) / expected;
  }
  EXPECT_LT(chi_square, 13.8);  // 0.1 % point of two degrees of freedom
}

TEST(Rejection, ADraftOutsideTheTargetIsNeverAccepted) {
  const std::vector<float> target = {0.0F, kRemoved};
  const std::vector<float> draft = {kRemoved, 0.0F};
  RejectionRule rule(2);
  for (int position = 0; position < 1'000; ++position) {
    ASSERT_EQ(rule.verify(target, draft, {1}, {.seed = 1, .position = position}), (Verdict{.accepted = false, .token = {0}}));
  }
}

TEST(Rejection, AnEmptyResidualGivesTheArgmaxOfTheTarget) {
  // Target and draft agree but for less than one unit: the residual has no mass, and a draft that is not proposed is rejected.
  const std::vector<float> target = {kRemoved, std::log(0.5F), std::log(0.5F)};
  const std::vector<float> draft = {std::log(1e-9F), 0.0F, 0.0F};
  RejectionRule rule(3);
  EXPECT_EQ(rule.verify(target, draft, {0}, {.seed = 1, .position = 5}), (Verdict{.accepted = false, .token = {1}}));
}

}  // namespace
}  // namespace deepinfer::sampling
