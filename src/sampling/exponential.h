// Exponential and logarithm in double from IEEE additions and multiplications alone: the last bit of a libm function differs
// between machines and back ends, these do not. Written so that the compiler turns the loop over a row into vector code.
// Parses as C++20: device code includes it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer::sampling {

namespace exponential {
constexpr double kLn2High = 0x1.62e42feep-1;       // ln 2 in 32 bits: its product with an exponent is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;  // ln 2 − kLn2High
}  // namespace exponential

/// e^x for x ≤ 0, relative error below 1e-15; 0 below −708 (the end of normal doubles). e^x = 2^k e^r with |r| ≤ ln 2 / 2 and the Taylor
/// series of e^r.
[[nodiscard]] constexpr double exp_nonpositive(double x) {
  constexpr double kSmallest = -708.0;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds to an integer, which then stands in the low bits
  const double bounded = x < kSmallest ? kSmallest : x;
  const double shifted = bounded * kLog2E + kToInteger;
  const double k = shifted - kToInteger;
  const double r = (bounded - k * exponential::kLn2High) - k * exponential::kLn2Low;
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

/// Natural logarithm of a positive normal number, error below 1e-15 relative to max(1, |ln x|). Through the series of artanh.
[[nodiscard]] constexpr double log_positive(double x) {
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
  return exponent * exponential::kLn2High + (exponent * exponential::kLn2Low + 2.0 * s * sum);
}

/// A sum over columns in one order for every back end: column c is added to lane c mod kSumLanes of its block of kSumBlock columns, the
/// lanes of a block are folded in halves, and blocks are added in order. Absent columns count as zero.
inline constexpr std::int32_t kSumLanes = 32;
inline constexpr std::int32_t kSumBlock = 1024;

/// Adds single columns, in ascending order, as exponentiate() does.
class ColumnSum {
 public:
  void add(std::int32_t column, double weight) {
    if (column / kSumBlock != block_) {
      fold();
      block_ = column / kSumBlock;
    }
    lanes_[static_cast<std::size_t>(column % kSumLanes)] += weight;
  }
  [[nodiscard]] double total() {
    fold();
    return total_;
  }

 private:
  void fold();

  std::array<double, kSumLanes> lanes_{};
  double total_ = 0.0;
  std::int32_t block_ = 0;
};

/// weights[c] = e^((logits[c] − max) · inverse_temperature). Returns their sum, in the order of ColumnSum.
/// `max` is the largest logit and finite; a logit of −infinity has weight 0. Both spans have the same length.
double exponentiate(std::span<const float> logits, float max, double inverse_temperature, std::span<double> weights);

}  // namespace deepinfer::sampling
