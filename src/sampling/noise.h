// Gumbel noise of the coupled rule (engine.md §11.1): g = −ln(−ln u), u = (word >> 8)·2⁻²⁴ + 2⁻²⁵, one Philox word per column.
// Both logarithms are one fixed polynomial in fp32 fused multiply-adds: the same bits on every machine and back end.
// Parses as C++20: device code includes it.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/params.h"
#include "sampling/philox.h"

namespace deepinfer::sampling {

/// ln x = k ln 2 + ln(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)) and f exact, so that u near 1 loses nothing.
namespace noise {

inline constexpr float kLn2High = 0x1.62e400p-1F;  // ln 2 in 15 bits: its product with an exponent is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20F;  // ln 2 − kLn2High

/// exponent · ln 2 + ln(1 + f), with ln(1 + f) = f + f² Q(f); make_log_polynomial.py. A template, so that device code may call it.
template <class Float = float>
[[nodiscard]] constexpr Float log_reduced(Float exponent, Float f) {
  constexpr std::array<float, 9> kPolynomial = {
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
  Float q = kPolynomial[8];
  for (std::size_t i = 8; i-- > 0;) {
    q = std::fma(q, f, kPolynomial[i]);
  }
  const Float mantissa_part = std::fma(f * f, q, f);
  return std::fma(exponent, kLn2High, std::fma(exponent, kLn2Low, mantissa_part));
}

/// ln(x · 2^shift) for a positive normal x.
[[nodiscard]] constexpr float log_scaled(float x, int shift) {
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
[[nodiscard]] constexpr float negative_log_uniform(std::uint32_t word) {
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

}  // namespace noise

/// Natural logarithm of a positive normal number, relative error below 1.2e-7.
[[nodiscard]] constexpr float log_fma(float x) { return noise::log_scaled(x, 0); }

/// The noise of one random word, between −2.853 and 17.329, non-decreasing in `word >> 8` up to rounding.
[[nodiscard]] constexpr float gumbel(std::uint32_t word) { return -log_fma(noise::negative_log_uniform(word)); }

/// Four words of noise: columns 4 · group … 4 · group + 3 at one output position.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> noise_words(RandomKey key, std::int32_t group) {
  constexpr std::uint64_t kPurpose = 3;  // beside the cases 0 … 2 of the rejection rule
  constexpr std::uint64_t kTopBit = std::uint64_t{1} << 63;
  const std::uint64_t sequence = (4 * static_cast<std::uint64_t>(key.position) + kPurpose) | kTopBit;
  return philox4x32(key.seed, static_cast<std::uint64_t>(group), sequence);
}

/// The noise of `column` at one output position.
[[nodiscard]] constexpr float noise_at(RandomKey key, std::int32_t column) {
  return gumbel(noise_words(key, column / 4)[static_cast<std::size_t>(column % 4)]);
}

/// Upper bounds of the noise, cheap enough to ask for every column: most columns cannot win and never need their logarithms.
class NoiseBound {
 public:
  NoiseBound();

  /// At least gumbel(word) for every word with the same leading kIndexBits bits.
  [[nodiscard]] float operator()(std::uint32_t word) const { return bounds_[word >> (32 - kIndexBits)]; }
  /// At least the noise of every word.
  [[nodiscard]] float largest() const { return bounds_.back(); }

 private:
  static constexpr int kIndexBits = 12;  // 16 KiB: stays in the first-level cache beside a row
  std::vector<float> bounds_;
};

}  // namespace deepinfer::sampling
