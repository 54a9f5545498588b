// The coupled rule: the pruned search equals the full one, draws follow the distribution, nothing else enters.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "rows.h"

namespace deepinfer::sampling {
namespace {

/// Every column's noise evaluated, no column skipped.
TokenId by_full_evaluation(const Distribution& distribution, RandomKey key) {
  std::size_t best = 0;
  float best_value = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < distribution.columns().size(); ++i) {
    const float value = distribution.log_probabilities()[i] + noise_at(key, distribution.columns()[i]);
    if (value > best_value) {
      best_value = value;
      best = i;
    }
  }
  return {distribution.columns()[best]};
}

TEST(Sampler, SkippingColumnsNeverChangesTheToken) {
  const std::uint64_t seed = 20265;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 1'500; ++round) {
    const std::size_t size = 1 + random() % 2'000;
    const std::vector<float> logits = random_row(random, size, static_cast<float>(random() % 5), round % 4 == 0 ? 1 : 0);
    const Params params{.temperature = 0.25 + static_cast<double>(random() % 8) * 0.25,
                        .top_p = round % 2 == 0 ? 1.0 : 0.9,
                        .top_k = round % 3 == 0 ? 1 + static_cast<std::int32_t>(random() % 100) : -1};
    const RandomKey key{.seed = random(), .position = static_cast<std::int64_t>(random() % 100'000)};
    Sampler sampler(static_cast<std::int32_t>(size));
    const auto token = sampler.sample(logits, params, key);
    ASSERT_TRUE(token);
    ASSERT_EQ(*token, by_full_evaluation(sampler.distribution(), key)) << "round " << round;
  }
}

TEST(Sampler, DrawsFollowTheProcessedDistribution) {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F, -1.0F, 0.5F, -3.0F};
  Sampler sampler(6);
  const Params params{.temperature = 0.8, .top_p = 0.95};
  std::vector<int> counts(6);
  const int num_draws = 60'000;
  for (int position = 0; position < num_draws; ++position) {
    ++counts[static_cast<std::size_t>(sampler.sample(logits, params, {.seed = 11, .position = position})->value)];
  }
  double chi_square = 0.0;
  for (std::int32_t column = 0; column < 6; ++column) {
    const double expected = num_draws * std::exp(sampler.distribution().logprob(column, LogprobKind::processed));
    if (expected < 1e-3) {
      EXPECT_EQ(counts[static_cast<std::size_t>(column)], 0);
    } else {
      chi_square += std::pow(counts[static_cast<std::size_t>(column)] - expected, 2) / expected;
    }
  }
  EXPECT_LT(chi_square, 18.5);  // 0.1 % point of four degrees of freedom
}

TEST(Sampler, SeedAndPositionDecideAndNothingElse) {
  std::mt19937_64 random(5);
  const std::vector<float> row = random_row(random, 500, 1.0F);
  const std::vector<float> other = random_row(random, 500, 1.0F);
  Sampler sampler(500);
  Sampler fresh(500);
  int num_changed = 0;
  for (std::int64_t position = 0; position < 200; ++position) {
    const auto token = sampler.sample(row, {}, {.seed = 1, .position = position});
    (void)sampler.sample(other, {.temperature = 0.5, .top_k = 3}, {.seed = 9, .position = position});
    ASSERT_EQ(sampler.sample(row, {}, {.seed = 1, .position = position}), token);
    ASSERT_EQ(fresh.sample(row, {}, {.seed = 1, .position = position}), token);
    num_changed += sampler.sample(row, {}, {.seed = 2, .position = position}) != token ? 1 : 0;
  }
  EXPECT_GT(num_changed, 150);
}

TEST(Sampler, GreedyIgnoresTheSeed) {
  std::mt19937_64 random(6);
  const std::vector<float> row = random_row(random, 500, 1.0F, 1);
  Sampler sampler(500);
  const auto token = sampler.sample(row, {.temperature = 0.0}, {.seed = 1, .position = 3});
  EXPECT_EQ(token->value, sampler.distribution().argmax());
  EXPECT_EQ(sampler.sample(row, {.temperature = 0.0}, {.seed = 2, .position = 4}), token);
}

TEST(Sampler, NeverDrawsAColumnThatIsNotAllowed) {
  std::vector<float> row(64, -std::numeric_limits<float>::infinity());
  row[5] = -3.0F;
  row[40] = -8.0F;
  Sampler sampler(64);
  for (std::int64_t position = 0; position < 2'000; ++position) {
    const std::int32_t token = sampler.sample(row, {.temperature = 2.0}, {.seed = 3, .position = position})->value;
    ASSERT_TRUE(token == 5 || token == 40) << token;
  }
}

TEST(Sampler, ABadRowIsAValueThatSaysWhy) {
  Sampler sampler(8);
  std::vector<float> row(8, 0.0F);
  row[7] = std::numeric_limits<float>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    const auto token = sampler.sample(row, {.temperature = temperature}, {});
    ASSERT_FALSE(token);
    EXPECT_EQ(describe(token.error()), "the model's logits are not finite numbers");
  }
}

}  // namespace
}  // namespace deepinfer::sampling
