// The softmax of attention_wide.cu and attention_many.cu, the same operations in both: powers of two of products of keys and queries
// against the highest of all keys, and a denominator that adds tiles of 64 keys in order, even and odd ones on their own.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/wide_keys.cuh"

namespace deepinfer::cuda::wide {

inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr float kScoreFactor = 0.04419417382415922F * kKeyUnit * kLog2E;  ///< 512^-0.5, in powers of two

__device__ __forceinline__ float power_of_two(float x) {
  float out = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

/// The score that stands for 1, by the highest product of all keys; without keys any number, so that empty places become 0.
__device__ __forceinline__ float base_of(float highest) { return highest == -INFINITY ? 0.0F : __fmul_rn(highest, kScoreFactor); }

/// -infinity gives 0, NaN stays.
__device__ __forceinline__ float probability_of(float product, float base) { return power_of_two(__fmaf_rn(product, kScoreFactor, -base)); }

/// Denominator of a head: the sums of P over even and over odd tiles and P of the sink; 1 without keys. NaN scores make it NaN.
__device__ __forceinline__ float denominator_of(float even, float odd, float sink, float base) {
  const float sum = even + odd;
  return sum == 0.0F ? 1.0F : sum + power_of_two(__fmaf_rn(sink, kLog2E, -base));  // with a key the highest product alone gives 1
}

}  // namespace deepinfer::cuda::wide
