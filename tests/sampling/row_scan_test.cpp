// The largest logit, ties, and rows from which nothing can be drawn.
#include "sampling/row_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "rows.h"

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::optional<RowFailure> failure(const std::vector<float>& row) {
  const auto max = scan_row(row);
  return max ? std::nullopt : std::optional(max.error());
}

TEST(RowScan, FindsTheLargestLogitAndOfEqualsTheFirst) {
  std::mt19937_64 random(2);
  for (std::size_t size = 1; size < 200; ++size) {
    const std::vector<float> row = random_row(random, size, 2.0F, size % 2 == 0 ? 1 : 0);
    const auto expected = std::ranges::max_element(row);
    const auto max = scan_row(row);
    ASSERT_TRUE(max);
    ASSERT_EQ(max->value, *expected);
    ASSERT_EQ(max->column, expected - row.begin());
  }
}

TEST(RowScan, FindsAMaximumAtEveryPlace) {
  for (std::size_t place = 0; place < 100; ++place) {
    std::vector<float> row(100, -kInfinity);
    row[place] = -5.0F;
    ASSERT_EQ(scan_row(row)->column, static_cast<std::int32_t>(place));
  }
}

TEST(RowScan, ReportsANanAtEveryPlace) {
  for (std::size_t place = 0; place < 100; ++place) {
    std::vector<float> row(100, 1.0F);
    row[place] = kNan;
    ASSERT_EQ(failure(row), RowFailure::not_finite) << place;
    row[place] = kInfinity;
    ASSERT_EQ(failure(row), RowFailure::not_finite) << place;
  }
}

TEST(RowScan, ReportsARowThatAllowsNothing) { EXPECT_EQ(failure(std::vector<float>(40, -kInfinity)), RowFailure::nothing_allowed); }

}  // namespace
}  // namespace deepinfer::sampling
