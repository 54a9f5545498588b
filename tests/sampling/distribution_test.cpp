// Filters, normalisation, raw and processed log-probabilities.
#include "sampling/distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "rows.h"

namespace deepinfer::sampling {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

std::vector<std::int32_t> columns(const Distribution& distribution) {
  return {distribution.columns().begin(), distribution.columns().end()};
}

TEST(Distribution, KeptProbabilitiesAddUpToOne) {
  std::mt19937_64 random(3);
  Distribution distribution(1000);
  for (const Params params : {Params{}, Params{.temperature = 0.3}, Params{.top_p = 0.9}, Params{.top_k = 17},
                              Params{.temperature = 1.7, .top_p = 0.5, .top_k = 40}}) {
    const std::vector<float> logits = random_row(random, 1000, 3.0F);
    ASSERT_TRUE(distribution.read(logits, params));
    double sum = 0.0;
    for (const float log_prob : distribution.log_probabilities()) {
      sum += std::exp(static_cast<double>(log_prob));
    }
    EXPECT_NEAR(sum, 1.0, 1e-6);
  }
}

TEST(Distribution, AppliesTopPToTheFullSoftmaxAndThenTopK) {
  Distribution distribution(4);
  const std::vector<float> logits = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  ASSERT_TRUE(distribution.read(logits, {.top_p = 0.65, .top_k = 2}));
  EXPECT_EQ(columns(distribution), (std::vector<std::int32_t>{0, 1}));
  ASSERT_TRUE(distribution.read(logits, {.top_p = 0.65, .top_k = 3}));
  EXPECT_EQ(columns(distribution), (std::vector<std::int32_t>{0, 1}));
  ASSERT_TRUE(distribution.read(logits, {.top_p = 0.75, .top_k = 4}));
  EXPECT_EQ(columns(distribution), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_NEAR(distribution.logprob(0, LogprobKind::processed), std::log(0.4 / 0.9), 1e-6);
  EXPECT_EQ(distribution.logprob(3, LogprobKind::processed), kRemovedLogprob);
  EXPECT_NEAR(distribution.logprob(3, LogprobKind::raw), std::log(0.1), 1e-6);
}

TEST(Distribution, TemperatureBelowTheThresholdIsTheFirstArgmax) {
  Distribution distribution(5);
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, 2.0F, -1.0F};
  for (const double temperature : {0.0, 9e-6}) {
    ASSERT_TRUE(distribution.read(logits, {.temperature = temperature}));
    EXPECT_EQ(columns(distribution), std::vector<std::int32_t>{1});
    EXPECT_EQ(distribution.argmax(), 1);
    EXPECT_EQ(distribution.logprob(1, LogprobKind::processed), 0.0F);
    EXPECT_EQ(distribution.logprob(3, LogprobKind::processed), kRemovedLogprob);
    EXPECT_LT(distribution.logprob(1, LogprobKind::raw), 0.0F);
  }
}

TEST(Distribution, RawLogprobsDoNotDependOnTheParameters) {
  std::mt19937_64 random(4);
  const std::vector<float> logits = random_row(random, 300, 3.0F);
  Distribution plain(300);
  Distribution filtered(300);
  ASSERT_TRUE(plain.read(logits, {}));
  ASSERT_TRUE(filtered.read(logits, {.temperature = 0.4, .top_p = 0.5, .top_k = 3}));
  for (std::int32_t column = 0; column < 300; ++column) {
    ASSERT_EQ(plain.logprob(column, LogprobKind::raw), filtered.logprob(column, LogprobKind::raw));
  }
}

TEST(Distribution, TopListsAreInOrderAndEndWithWhatIsLeft) {
  Distribution distribution(6);
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 3.0F, kRemoved, 0.0F};
  ASSERT_TRUE(distribution.read(logits, {.top_k = 2}));
  const auto raw = distribution.top(4, LogprobKind::raw);
  ASSERT_EQ(raw.size(), 4U);
  EXPECT_EQ(raw[0].token, TokenId{1});
  EXPECT_EQ(raw[1].token, TokenId{3});
  EXPECT_EQ(raw[2].token, TokenId{2});
  EXPECT_EQ(raw[3].token, TokenId{0});
  EXPECT_GT(raw[1].logprob, raw[2].logprob);
  const auto processed = distribution.top(4, LogprobKind::processed);
  ASSERT_EQ(processed.size(), 2U);
  EXPECT_NEAR(processed[0].logprob, std::log(0.5), 1e-6);
  EXPECT_TRUE(distribution.top(0, LogprobKind::raw).empty());
  EXPECT_EQ(distribution.top(100, LogprobKind::raw).size(), 5U);
}

TEST(Distribution, ColumnsThatAreNotAllowedHaveNoProbability) {
  Distribution distribution(3);
  const std::vector<float> logits = {kRemoved, 0.0F, 0.0F};
  ASSERT_TRUE(distribution.read(logits, {}));
  EXPECT_EQ(distribution.logprob(0, LogprobKind::raw), kRemovedLogprob);
  EXPECT_NEAR(distribution.logprob(2, LogprobKind::raw), std::log(0.5), 1e-6);
}

TEST(Distribution, AFailedRowLeavesTheNextOneAlone) {
  Distribution distribution(3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(distribution.read(std::vector<float>{0.0F, nan, 0.0F}, {}).error(), RowFailure::not_finite);
  EXPECT_EQ(distribution.read(std::vector<float>{kRemoved, kRemoved, kRemoved}, {}).error(), RowFailure::nothing_allowed);
  const std::vector<float> good = {0.0F, 1.0F, 0.0F};
  ASSERT_TRUE(distribution.read(good, {.temperature = 0.0}));
  EXPECT_EQ(distribution.argmax(), 1);
}

}  // namespace
}  // namespace deepinfer::sampling
