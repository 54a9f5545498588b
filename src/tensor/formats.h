// Number formats of the model, one value at a time: bf16, E4M3, E2M1, UE8M0 and the power-of-two scale P2.
// These scalar forms define the codes; block quantisers and vector forms in backends/ must agree bit for bit.
// Source: docs/spec/model.md section 4.1-4.3. Parses as C++20: device code includes it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace deepinfer {

/// Brain floating point: the upper half of an IEEE single. Arithmetic happens in float.
struct bf16 {
  std::uint16_t bits = 0;

  friend constexpr bool operator==(bf16, bf16) = default;
};

[[nodiscard]] constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

/// Round to nearest even; NaN stays NaN (quiet).
[[nodiscard]] constexpr bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return {static_cast<std::uint16_t>(bits >> 16 | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
}

inline constexpr float kE4M3Max = 448.0F;
inline constexpr float kE2M1Max = 6.0F;

/// Elements that share one scale (docs/spec/model.md 4.3).
inline constexpr std::int32_t kQ8Group = 32;
inline constexpr std::int32_t kQ4IndexGroup = 32;
inline constexpr std::int32_t kQ4KvGroup = 16;
inline constexpr std::int32_t kWeightBlock = 32;

/// Smallest amax the quantisers see, so that an all-zero group has a finite scale.
inline constexpr float kQ8Floor = 1e-4F;
inline constexpr float kQ4IndexFloor = 6.0F * 0x1p-126F;
inline constexpr float kQ4KvFloor = 6.0F * 0x1p-9F;

/// E4M3 code to value. 0x7F and 0xFF are NaN.
[[nodiscard]] constexpr float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == 0x7FU) {
    return std::bit_cast<float>(sign | 0x7FC00000U);
  }
  if (magnitude < 8U) {  // subnormal: magnitude * 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
}

/// Value to E4M3 code: saturates to +-448, round to nearest even; NaN gives 0x7F.
[[nodiscard]] constexpr std::uint8_t float_to_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint8_t>(sign | 0x7FU);
  }
  if (magnitude >= std::bit_cast<std::uint32_t>(kE4M3Max)) {
    return static_cast<std::uint8_t>(sign | 0x7EU);
  }
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6F)) {
    // Subnormal target: adding 2^14 puts the step 2^-9 at the last mantissa bit, so the addition rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xFU));
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFU + (magnitude >> 20 & 1U);
  return static_cast<std::uint8_t>(sign | ((rounded >> 20) - (120U << 3)));
}

/// E2M1 code (0…15, bit 3 the sign) to value.
[[nodiscard]] constexpr float e2m1_to_float(std::uint8_t code) {
  constexpr float kValues[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float value = kValues[code & 7U];
  return (code & 8U) != 0 ? -value : value;
}

/// Value to E2M1 code: clamps to +-6, nearest, ties to the even code; -0 keeps its sign. NaN gives code 7.
[[nodiscard]] constexpr std::uint8_t float_to_e2m1(float x) {
  const auto sign = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x) >> 28 & 8U);
  const float m = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU);
  std::uint8_t code = 7;
  if (m <= 0.25F) {
    code = 0;
  } else if (m < 0.75F) {
    code = 1;
  } else if (m <= 1.25F) {
    code = 2;
  } else if (m < 1.75F) {
    code = 3;
  } else if (m <= 2.5F) {
    code = 4;
  } else if (m < 3.5F) {
    code = 5;
  } else if (m <= 5.0F) {
    code = 6;
  }
  return static_cast<std::uint8_t>(sign | code);
}

/// 2^(code - 127); code 255 is invalid and gives infinity, code 0 the subnormal 2^-127.
[[nodiscard]] constexpr float ue8m0_to_float(std::uint8_t code) {
  return code == 0 ? 0x1p-127F : std::bit_cast<float>(static_cast<std::uint32_t>(code) << 23);
}

/// P2(amax, maximum) as a UE8M0 code: the exponent of the smallest power of two >= fl32(amax * fl32(1/maximum)).
/// amax must be positive and finite; computed on the bits, never with log2.
[[nodiscard]] constexpr std::uint8_t power_of_two_scale(float amax, float maximum) {
  const float t = amax * (1.0F / maximum);
  return static_cast<std::uint8_t>(((std::bit_cast<std::uint32_t>(t) - 1U) >> 23) + 1U);
}

}  // namespace deepinfer
