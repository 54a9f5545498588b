// Pieces that kernels share: addressing, block quantisers and decoders, one value a thread.
// Quantisers agree with backends/cpu/block_codecs.h bit for bit.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace deepinfer::cuda {

inline constexpr int kBlockThreads = 256;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

template <class T>
__device__ __forceinline__ T* row_at(T* base, std::int64_t row, std::int64_t width) {
  return base + row * width;
}

/// One rounding, as the reference rounds: the double to float first, then to bf16.
__device__ __forceinline__ bf16 round_bf16(double x) { return to_bf16(static_cast<float>(x)); }

/// Largest magnitude over `group` neighbouring lanes (a power of two), at least `floor`; NaN is skipped.
__device__ __forceinline__ float group_amax(float value, int group, float floor) {
  float out = fabsf(value);
  out = out > floor ? out : floor;  // false for NaN
  for (int offset = group / 2; offset > 0; offset /= 2) {
    out = fmaxf(out, __shfl_xor_sync(kWholeWarp, out, offset));
  }
  return out;
}

/// Two neighbouring E4M3 codes, the first in the low byte; as e4m3_to_float().
__device__ __forceinline__ float2 e4m3_pair(unsigned codes) {
  float2 out;
  asm("{\n.reg .b32 halves;\n.reg .b16 low, high;\ncvt.rn.f16x2.e4m3x2 halves, %2;\nmov.b32 {low, high}, halves;\ncvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;\n}"
      : "=f"(out.x), "=f"(out.y)
      : "h"(static_cast<std::uint16_t>(codes)));
  return out;
}

/// Two values to neighbouring E4M3 codes; as float_to_e4m3() but for the sign of NaN.
__device__ __forceinline__ unsigned to_e4m3_pair(float first, float second) {
  std::uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(second), "f"(first));
  return out;
}

/// Two values as bf16, the first in the low half; as to_bf16() but for the bits of NaN.
__device__ __forceinline__ unsigned bf16_pair(float first, float second) {
  unsigned out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
  return out;
}

/// Q8 of a row whose element i lies in lane i % 32: writes code i, and the scale of its group. All lanes of the warp take part.
__device__ __forceinline__ void store_q8(bf16 x, std::int64_t i, std::uint8_t* codes, std::uint8_t* scales) {
  const float value = to_float(x);
  const std::uint8_t scale = power_of_two_scale(group_amax(value, kQ8Group, kQ8Floor), kE4M3Max);
  codes[i] = float_to_e4m3(value * (1.0F / ue8m0_to_float(scale)));
  if (i % kQ8Group == 0) {
    scales[i / kQ8Group] = scale;
  }
}

/// Two 4-bit codes to one byte; the even lane writes.
__device__ __forceinline__ void store_nibble(std::uint8_t code, std::int64_t i, std::uint8_t* packed) {
  const unsigned other = __shfl_down_sync(kWholeWarp, static_cast<unsigned>(code), 1);
  if (i % 2 == 0) {
    packed[i / 2] = static_cast<std::uint8_t>(code | other << 4);
  }
}

__device__ __forceinline__ void store_q4_index(bf16 x, std::int64_t i, std::uint8_t* codes, std::uint8_t* scales) {
  const float value = to_float(x);
  const std::uint8_t scale = power_of_two_scale(group_amax(value, kQ4IndexGroup, kQ4IndexFloor), kE2M1Max);
  store_nibble(float_to_e2m1(value * (1.0F / ue8m0_to_float(scale))), i, codes);
  if (i % kQ4IndexGroup == 0) {
    scales[i / kQ4IndexGroup] = scale;
  }
}

__device__ __forceinline__ void store_q4_kv(bf16 x, std::int64_t i, std::uint8_t* codes, std::uint8_t* scales) {
  const float value = to_float(x);
  const std::uint8_t scale = float_to_e4m3(group_amax(value, kQ4KvGroup, kQ4KvFloor) * (1.0F / kE2M1Max));
  store_nibble(float_to_e2m1(value * (1.0F / e4m3_to_float(scale))), i, codes);
  if (i % kQ4KvGroup == 0) {
    scales[i / kQ4KvGroup] = scale;
  }
}

/// E2M1 without a table: the code at the top of a bf16 is the value times 2^-126.
__device__ __forceinline__ float e2m1_value(unsigned code) { return __uint_as_float((code & 8U) << 28 | (code & 7U) << 22) * 0x1p126F; }

__device__ __forceinline__ unsigned nibble(const std::uint8_t* packed, std::int64_t i) { return packed[i / 2] >> (i % 2 * 4) & 15U; }

/// Rotates the pair that starts at even i of a row whose last rope_dim values turn; `sign` -1 turns back. Products are not contracted.
__device__ __forceinline__ void rotate_pair(bf16* pair, float cos, float sin) {
  const float x0 = to_float(pair[0]);
  const float x1 = to_float(pair[1]);
  pair[0] = to_bf16(__fmaf_rn(x0, cos, -__fmul_rn(x1, sin)));
  pair[1] = to_bf16(__fmaf_rn(x0, sin, __fmul_rn(x1, cos)));
}

/// Turns the last rope_dim values of `row` (shared memory) with line `r` of the table; block-wide, ends with a barrier.
__device__ __forceinline__ void rotate_row(bf16* row, std::int32_t width, std::int32_t rope_dim, const RopeTable& rope, std::int64_t r) {
  const std::int32_t half = rope_dim / 2;
  for (std::int32_t i = threadIdx.x; i < half; i += blockDim.x) {
    rotate_pair(row + (width - rope_dim) + 2 * i, rope.cos[r * half + i], rope.sin[r * half + i]);
  }
  __syncthreads();
}

}  // namespace deepinfer::cuda
