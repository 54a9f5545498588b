// Gumbel noise of the coupled rule (engine.md §11.1): g = −ln(−ln u), u = (word >> 8)·2⁻²⁴ + 2⁻²⁵, one Philox word per column.
// Both logarithms are one fixed polynomial in fp32 fused multiply-adds: the same bits on every machine and back end.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sampling/params.h"
#include "sampling/philox.h"

namespace deepinfer::sampling {

/// Natural logarithm of a positive normal number, relative error below 1.2e-7.
[[nodiscard]] float log_fma(float x);

/// The noise of one random word, between −2.853 and 17.329, non-decreasing in `word >> 8` up to rounding.
[[nodiscard]] float gumbel(std::uint32_t word);

/// Four words of noise: columns 4 · group … 4 · group + 3 at one output position.
[[nodiscard]] inline std::array<std::uint32_t, 4> noise_words(RandomKey key, std::int32_t group) {
  constexpr std::uint64_t kPurpose = 3;  // beside the cases 0 … 2 of the rejection rule
  constexpr std::uint64_t kTopBit = std::uint64_t{1} << 63;
  const std::uint64_t sequence = (4 * static_cast<std::uint64_t>(key.position) + kPurpose) | kTopBit;
  return philox4x32(key.seed, static_cast<std::uint64_t>(group), sequence);
}

/// The noise of `column` at one output position.
[[nodiscard]] inline float noise_at(RandomKey key, std::int32_t column) {
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
