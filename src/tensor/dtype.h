// Element types of checkpoint tensors and activations. Parses as C++20: device code includes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deepinfer {

enum class DType : std::uint8_t {
  f32,
  bf16,
  f8_e4m3,  ///< 1-4-3, bias 7, no infinity
  f8_e8m0,  ///< power-of-two scale, value 2^(byte - 127)
  i8,       ///< in checkpoints: two packed E2M1 codes, even element in the low nibble
  u8,
  i32,
  i64,
};

[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
    case DType::f8_e4m3:
    case DType::f8_e8m0:
    case DType::i8:
    case DType::u8:
      return 1;
  }
  return 0;
}

/// The name used in safetensors headers, for example "F8_E4M3".
[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f8_e4m3:
      return "F8_E4M3";
    case DType::f8_e8m0:
      return "F8_E8M0";
    case DType::i8:
      return "I8";
    case DType::u8:
      return "U8";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
  }
  return "?";
}

}  // namespace deepinfer
