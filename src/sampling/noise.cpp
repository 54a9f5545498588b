// ln x = k ln 2 + ln(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)) and f exact, so that u near 1 loses nothing.
#include "sampling/noise.h"

#include <bit>
#include <cmath>
#include <cstddef>

namespace deepinfer::sampling {
namespace {

// ln(1 + f) = f + f² Q(f); make_log_polynomial.py.
constexpr std::array<float, 9> kLogPolynomial = {
    -0x1.fffff8p-2F,  // f^0
    0x1.555550p-2F,   // f^1
    -0x1.000426p-2F,  // f^2
    0x1.99a3f6p-3F,   // f^3
    -0x1.542766p-3F,  // f^4
    0x1.22715ep-3F,   // f^5
    -0x1.0f3756p-3F,  // f^6
    0x1.0849bep-3F,   // f^7
    -0x1.38339ap-4F,  // f^8
};
constexpr float kLn2High = 0x1.62e400p-1F;  // ln 2 in 15 bits: its product with an exponent is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20F;  // ln 2 − kLn2High

/// exponent · ln 2 + ln(1 + f)
float log_reduced(float exponent, float f) {
  float q = kLogPolynomial.back();
  for (std::size_t i = kLogPolynomial.size() - 1; i-- > 0;) {
    q = std::fma(q, f, kLogPolynomial[i]);
  }
  const float mantissa_part = std::fma(f * f, q, f);
  return std::fma(exponent, kLn2High, std::fma(exponent, kLn2Low, mantissa_part));
}

/// ln(x · 2^shift) for a positive normal x.
float log_scaled(float x, int shift) {
  constexpr std::uint32_t kMantissaMask = 0x007FFFFF;
  constexpr std::uint32_t kOneBits = 0x3F800000;
  constexpr float kSqrt2 = 0x1.6a09e6p+0F;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float mantissa = std::bit_cast<float>((bits & kMantissaMask) | kOneBits);
  if (mantissa >= kSqrt2) {
    mantissa *= 0.5F;
    ++exponent;
  }
  return log_reduced(static_cast<float>(exponent + shift), mantissa - 1.0F);
}

/// −ln u, u = n · 2⁻²⁵ with n = 2 (word >> 8) + 1. From 2²⁴ on n has no fp32 form, but the distance to 1 has.
float negative_log_uniform(std::uint32_t word) {
  constexpr std::uint32_t kOne = std::uint32_t{1} << 25;
  constexpr std::uint32_t kSqrtHalf = 23726567;  // first odd n with u above sqrt(1/2)
  const std::uint32_t n = 2 * (word >> 8) + 1;
  if (n < kOne / 2) {
    return -log_scaled(static_cast<float>(n), -25);
  }
  const std::uint32_t distance = kOne - n;
  if (n >= kSqrtHalf) {
    return -log_reduced(0.0F, -static_cast<float>(distance) * 0x1p-25F);
  }
  return -log_reduced(-1.0F, static_cast<float>(kOne / 2 - distance) * 0x1p-24F);  // 1 + f = 2u
}

}  // namespace

float log_fma(float x) { return log_scaled(x, 0); }

float gumbel(std::uint32_t word) { return -log_fma(negative_log_uniform(word)); }

NoiseBound::NoiseBound() : bounds_(std::size_t{1} << kIndexBits) {
  constexpr float kMargin = 1e-5F;  // more than the rounding errors of gumbel, which might break its monotony
  const std::uint32_t step = std::uint32_t{1} << (32 - kIndexBits);
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    bounds_[i] = gumbel(static_cast<std::uint32_t>(i) * step + (step - 1)) + kMargin;
  }
}

}  // namespace deepinfer::sampling
