// What every product kernel does with weights: finding its part of them, codes to bf16 in registers, storing results.
//
// Codes become bf16; that is exact, since a code times its power-of-two scale has at most four significant bits.
//
// Order of every sum, the same in all kernels and for any number of columns: k is cut into steps (a vector of codes a lane), the steps
// into kSlices slices or one (is_sliced()); a slice is one chain of instructions of 16 values, and slices are added first to last. mma.sync and wgmma add alike
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
  const int4 of_tile = __ldcg(p.tiles + tile);  // written shortly before; see GemmParams::tiles_are_ready
  if (tile >= __ldcg(p.num_tiles)) {
    return false;
  }
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

/// The power of two with this exponent field, twice.
__device__ __forceinline__ __nv_bfloat162 power_pair(unsigned field) {
  return __bfloat162bfloat162(__ushort_as_bfloat16(static_cast<unsigned short>(field << 7)));
}

/// What brings a shifted code to its value: a power of two, twice. `bias`: a code at the top of a bf16 is its value times 2^-bias. Where
/// the exponent goes beyond bf16, which no scale of a model does, a second factor takes the rest.
template <int kBias>
__device__ __forceinline__ __nv_bfloat162 make_scale(unsigned ue8m0) {
  return power_pair(min(ue8m0 + kBias, 254U));
}
template <int kBias>
[[nodiscard]] __device__ __forceinline__ bool has_rest(unsigned ue8m0) {
  return ue8m0 > 254U - kBias;
}
/// 1 where there is none.
template <int kBias>
__device__ __forceinline__ __nv_bfloat162 rest_of(unsigned ue8m0) {
  return power_pair(max(ue8m0 + kBias, 254U) - 127U);
}

__device__ __forceinline__ unsigned scaled(unsigned pair, __nv_bfloat162 factor) {
  __nv_bfloat162 value;
  memcpy(&value, &pair, 4);
  value = __hmul2(value, factor);
  unsigned out;
  memcpy(&out, &value, 4);
  return out;
}

template <int kPairs>
__device__ __forceinline__ void scale_all(unsigned (&pairs)[kPairs], __nv_bfloat162 factor) {
#pragma unroll
  for (unsigned& pair : pairs) {
    pair = scaled(pair, factor);
  }
}

template <int kBias, int kPairs>
__device__ __forceinline__ void add_rest(unsigned (&pairs)[kPairs], unsigned ue8m0) {
  if (has_rest<kBias>(ue8m0)) {
    scale_all(pairs, rest_of<kBias>(ue8m0));
  }
}

template <WeightKind kind>
struct Codes;

template <>
struct Codes<WeightKind::fp8> {
  static constexpr int kBias = 120;
  /// Eight codes (two words) to four pairs; words as order_fp8() leaves them.
  __device__ static __forceinline__ void unpack(const unsigned* words, __nv_bfloat162 scale, unsigned pairs[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned w = words[i];
      pairs[2 * i] = scaled(w & 0x87F087F0U, scale);
      pairs[2 * i + 1] = scaled((w << 4 & 0x80F080F0U) | (w >> 4 & 0x07000700U), scale);
    }
  }
  static constexpr int kWordsPerUnit = 2;
};

template <>
struct Codes<WeightKind::fp4> {
  static constexpr int kBias = 126;
  /// Words as order_fp4() leaves them: a pair is in its place after a shift, the last one after a product with three powers of two.
  __device__ static __forceinline__ void unpack(const unsigned* words, __nv_bfloat162 scale, unsigned pairs[4]) {
    constexpr unsigned kSignAndMagnitude = 0x81C081C0U;
    constexpr unsigned kLast = (1U << 1) + (1U << 6) + (1U << 12);
    const unsigned w = words[0];
    pairs[0] = scaled(w & kSignAndMagnitude, scale);
    pairs[1] = scaled(w << 3 & kSignAndMagnitude, scale);
    pairs[2] = scaled(w << 6 & kSignAndMagnitude, scale);
    pairs[3] = scaled((w >> 8 & 0x006C006CU) * kLast & kSignAndMagnitude, scale);
  }
  static constexpr int kWordsPerUnit = 1;
};

template <>
struct Codes<WeightKind::bf16> {
  __device__ static __forceinline__ void unpack(const unsigned* words, __nv_bfloat162, unsigned pairs[4]) {
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
    constexpr int kBias = Codes<WeightKind::fp8>::kBias;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned w = words[i];
      pairs[2 * i] = (w << 8 & 0x80008000U) | (w << 4 & 0x07F007F0U);
      pairs[2 * i + 1] = (w & 0x80008000U) | (w >> 4 & 0x07F007F0U);
    }
    scale_all(pairs, make_scale<kBias>(ue8m0));
    add_rest<kBias>(pairs, ue8m0);
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

/// Scale of weight row `row` at code `k`.
template <WeightKind kind>
__device__ __forceinline__ std::uint8_t scale_code(const GemmParams& p, const std::uint8_t* scales, std::int64_t row, std::int32_t k) {
  const std::int32_t per_row = p.k / kWeightBlock;
  if constexpr (kind == WeightKind::fp8) {
    return scales[row / kWeightBlock * per_row + k / kWeightBlock];
  } else if (p.in_units) {
    const std::int64_t unit = row / kUnitRows * (per_row / kUnitScales) + k / (kUnitScales * kWeightBlock);
    return scales[(unit * kUnitRows + row % kUnitRows) * kUnitScales + k / kWeightBlock % kUnitScales];
  } else {
    return scales[row * per_row + k / kWeightBlock];
  }
}

template <WeightKind kind>
__device__ __forceinline__ std::int64_t row_bytes(std::int32_t k) {
  return kind == WeightKind::fp8 ? k : kind == WeightKind::fp4 ? k / 2 : 2 * static_cast<std::int64_t>(k);
}

/// Where the codes of a row lie that four lanes read step by step, in vectors of kBytes: the first step's, and from one step to the next.
template <WeightKind kind, int kBytes>
__device__ __forceinline__ std::int64_t first_codes(const GemmParams& p, std::int64_t row) {
  if (kind != WeightKind::bf16 && kBytes == 16 && p.in_units) {
    return row / kUnitRows * kUnitRows * row_bytes<kind>(p.k) + row % kUnitRows * kUnitRowBytes;
  }
  return row * row_bytes<kind>(p.k);
}
template <WeightKind kind, int kBytes>
__device__ __forceinline__ int step_bytes(const GemmParams& p) {
  return kind != WeightKind::bf16 && kBytes == 16 && p.in_units ? kUnitBytes : 4 * kBytes;
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
