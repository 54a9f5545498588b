// The radix search against a full sort.
#include "sampling/prefix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "rows.h"

namespace deepinfer::sampling {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

std::vector<double> weights_of(const std::vector<float>& logits) {
  std::vector<double> weights;
  for (const float logit : logits) {
    weights.push_back(std::exp(static_cast<double>(logit)));
  }
  return weights;
}

std::vector<std::int32_t> by_sorting(const std::vector<float>& logits, const std::vector<double>& weights, double units,
                                     PrefixLimit limit) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t c) { return logits[static_cast<std::size_t>(c)] == kRemoved; });
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::int32_t c) { return logits[static_cast<std::size_t>(c)]; });
  std::size_t num_kept = 0;
  std::int64_t mass = 0;
  while (num_kept < order.size() && static_cast<std::int32_t>(num_kept) < limit.num_columns && mass < limit.mass) {
    mass += static_cast<std::int64_t>(weights[static_cast<std::size_t>(order[num_kept++])] * units);
  }
  order.resize(num_kept);
  std::ranges::sort(order);
  return order;
}

std::vector<std::int32_t> select(const std::vector<float>& logits, PrefixLimit limit) {
  const std::vector<double> weights = weights_of(logits);
  PrefixSelector selector(static_cast<std::int32_t>(logits.size()));
  const auto selected = selector.select(logits, weights, kMassUnits / std::accumulate(weights.begin(), weights.end(), 0.0), limit);
  return {selected.begin(), selected.end()};
}

using Columns = std::vector<std::int32_t>;

TEST(Prefix, TakesTheLargestAndOfEqualsTheSmallestColumns) {
  EXPECT_EQ(select({1.0F, 3.0F, 2.0F, 3.0F, 2.0F}, {.num_columns = 3}), (Columns{1, 2, 3}));
  EXPECT_EQ(select({2.0F, 2.0F, 2.0F}, {.num_columns = 2}), (Columns{0, 1}));
}

TEST(Prefix, TreatsBothZerosAsEqual) { EXPECT_EQ(select({-0.0F, 0.0F, -1.0F}, {.num_columns = 1}), (Columns{0})); }

TEST(Prefix, StopsAtTheColumnThatReachesTheMass) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(select(logits, {.mass = static_cast<std::int64_t>(0.4 * kMassUnits)}), (Columns{0}));
  EXPECT_EQ(select(logits, {.mass = static_cast<std::int64_t>(0.6 * kMassUnits)}), (Columns{0, 1}));
  EXPECT_EQ(select(logits, {.mass = static_cast<std::int64_t>(0.9 * kMassUnits)}), (Columns{0, 1, 2}));
}

TEST(Prefix, WithoutALimitReachedKeepsEveryAllowedColumn) {
  EXPECT_EQ(select({1.0F, kRemoved, -90.0F}, {}), (Columns{0, 2}));
  EXPECT_EQ(select({1.0F, kRemoved, -90.0F}, {.num_columns = 5}), (Columns{0, 2}));
}

TEST(Prefix, AgreesWithAFullSortOnRandomRows) {
  const std::uint64_t seed = 20264;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  PrefixSelector selector(600);
  for (int round = 0; round < 3'000; ++round) {
    std::vector<float> logits = random_row(random, 1 + random() % 600, 3.0F, round % 3 == 0 ? 2 : 0);
    for (float& logit : logits) {
      logit = random() % 20 == 0 ? kRemoved : logit;
    }
    logits[random() % logits.size()] = 0.5F;
    const std::vector<double> weights = weights_of(logits);
    const double units = kMassUnits / std::accumulate(weights.begin(), weights.end(), 0.0);
    PrefixLimit limit;
    if (random() % 2 == 0) {
      limit.num_columns = 1 + static_cast<std::int32_t>(random() % 700);
    }
    if (random() % 2 == 0) {
      limit.mass = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kMassUnits));
    }
    const auto selected = selector.select(logits, weights, units, limit);
    ASSERT_EQ(Columns(selected.begin(), selected.end()), by_sorting(logits, weights, units, limit)) << "round " << round;
  }
}

}  // namespace
}  // namespace deepinfer::sampling
