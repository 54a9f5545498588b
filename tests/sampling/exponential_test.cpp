// The exponential and the logarithm against long double, and the row against the single value.
#include "sampling/exponential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "rows.h"

namespace deepinfer::sampling {
namespace {

TEST(Exponential, IsWithinOneUnitOfTheTrueValue) {
  for (int i = 0; i <= 70'000; ++i) {
    const double x = -0.01 * i;
    const long double exact = std::exp(static_cast<long double>(x));
    ASSERT_LE(std::abs(static_cast<long double>(exp_nonpositive(x)) - exact), 1e-15L * exact) << x;
  }
  EXPECT_EQ(exp_nonpositive(0.0), 1.0);
}

TEST(Exponential, OfVeryNegativeNumbersIsZero) {
  EXPECT_EQ(exp_nonpositive(-708.5), 0.0);
  EXPECT_EQ(exp_nonpositive(-1e300), 0.0);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(Logarithm, IsWithinOneUnitOfTheTrueValue) {
  for (double x = 1e-300; x < 1e300; x *= 1.0007) {
    const long double exact = std::log(static_cast<long double>(x));
    ASSERT_LE(std::abs(static_cast<long double>(log_positive(x)) - exact), 1e-15L * std::max(1.0L, std::abs(exact))) << x;
  }
  EXPECT_EQ(log_positive(1.0), 0.0);
}

TEST(Exponentiate, GivesEveryColumnTheSingleValueAndReturnsTheirSum) {
  std::mt19937_64 random(1);
  for (const std::size_t size : {1U, 2U, 7U, 8U, 9U, 31U, 8192U, 10'001U}) {
    const std::vector<float> logits = random_row(random, size, 4.0F);
    const float max = *std::max_element(logits.begin(), logits.end());
    std::vector<double> weights(size);
    const double sum = exponentiate(logits, max, 1.0 / 0.7, weights);
    long double expected_sum = 0.0L;
    for (std::size_t c = 0; c < size; ++c) {
      ASSERT_EQ(weights[c], exp_nonpositive((static_cast<double>(logits[c]) - max) * (1.0 / 0.7)));
      expected_sum += weights[c];
    }
    EXPECT_NEAR(sum, static_cast<double>(expected_sum), 1e-13 * sum);
  }
}

}  // namespace
}  // namespace deepinfer::sampling
