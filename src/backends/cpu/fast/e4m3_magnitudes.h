// The values of E4M3 codes as bf16, byte by byte, for look-ups of bytes. Not here: the look-ups (e4m3_lookup-inl.h).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "tensor/formats.h"

namespace deepinfer::cpu {

/// Lower and upper bytes of the bf16 values of all magnitudes, times 2^parity: the parity of a scale's exponent changes the lower byte too,
/// the rest of it is added to the upper byte.
struct alignas(64) E4m3Magnitudes {
  std::array<std::uint8_t, 128> lower{};
  std::array<std::uint8_t, 128> upper{};
};

[[nodiscard]] constexpr E4m3Magnitudes e4m3_magnitudes(std::int32_t parity) {
  E4m3Magnitudes out;
  for (std::uint8_t code = 0; code < 128; ++code) {
    const float value = e4m3_to_float(code) * static_cast<float>(1 + parity);
    const std::uint32_t bits = code == 127 ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value);
    out.lower[code] = static_cast<std::uint8_t>(bits >> 16);
    out.upper[code] = static_cast<std::uint8_t>(bits >> 24);
  }
  return out;
}

inline constexpr std::array<E4m3Magnitudes, 2> kE4m3Magnitudes = {e4m3_magnitudes(0), e4m3_magnitudes(1)};

}  // namespace deepinfer::cpu
