// Outputs of attention_many.cu: sums in registers to rounded, turned back and quantised values. Of 128 columns a thread has 32 neighbours,
// the values of one scale.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/many_shared.cuh"
#include "backends/cuda/kernels/wide_outputs.cuh"

namespace deepinfer::cuda::wide {

__device__ __forceinline__ float lower_of(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float upper_of(unsigned pair) { return __uint_as_float(pair & 0xFFFF0000U); }

/// As rotate_pair().
__device__ __forceinline__ unsigned turned_pair(unsigned pair, float cos, float sin) {
  const float x0 = lower_of(pair);
  const float x1 = upper_of(pair);
  return bf16_pair(__fmaf_rn(x0, cos, -__fmul_rn(x1, sin)), __fmaf_rn(x0, sin, __fmul_rn(x1, cos)));
}

/// Q8 of 32 neighbouring values, pairs of bf16.
__device__ __forceinline__ void store_q8_columns(const unsigned (&pairs)[16], std::uint8_t* codes, std::uint8_t* scale_code) {
  float amax = kQ8Floor;
#pragma unroll
  for (const unsigned pair : pairs) {
    amax = fmaxf(amax, fmaxf(fabsf(lower_of(pair)), fabsf(upper_of(pair))));  // skips NaN
  }
  const std::uint8_t scale = power_of_two_scale(amax, kE4M3Max);
  const float inverse = 1.0F / ue8m0_to_float(scale);
  unsigned words[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    words[i] = to_e4m3_pair(lower_of(pairs[2 * i]) * inverse, upper_of(pairs[2 * i]) * inverse) |
               to_e4m3_pair(lower_of(pairs[2 * i + 1]) * inverse, upper_of(pairs[2 * i + 1]) * inverse) << 16;
  }
  *reinterpret_cast<uint4*>(codes) = {words[0], words[1], words[2], words[3]};
  *reinterpret_cast<uint4*>(codes + 16) = {words[4], words[5], words[6], words[7]};
  *scale_code = scale;
}

/// threadIdx.x, asked for where it is used: what follows from it takes no registers during products.
__device__ __forceinline__ std::int32_t own_thread() {
  std::int32_t out = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(out));
  return out;
}

/// All heads of row r, columns of warpgroup `group`.
__device__ __forceinline__ void finish_sums(const AttendParams& p, std::int64_t r, std::int32_t group, const float (&factors)[2],
                                            const float (&sums)[2][64]) {
  const std::int32_t thread = own_thread();
  constexpr std::int32_t kFirstTurned = kDim - kTurned;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int half = part % 2;
    const int block = part / 2;  // of 128 columns
    const std::int64_t line = r * kHeads + thread % kGroupThreads / 32 * 16 + thread % 32 / 4 + half * 8;
    // Of the pairs (q, q + 4) of eight columns a lane of products has those of odd or even q, of two times 32 columns (store() of
    // many_keys.cuh): neighbours exchange, the even one takes the first 32.
    const bool is_odd = thread % 2 != 0;
    const std::int32_t column = group * kOwnColumns + block * 128 + (is_odd ? 64 : 0) + thread % 4 / 2 * 32;
    unsigned pairs[16];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int product = 0; product < 2; ++product) {
        const float* from = sums[block] + step * 16 + product * 8 + half * 2;
        const unsigned first = bf16_pair(from[0] * factors[half], from[1] * factors[half]);
        const unsigned second = bf16_pair(from[4] * factors[half], from[5] * factors[half]);
        const unsigned own = is_odd ? second : first;
        const unsigned other = __shfl_xor_sync(kWholeWarp, is_odd ? first : second, 1);
        const unsigned even = is_odd ? other : own;
        const unsigned odd = is_odd ? own : other;
        pairs[step * 4 + product] = __byte_perm(even, odd, 0x5410);
        pairs[step * 4 + 2 + product] = __byte_perm(even, odd, 0x7632);
      }
    }
    if (column >= kFirstTurned) {  // for all 32 columns
      const std::int64_t place = r * (kTurned / 2) + (column - kFirstTurned) / 2;
      float4 cos[4];
      float4 sin[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        cos[i] = __ldg(reinterpret_cast<const float4*>(p.rope.cos + place) + i);
        sin[i] = __ldg(reinterpret_cast<const float4*>(p.rope.sin + place) + i);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[4 * i] = turned_pair(pairs[4 * i], cos[i].x, -sin[i].x);
        pairs[4 * i + 1] = turned_pair(pairs[4 * i + 1], cos[i].y, -sin[i].y);
        pairs[4 * i + 2] = turned_pair(pairs[4 * i + 2], cos[i].z, -sin[i].z);
        pairs[4 * i + 3] = turned_pair(pairs[4 * i + 3], cos[i].w, -sin[i].w);
      }
    }
    if (p.o != nullptr) {
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        *reinterpret_cast<uint4*>(row_at(p.o, line, kDim) + column + 2 * i) = {pairs[i], pairs[i + 1], pairs[i + 2], pairs[i + 3]};
      }
    }
    if (p.q8.codes != nullptr) {
      store_q8_columns(pairs, row_at(p.q8.codes, line, kDim) + column, row_at(p.q8.scales, line, kDim / kQ8Group) + column / kQ8Group);
    }
  }
}

}  // namespace deepinfer::cuda::wide
