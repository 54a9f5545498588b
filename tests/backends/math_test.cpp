// The polynomial functions of the fast kernels: error against double precision, special values, equal bits on every instruction set.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backends/implementations.h"
#include "backends/vector_forms.h"

namespace deepinfer::test {
namespace {

VectorForms forms_of(const Implementation& implementation) {
  hwy::SetSupportedTargetsForTest(implementation.target);
  const VectorForms out = vector_forms();
  hwy::SetSupportedTargetsForTest(0);
  return out;
}

/// Values of both signs from 2^-30 up to `largest`, and zero.
std::vector<float> arguments(float largest) {
  std::vector<float> out = {0.0F, -0.0F};
  for (float x = 0x1p-30F; x < largest; x *= 1.0007F) {
    out.push_back(x);
    out.push_back(-x);
  }
  out.resize((out.size() + 15) / 16 * 16, 1.0F);
  return out;
}

double reference(Function function, double x) {
  switch (function) {
    case Function::exp:
      return std::exp(x);
    case Function::sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Function::softplus:
      return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  }
  return 0;
}

/// Distance in units of the last place of the exact result; subnormal results share one unit.
double ulps(float actual, double exact) {
  const double magnitude = std::fmax(std::fabs(exact), 0x1p-126);
  return std::fabs(actual - exact) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

double worst_ulps(Function function, float largest) {
  const std::vector<float> x = arguments(largest);
  std::vector<float> y = x;
  forms_of(fast_implementations().front()).evaluate(function, y);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::fmax(worst, ulps(y[i], reference(function, x[i])));
  }
  return worst;
}

TEST(Math, ExponentialIsWithinOneUnitOfTheLastPlace) { EXPECT_LE(worst_ulps(Function::exp, 88.7F), 1.0); }
TEST(Math, SigmoidIsWithinThreeUnitsOfTheLastPlace) { EXPECT_LE(worst_ulps(Function::sigmoid, 87.0F), 3.0); }
TEST(Math, SoftplusIsWithinThreeUnitsOfTheLastPlace) { EXPECT_LE(worst_ulps(Function::softplus, 87.0F), 3.0); }

TEST(Math, SpecialArgumentsGiveTheirLimits) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Implementation& implementation : fast_implementations()) {
    SCOPED_TRACE(implementation.name);
    std::vector<float> x = {inf, -inf, std::nanf(""), 1000.0F, -1000.0F, -103.0F, 0.0F, 0.0F, 0, 0, 0, 0, 0, 0, 0, 0};
    std::vector<float> y = x;
    forms_of(implementation).evaluate(Function::exp, y);
    EXPECT_EQ(y[0], inf);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], inf);
    EXPECT_EQ(y[4], 0.0F);
    EXPECT_GT(y[5], 0.0F);  // subnormal
    EXPECT_EQ(y[6], 1.0F);
    y = x;
    forms_of(implementation).evaluate(Function::softplus, y);
    EXPECT_EQ(y[0], inf);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_TRUE(std::isnan(y[2]));
    y = x;
    forms_of(implementation).evaluate(Function::sigmoid, y);
    EXPECT_EQ(y[0], 1.0F);
    EXPECT_EQ(y[1], 0.0F);
    EXPECT_TRUE(std::isnan(y[2]));
  }
}

TEST(Math, EveryInstructionSetGivesTheSameBits) {
  for (const Function function : {Function::exp, Function::sigmoid, Function::softplus}) {
    const std::vector<Implementation> implementations = fast_implementations();
    std::vector<float> expected = arguments(110.0F);
    forms_of(implementations.front()).evaluate(function, expected);
    for (const Implementation& implementation : implementations) {
      std::vector<float> y = arguments(110.0F);
      forms_of(implementation).evaluate(function, y);
      EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0) << implementation.name;
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
