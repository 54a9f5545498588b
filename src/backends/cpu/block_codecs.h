// Block quantisers of the model over one row of bf16 values: Q8, Q4i, Q4k (docs/spec/model.md 4.3), one value at a time.
// They define the codes of the CPU back end; vector forms must agree bit for bit. Not here: single formats (tensor/formats.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/formats.h"

namespace deepinfer::cpu {

/// Largest magnitude of `count` values, at least `floor`; NaN is skipped (its code is NaN anyway).
[[nodiscard]] inline float amax(const bf16* x, std::int32_t count, float floor) {
  float out = floor;
  for (std::int32_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(to_float(x[i]));
    out = magnitude > out ? magnitude : out;
  }
  return out;
}

/// Puts element i of a packed row of 4-bit codes; even elements first in their byte.
inline void put_nibble(std::uint8_t* packed, std::int32_t i, std::uint8_t code) {
  std::uint8_t& byte = packed[i / 2];
  byte = i % 2 == 0 ? code : static_cast<std::uint8_t>(byte | code << 4);
}

[[nodiscard]] inline std::uint8_t nibble(const std::uint8_t* packed, std::int64_t i) {
  return i % 2 == 0 ? packed[i / 2] & 15U : static_cast<std::uint8_t>(packed[i / 2] >> 4);
}

/// Q8: x [width] -> codes [width], scales [width / 32] UE8M0.
inline void quantise_q8(const bf16* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int32_t group = 0; group < width / kQ8Group; ++group) {
    const bf16* values = x + group * kQ8Group;
    scales[group] = power_of_two_scale(amax(values, kQ8Group, kQ8Floor), kE4M3Max);
    const float inverse = 1.0F / ue8m0_to_float(scales[group]);
    for (std::int32_t i = 0; i < kQ8Group; ++i) {
      codes[group * kQ8Group + i] = float_to_e4m3(to_float(values[i]) * inverse);
    }
  }
}

/// Q4i: x [width] -> packed codes [width / 2], scales [width / 32] UE8M0.
inline void quantise_q4_index(const bf16* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int32_t group = 0; group < width / kQ4IndexGroup; ++group) {
    const std::int32_t first = group * kQ4IndexGroup;
    scales[group] = power_of_two_scale(amax(x + first, kQ4IndexGroup, kQ4IndexFloor), kE2M1Max);
    const float inverse = 1.0F / ue8m0_to_float(scales[group]);
    for (std::int32_t i = first; i < first + kQ4IndexGroup; ++i) {
      put_nibble(codes, i, float_to_e2m1(to_float(x[i]) * inverse));
    }
  }
}

/// Q4k: x [width] -> packed codes [width / 2], scales [width / 16] E4M3. The reciprocal of the scale is rounded: it decides ties.
inline void quantise_q4_kv(const bf16* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int32_t group = 0; group < width / kQ4KvGroup; ++group) {
    const std::int32_t first = group * kQ4KvGroup;
    scales[group] = float_to_e4m3(amax(x + first, kQ4KvGroup, kQ4KvFloor) * (1.0F / kE2M1Max));
    const float inverse = 1.0F / e4m3_to_float(scales[group]);
    for (std::int32_t i = first; i < first + kQ4KvGroup; ++i) {
      put_nibble(codes, i, float_to_e2m1(to_float(x[i]) * inverse));
    }
  }
}

/// Value i of a Q8 row (exact in bf16).
[[nodiscard]] inline float q8_value(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t i) {
  return e4m3_to_float(codes[i]) * ue8m0_to_float(scales[i / kQ8Group]);
}

/// Value i of a Q4i row (exact in bf16).
[[nodiscard]] inline float q4_index_value(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t i) {
  return e2m1_to_float(nibble(codes, i)) * ue8m0_to_float(scales[i / kQ4IndexGroup]);
}

/// Value i of a Q4k row (exact in bf16).
[[nodiscard]] inline float q4_kv_value(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t i) {
  return e2m1_to_float(nibble(codes, i)) * e4m3_to_float(scales[i / kQ4KvGroup]);
}

}  // namespace deepinfer::cpu
