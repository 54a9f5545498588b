// Random tensor contents for made-up checkpoints: reproducible from a key, at any place of a tensor, about a gigabyte per second and core.
// Each element is one of 256 equally likely values. Not for sampling tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace deepinfer::weights {

/// Mixes a seed and a name, so that every tensor has its own numbers whatever the order of writing.
[[nodiscard]] std::uint64_t random_key(std::uint64_t seed, std::string_view name);

/// Root mean square of the sixteen E2M1 codes, all equally likely: sqrt(8.5625).
inline constexpr float kAnyFp4CodeDeviation = 2.926175F;

/// The 256 elements that a tensor is filled with.
class ValueTable {
 public:
  /// Quantiles of a normal distribution, rounded to f32, bf16 or f8_e4m3 (saturating).
  static ValueTable normal(DType dtype, float mean, float deviation);
  /// Every byte: two E2M1 codes of mean 0 and deviation kAnyFp4CodeDeviation.
  static ValueTable fp4_pairs();
  /// UE8M0 scales 2^exponent and its neighbours 2^(exponent ± 1), 2 : 1 : 1. `exponent` in -100 … 100.
  static ValueTable scales(std::int32_t exponent);

  /// Elements first_element, first_element + 1, … of the tensor `key`; first_element must be a multiple of 8.
  /// `out` holds whole elements.
  void fill(std::uint64_t key, std::uint64_t first_element, std::span<std::byte> out) const;

 private:
  std::size_t item_bytes_ = 1;
  std::array<std::uint32_t, 256> items_{};  ///< the bits of each element in the low bytes
};

}  // namespace deepinfer::weights
