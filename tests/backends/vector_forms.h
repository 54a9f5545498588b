// The vector forms inside the fast kernels (codecs-inl.h, math-inl.h) as plain functions of the chosen instruction set, for tests.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/formats.h"

namespace deepinfer::test {

enum class Function : std::uint8_t { exp, sigmoid, softplus };

struct VectorForms {
  void (*quantise_q8)(const float* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales);
  void (*quantise_q4_index)(const float* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales);
  void (*quantise_q4_kv)(const float* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales);
  /// 32 values of Q8 in pair order (even ones first) and in plain order.
  void (*decode_q8_pairs)(const std::uint8_t* codes, const std::uint8_t* scale, float* out);
  void (*decode_q8_plain)(const std::uint8_t* codes, const std::uint8_t* scale, float* out);
  /// 32 packed E2M1 values in pair order and in plain order.
  void (*decode_e2m1_pairs)(const std::uint8_t* packed, float* out);
  void (*decode_e2m1_plain)(const std::uint8_t* packed, float* out);
  void (*round_to_bf16)(const float* x, bf16* out);              ///< 16 values
  void (*evaluate)(Function function, std::span<float> values);  ///< in place; a multiple of 16 values
};

/// Of the best instruction set that Highway may use now.
[[nodiscard]] VectorForms vector_forms();

}  // namespace deepinfer::test
