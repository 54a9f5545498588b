// SwiGLU of eight neighbouring values with the rounding of double precision.
#pragma once

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/row_vectors.cuh"

namespace deepinfer::cuda {

/// bf16(silu(g) * t * weight) as the reference computes it: in double precision, with clamped g and t.
inline __device__ __noinline__ float activate_exactly(float gate, float up, float limit, float weight) {
  const double g = gate > limit ? limit : gate;
  const double t = up > limit ? limit : up < -limit ? -limit : up;
  return to_float(round_bf16(g / (1.0 + exp(-g)) * t * weight));
}

/// min and max that give NaN for NaN.
__device__ __forceinline__ float min_of(float a, float b) {
  float out = 0;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
__device__ __forceinline__ float max_of(float a, float b) {
  float out = 0;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
/// 1 / x of x >= 1, within one unit in the last place.
__device__ __forceinline__ float inverse_of(float x) {
  float out = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

/// Bounds of bf16(x) in the halves of a word, if x is wrong by less than 2^-20; equal halves decide it.
__device__ __forceinline__ unsigned rounding_bounds(float x) {
  constexpr float kError = 0x1p-20F;
  return bf16_pair(x * (1.0F - kError), x * (1.0F + kError));
}

/// The same, in single precision where that decides the rounding. It is wrong by less than 2^-20 (exponential 2 units in the last place,
/// inverse one, a sum and three products one half each), which leaves one value of 2,000 open.
__device__ __forceinline__ Vector activate_vector(const Vector& gate, const Vector& up, float limit, float weight) {
  constexpr float kLeast = 0x1p-100F;  // of intermediate results too, which have fewer digits below 2^-126
  Vector x;
  unsigned open = 0;
  float least = INFINITY;
  float most = 0;
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const float g = min_of(gate.v[e], limit);
    const float t = max_of(min_of(up.v[e], limit), -limit);
    const float silu = g * inverse_of(1.0F + expf(-g));
    const float product = silu * t;
    x.v[e] = product * weight;
    const unsigned bounds = rounding_bounds(x.v[e]);
    open |= bounds ^ __byte_perm(bounds, 0, 0x1032);
    least = fminf(fminf(least, fabsf(silu)), fminf(fabsf(product), fabsf(x.v[e])));
    most = max_of(most, fabsf(x.v[e]));
  }
  // One branch for all, so that the values are worked out side by side.
  const bool has_digits = least > kLeast && most < INFINITY;
  if (open != 0 || !has_digits) {
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const unsigned bounds = rounding_bounds(x.v[e]);
      if (bounds >> 16 != (bounds & 0xFFFFU) || !has_digits) {
        x.v[e] = activate_exactly(gate.v[e], up.v[e], limit, weight);
      }
    }
  }
#pragma unroll
  for (float& value : x.v) {
    value = __uint_as_float(bf16_pair(0.0F, value) & 0xFFFF0000U);
  }
  return x;
}

}  // namespace deepinfer::cuda
