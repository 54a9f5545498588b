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
  OpenRoundings open;
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const float g = min_of(gate.v[e], limit);
    const float t = max_of(min_of(up.v[e], limit), -limit);
    const float silu = g * inverse_of(1.0F + expf(-g));
    const float product = silu * t;
    x.v[e] = product * weight;
    open.look(rounding_bounds(x.v[e]), fabsf(x.v[e]));
    open.least = fminf(open.least, fminf(fabsf(silu), fabsf(product)));
  }
  const bool has_digits = open.has_digits(kLeast);
  if (open.differs == 0 && has_digits) {  // one branch for all, so that the values are worked out side by side
    return rounded_bf16(x);
  }
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const bool is_open = !has_digits || halves_differ(rounding_bounds(x.v[e])) != 0;
    x.v[e] = is_open ? activate_exactly(gate.v[e], up.v[e], limit, weight) : rounded_bf16(x.v[e]);
  }
  return x;
}

}  // namespace deepinfer::cuda
