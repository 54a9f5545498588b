// Which scales are safe for instructions that take numbers below 2^-126 for zero, whatever the mode of the processor: those that multiply bf16.
// Not here: the products (amx.h, pairs.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer::cpu {

inline constexpr std::int32_t kScaleBias = 127;  ///< of the exponent in a UE8M0 byte, a float and a bf16

/// Exponents of the scales of codes other than zero, as UE8M0 bytes.
struct ScaleRange {
  std::int32_t least = 255;
  std::int32_t most = 0;

  void add(std::int32_t scale) {
    least = std::min(least, scale);
    most = std::max(most, scale);
  }
};

/// True when decoded values of both factors, their products and all partial sums of up to 2^16 products are zero or normal numbers: values
/// are between 2^-9 and 448 times their scale, and sums are multiples of the least product.
[[nodiscard]] constexpr bool is_exact(const ScaleRange& x, const ScaleRange& w) {
  const bool normal_values = std::min(x.least, w.least) >= kScaleBias - 117 && std::max(x.most, w.most) <= kScaleBias + 117;
  return x.most == 0 || (normal_values && x.least + w.least >= 2 * kScaleBias - 108 && x.most + w.most <= 2 * kScaleBias + 93);
}

/// Of codes that are multiplied without their scale.
inline constexpr ScaleRange kUnscaled = {kScaleBias, kScaleBias};

}  // namespace deepinfer::cpu
