// What every product kernel does with weights: finding its part of them, codes to bf16 in registers, storing results.
//
// Codes become bf16; that is exact, since a code times its power-of-two scale has at most four significant bits.
//
// Order of every sum, the same in all kernels and for any number of columns: k is cut into steps (a vector of codes a lane), the steps
// into kSlices slices; a slice is one chain of instructions of 16 values, and slices are added first to last. mma.sync and wgmma add alike
// (measured on an H200: no bit differs when each value has the same place in the same instruction), so a column's result does not
// depend on the kernel that computed it.
//
// A lane holds rows g and g + 8 of a 16-row tile and the codes [t C, (t + 1) C) of a step (g = lane / 4, t = lane % 4, C codes a vector).
// Instructions take the codes in units of eight, see x_place().
#pragma once

#include <cuda_bf16.h>

#include <cstring>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/gemm.h"

namespace deepinfer::cuda {

inline constexpr int kSlices = 8;

/// First of `steps` steps that belongs to `slice`.
__device__ __forceinline__ int slice_begin(int slice, int steps) { return slice * steps / kSlices; }

/// What one block works on.
struct GemmWork {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int64_t weight_row;  // of row 0, for scales that span 32 rows
  std::int32_t first_column, num_columns;
  std::int64_t y_offset;
};

/// The part of column tile `tile` and group `group`; false: there is no such tile.
__device__ __forceinline__ bool find_work(const GemmParams& p, int tile, int group, int tile_columns, GemmWork& work) {
  work = {p.codes, p.scales, 0, tile * tile_columns, tile_columns, static_cast<std::int64_t>(group) * p.n};
  if (p.experts == nullptr) {
    if (p.second_codes != nullptr && group == 1) {
      work.codes = p.second_codes;
      work.scales = p.second_scales;
    } else {
      work.weight_row = static_cast<std::int64_t>(group) * p.n;
    }
    work.num_columns = min(tile_columns, p.num_columns - work.first_column);
    return true;
  }
  if (tile >= *p.num_tiles) {
    return false;
  }
  const int4 of_tile = p.tiles[tile];
  const ExpertWeights& expert = p.experts[of_tile.x];
  const int part = p.part + group;
  const QuantWeight& weight = part == 0 ? expert.w1 : part == 1 ? expert.w3 : expert.w2;
  work.codes = weight.codes;
  work.scales = weight.scales;
  work.first_column = of_tile.y;
  work.num_columns = of_tile.z;
  return true;
}

// --- codes to bf16 ------------------------------------------------------------------------------------------------

/// A power of two as a pair of equal bf16 factors that bring a shifted code to its value; exponents beyond bf16 take a second factor.
struct Scale {
  __nv_bfloat162 factor, rest;
  bool has_rest;
};

/// `bias`: a code at the top of a bf16 is its value times 2^-bias.
template <int kBias>
__device__ __forceinline__ Scale make_scale(std::uint8_t ue8m0) {
  const int field = min(static_cast<int>(ue8m0) + kBias, 254);
  const int rest = static_cast<int>(ue8m0) + kBias - field + 127;
  Scale out;
  out.factor = __bfloat162bfloat162(__ushort_as_bfloat16(static_cast<unsigned short>(field << 7)));
  out.rest = __bfloat162bfloat162(__ushort_as_bfloat16(static_cast<unsigned short>(rest << 7)));
  out.has_rest = rest != 127;
  return out;
}

__device__ __forceinline__ unsigned times(unsigned pair, __nv_bfloat162 factor) {
  __nv_bfloat162 value;
  memcpy(&value, &pair, 4);
  value = __hmul2(value, factor);
  unsigned out;
  memcpy(&out, &value, 4);
  return out;
}

/// Without the second factor; add_rest() applies it where there is one.
__device__ __forceinline__ unsigned scaled(unsigned pair, const Scale& scale) { return times(pair, scale.factor); }

template <int kPairs>
__device__ __forceinline__ void add_rest(unsigned (&pairs)[kPairs], const Scale& scale) {
  if (scale.has_rest) {
#pragma unroll
    for (unsigned& pair : pairs) {
      pair = times(pair, scale.rest);
    }
  }
}

template <WeightKind kind>
struct Codes;

template <>
struct Codes<WeightKind::fp8> {
  static constexpr int kBias = 120;
  /// Eight codes (two words) to four pairs.
  __device__ static __forceinline__ void unpack(const unsigned* words, const Scale& scale, unsigned pairs[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned w = words[i];
      pairs[2 * i] = scaled((w << 8 & 0x80008000U) | (w << 4 & 0x07F007F0U), scale);
      pairs[2 * i + 1] = scaled((w & 0x80008000U) | (w >> 4 & 0x07F007F0U), scale);
    }
  }
  static constexpr int kWordsPerUnit = 2;
};

template <>
struct Codes<WeightKind::fp4> {
  static constexpr int kBias = 126;
  /// A product with two powers of two puts sign and magnitude of two codes to their places at once: the shift units are the bottleneck.
  __device__ static __forceinline__ void unpack(const unsigned* words, const Scale& scale, unsigned pairs[4]) {
    constexpr unsigned kSignAndMagnitude = 0x81C081C0U;
    constexpr unsigned kFirst = (1U << 12) + (1U << 6);
    constexpr unsigned kSecond = (1U << 8) + (1U << 2);
    const unsigned low = words[0];
    const unsigned high = words[0] >> 8;
    pairs[0] = scaled((low & 0x000F000FU) * kFirst & kSignAndMagnitude, scale);
    pairs[1] = scaled((low & 0x00F000F0U) * kSecond & kSignAndMagnitude, scale);
    pairs[2] = scaled((high & 0x000F000FU) * kFirst & kSignAndMagnitude, scale);
    pairs[3] = scaled((high & 0x00F000F0U) * kSecond & kSignAndMagnitude, scale);
  }
  static constexpr int kWordsPerUnit = 1;
};

template <>
struct Codes<WeightKind::bf16> {
  __device__ static __forceinline__ void unpack(const unsigned* words, const Scale&, unsigned pairs[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = words[i];
    }
  }
  static constexpr int kWordsPerUnit = 4;
};

/// Eight activations to four pairs in the order in which the codes of a weight come out. Unlike weights they may be NaN.
template <WeightKind kind>
__device__ __forceinline__ void unpack_activations(const unsigned* x, std::uint8_t ue8m0, unsigned (&pairs)[4]) {
  if constexpr (kind == WeightKind::bf16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = x[i];
    }
  } else {
    unsigned words[2] = {x[0], x[1]};
    if constexpr (kind == WeightKind::fp4) {  // pairs of codes i and i + 4
      words[0] = __byte_perm(x[0], x[1], 0x5410);
      words[1] = __byte_perm(x[0], x[1], 0x7632);
    }
    const Scale scale = make_scale<Codes<WeightKind::fp8>::kBias>(ue8m0);
    Codes<WeightKind::fp8>::unpack(words, scale, pairs);
    add_rest(pairs, scale);
    constexpr unsigned kMagnitudes = 0x7F7F7F7FU;
    const unsigned is_nan = (((words[0] & kMagnitudes) + 0x01010101U) | ((words[1] & kMagnitudes) + 0x01010101U)) & 0x80808080U;
    if (is_nan != 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // pair i: bytes i % 2 and i % 2 + 2 of word i / 2
        const unsigned word = words[i / 2] >> (i % 2 * 8);
        pairs[i] |= (word & 0x7FU) == 0x7FU ? 0x7FC0U : 0U;
        pairs[i] |= (word >> 16 & 0x7FU) == 0x7FU ? 0x7FC00000U : 0U;
      }
    }
  }
}

// --- pieces of all kernels ----------------------------------------------------------------------------------------

/// kBytes from `source`; words beyond stay untouched.
template <int kBytes>
__device__ __forceinline__ void load_words(const void* source, unsigned (&words)[4]) {
  if constexpr (kBytes == 16) {
    const uint4 v = *static_cast<const uint4*>(source);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if constexpr (kBytes == 8) {
    const uint2 v = *static_cast<const uint2*>(source);
    words[0] = v.x, words[1] = v.y;
  } else {
    words[0] = *static_cast<const unsigned*>(source);
  }
}

/// Scale bytes of weight row `row` at code `k`.
template <WeightKind kind>
__device__ __forceinline__ std::uint8_t scale_code(const std::uint8_t* scales, std::int64_t row, std::int32_t width, std::int32_t k) {
  const std::int32_t per_row = width / kWeightBlock;
  return kind == WeightKind::fp8 ? scales[row / kWeightBlock * per_row + k / kWeightBlock] : scales[row * per_row + k / kWeightBlock];
}

template <WeightKind kind>
__device__ __forceinline__ std::int64_t row_bytes(std::int32_t k) {
  return kind == WeightKind::fp8 ? k : kind == WeightKind::fp4 ? k / 2 : 2 * static_cast<std::int64_t>(k);
}

__device__ __forceinline__ void store_result(const GemmParams& p, const GemmWork& work, std::int32_t column, std::int32_t n, float value) {
  if (column >= work.num_columns || n >= p.n) {
    return;
  }
  const std::int64_t place = (work.first_column + column) * p.y_stride + work.y_offset + n;
  value += p.bias != nullptr ? to_float(p.bias[n]) : 0.0F;
  if (p.y_f32 != nullptr) {
    p.y_f32[place] = value;
  } else {
    p.y_bf16[place] = to_bf16(value);
  }
}

}  // namespace deepinfer::cuda
