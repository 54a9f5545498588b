// Decoding keys of 512 values for tensor cores: eight neighbouring values at a time become four pairs of bf16, (0,4) (1,5) (2,6) (3,7),
// each value times 2^-8, which is exact. In this order FP4 codes need the fewest instructions; the other side follows it.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/codecs.cuh"
#include "ops/ops.h"

namespace deepinfer::cuda {

inline constexpr float kKeyUnit = 256.0F;  ///< true value / decoded value
inline constexpr unsigned kNanPair = 0x7FC07FC0U;

/// Two products of bf16, rounded.
__device__ __forceinline__ unsigned multiply_pairs(unsigned a, unsigned b) {
  unsigned out = 0;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

/// The bf16 with the upper bits of `bits`, twice.
__device__ __forceinline__ unsigned twice(unsigned bits) { return __byte_perm(bits, 0, 0x3232); }

/// Scale of FP4 codes as decode_fp4() takes it: E4M3 value times 2^118, twice.
__device__ __forceinline__ unsigned fp4_scale(unsigned code) {
  const float magnitude = __uint_as_float((code & 0x7FU) << 20) * 0x1p119F * 0x1p119F;  // the code's bits are its value times 2^-120
  const unsigned pair = twice(__float_as_uint(magnitude) | (code & 0x80U) << 24);
  return (code & 0x7FU) == 0x7FU ? kNanPair : pair;
}

/// Eight E2M1 codes; a code's bits at the top of a bf16 are its value times 2^-126. A product puts the sign and the other three bits where
/// they belong at once.
__device__ __forceinline__ void decode_fp4(unsigned codes, unsigned scale, unsigned (&out)[4]) {
  constexpr unsigned kSignAndValue = 0x81C081C0U;
  const unsigned upper = codes >> 8;
  const unsigned spread[4] = {(codes & 0x000F000FU) * 0x1040U, (codes & 0x00F000F0U) * 0x104U, (upper & 0x000F000FU) * 0x1040U,
                              (upper & 0x00F000F0U) * 0x104U};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[i] = multiply_pairs(spread[i] & kSignAndValue, scale);
  }
}

/// Scale of FP8 codes as decode_fp8() takes it: a power of two, twice.
__device__ __forceinline__ unsigned fp8_scale(unsigned code) { return code == 0 ? 0x00400040U : code << 7 | code << 23; }

/// Not zero where one of four E4M3 codes is NaN; results can be joined by |.
__device__ __forceinline__ unsigned nan_marks(unsigned codes) { return ((codes & 0x7F7F7F7FU) + 0x01010101U) & 0x80808080U; }

/// Eight E4M3 codes, none of them NaN; a code's bits in a bf16 are its value times 2^-120.
__device__ __forceinline__ void decode_fp8(unsigned first, unsigned second, unsigned scale, unsigned (&out)[4]) {
  constexpr unsigned kUnit = 0x77807780U;  // 2^112, twice
  const unsigned codes[4] = {__byte_perm(first, second, 0x4400), __byte_perm(first, second, 0x5511), __byte_perm(first, second, 0x6622),
                             __byte_perm(first, second, 0x7733)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned small = (codes[i] & 0x80008000U) | (codes[i] >> 4 & 0x07F007F0U);
    out[i] = multiply_pairs(multiply_pairs(small, kUnit), scale);
  }
}

}  // namespace deepinfer::cuda
