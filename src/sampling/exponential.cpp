// e^x = 2^k e^r with |r| ≤ ln 2 / 2 and the Taylor series of e^r; ln x through the series of artanh.
#include "sampling/exponential.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

constexpr double kLn2High = 0x1.62e42feep-1;       // ln 2 in 32 bits: its product with an exponent is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;  // ln 2 − kLn2High

inline double exp_of(double x) {
  constexpr double kSmallest = -708.0;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds to an integer, which then stands in the low bits
  const double bounded = x < kSmallest ? kSmallest : x;
  const double shifted = bounded * kLog2E + kToInteger;
  const double k = shifted - kToInteger;
  const double r = (bounded - k * kLn2High) - k * kLn2Low;
  // Degree 13: the next term is below 0.3466¹⁴ / 14! = 5e-18.
  double sum = 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 1.0 / 2.0;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(shifted) << 52;  // k, where a double keeps its exponent
  const double result = std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) + exponent);
  return x < kSmallest ? 0.0 : result;
}

}  // namespace

double exp_nonpositive(double x) { return exp_of(x); }

double log_positive(double x) {
  constexpr std::uint64_t kMantissaMask = 0x000FFFFFFFFFFFFF;
  constexpr std::uint64_t kOneBits = 0x3FF0000000000000;
  constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double mantissa = std::bit_cast<double>((bits & kMantissaMask) | kOneBits);
  if (mantissa >= kSqrt2) {
    mantissa *= 0.5;
    exponent += 1.0;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = s * s;
  // 2 artanh s = 2 (s + s³/3 + … + s²³/23); |s| ≤ 0.1716, the next term is below 1e-20.
  double sum = 1.0 / 23.0;
  for (int n = 21; n >= 1; n -= 2) {
    sum = sum * square + 1.0 / n;
  }
  return exponent * kLn2High + (exponent * kLn2Low + 2.0 * s * sum);
}

double exponentiate(std::span<const float> logits, float max, double inverse_temperature, std::span<double> weights) {
  check(logits.size() == weights.size(), "a row has one weight per logit");
  const std::size_t size = logits.size();
  const float* const in = logits.data();
  double* const out = weights.data();
  const double largest = max;
  for (std::size_t c = 0; c < size; ++c) {
    out[c] = exp_of((static_cast<double>(in[c]) - largest) * inverse_temperature);
  }
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  const std::size_t whole = size - size % kLanes;
  for (std::size_t c = 0; c < whole; c += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += out[c + lane];
    }
  }
  for (std::size_t c = whole; c < size; ++c) {
    lanes[c - whole] += out[c];
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace deepinfer::sampling
