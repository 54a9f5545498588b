// Index scores (docs/spec/model.md 5.4 "Index list"): queries are rotated and quantised, then multiplied with packed keys on the tensor
// cores. Codes times two are small integers, so products inside a scale block are exact; the rest of a score is summed in double precision.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {

inline constexpr int kScoreThreads = 256;
inline constexpr int kScoreWarps = kScoreThreads / 32;
inline constexpr int kWarpKeys = 16;
inline constexpr int kBlockKeys = kScoreWarps * kWarpKeys;
inline constexpr int kHeadTile = 8;
inline constexpr int kMaxScaleBlocks = 8;  // index_dim <= 256
inline constexpr float kLowest = -3.402823466e38F;

__host__ __device__ inline std::int32_t scale_blocks(const IndexSelectParams& p) { return p.index_dim / kQ4IndexGroup; }

/// Four E2M1 codes (low 16 bits) to four bytes: value times two.
__device__ __forceinline__ int four_codes(unsigned codes) {
  const unsigned selector = codes & 0x7777U;
  const unsigned positive = __byte_perm(0x03020100U, 0x0C080604U, selector);
  const unsigned negative = __byte_perm(0xFDFEFF00U, 0xF4F8FAFCU, selector);
  const unsigned mask = __byte_perm(0x0000FF00U, 0, codes >> 3 & 0x1111U);
  return static_cast<int>((positive & ~mask) | (negative & mask));
}

/// Row of the request that score i of a step row stands for; -1: none.
__device__ __forceinline__ std::int64_t scored_row(const IndexSelectParams& p, std::int64_t r, std::int64_t i) {
  if (p.candidate_mode != CandidateMode::restrict) {
    return i;
  }
  const std::int64_t block = row_at(p.candidates, r, p.candidate_top_blocks)[i / p.candidate_block_size];
  return block < 0 ? -1 : block * p.candidate_block_size + i % p.candidate_block_size;
}

__device__ __forceinline__ std::int64_t num_scores(const IndexSelectParams& p, std::int64_t r) {
  return p.candidate_mode == CandidateMode::restrict ? static_cast<std::int64_t>(p.candidate_top_blocks) * p.candidate_block_size
                                                     : (p.rows.position[r] + 1) / p.ratio;
}

/// The query of a row in shared memory. Heads come in tiles of eight; those behind the last have the weight 0.
struct Query {
  std::int8_t* codes = nullptr;    // [heads][pitch]: rotated, quantised, times two
  float* scales = nullptr;         // [heads][kBlocks]; 0 where all codes are
  double* head_weight = nullptr;   // [heads]
  std::int32_t* spread = nullptr;  // [warps] most by which exponents of scales of one head differ

  /// Neighbouring heads lie eight banks apart.
  static __host__ __device__ constexpr std::int32_t pitch(std::int32_t dim) { return dim + 32; }
  static constexpr std::size_t bytes(std::int32_t heads, std::int32_t dim) {
    const std::size_t padded = (heads + kHeadTile - 1) / kHeadTile * kHeadTile;
    return padded * (sizeof(double) + dim / kQ4IndexGroup * sizeof(float) + pitch(dim)) + kScoreWarps * sizeof(std::int32_t);
  }
  __device__ Query(std::uint8_t* memory, std::int32_t heads, std::int32_t dim) {
    const std::int32_t padded = (heads + kHeadTile - 1) / kHeadTile * kHeadTile;
    head_weight = reinterpret_cast<double*>(memory);
    codes = reinterpret_cast<std::int8_t*>(head_weight + padded);
    scales = reinterpret_cast<float*>(codes + padded * pitch(dim));
    spread = reinterpret_cast<std::int32_t*>(scales + padded * (dim / kQ4IndexGroup));
  }
};

/// Scores are summed in single precision where that is exact: exponents of the scales near 0 that differ by at most this. A sum over 32
/// codes has 13 bits, eight of them 16.
inline constexpr std::int32_t kMostSpread = 8;
inline constexpr std::int32_t kMostExponent = 50;
inline constexpr std::int32_t kTooMuch = 1000;

/// Exponent of a scale as far as it matters for kMostSpread.
__device__ __forceinline__ std::int32_t exponent_of(float scale) { return static_cast<std::int32_t>(__float_as_uint(scale) >> 23) - 127; }

/// How far the exponents of `count` scales differ, 0 ones left out.
template <int kBlocks>
__device__ __forceinline__ std::int32_t spread_of(const float (&scales)[kBlocks]) {
  std::int32_t low = kTooMuch;
  std::int32_t high = -kTooMuch;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    if (scales[b] != 0.0F) {
      low = min(low, exponent_of(scales[b]));
      high = max(high, exponent_of(scales[b]));
    }
  }
  if (low > high) {
    return 0;
  }
  return low < -kMostExponent || high > kMostExponent ? kTooMuch : high - low;
}

/// The scales of a head.
template <int kBlocks>
__device__ __forceinline__ void load_scales(const float* from, float (&out)[kBlocks]) {
  if constexpr (kBlocks % 4 == 0) {
#pragma unroll
    for (int b = 0; b < kBlocks; b += 4) {
      const float4 x = *reinterpret_cast<const float4*>(from + b);
      out[b] = x.x;
      out[b + 1] = x.y;
      out[b + 2] = x.z;
      out[b + 3] = x.w;
    }
  } else {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      out[b] = from[b];
    }
  }
}

/// Value `lane` of every group of 32 of a head; 0 for the heads behind the last.
template <int kBlocks>
__device__ __forceinline__ void load_head(const IndexSelectParams& p, std::int64_t r, std::int32_t head, float (&out)[kBlocks]) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    out[b] =
        head < p.heads ? to_float(row_at(p.q, r * p.heads + head, kBlocks * kQ4IndexGroup)[b * kQ4IndexGroup + threadIdx.x % 32]) : 0.0F;
  }
}

/// Rotates and quantises the query of row r, one head a warp at a time. Ends with a barrier.
template <int kBlocks>
__device__ void make_query(const IndexSelectParams& p, std::int64_t r, float factor, const Query& out) {
  constexpr std::int32_t kDim = kBlocks * kQ4IndexGroup;
  const std::int32_t padded = (p.heads + kHeadTile - 1) / kHeadTile * kHeadTile;
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const std::int32_t first_turned = kDim - p.rope_dim;
  float next[kBlocks];
  load_head<kBlocks>(p, r, warp, next);
  float cos[kBlocks];
  float sin[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const std::int32_t turned = b * kQ4IndexGroup + lane - first_turned;
    const std::int64_t place = r * (p.rope_dim / 2) + turned / 2;
    cos[b] = turned >= 0 ? p.rope.cos[place] : 1.0F;
    sin[b] = turned >= 0 ? p.rope.sin[place] : 0.0F;
  }
  for (std::int32_t head = threadIdx.x; head < padded; head += kScoreThreads) {
    const float weight = head < p.heads ? to_float(to_bf16(__fmul_rn(to_float(p.head_weight[r * p.heads + head]), factor))) : 0.0F;
    out.head_weight[head] = static_cast<double>(weight);
  }
  std::int32_t spread = 0;
  for (std::int32_t head = warp; head < padded; head += kScoreWarps) {
    float scales[kBlocks];
    float x[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      x[b] = next[b];
    }
    if (head + kScoreWarps < padded) {
      load_head<kBlocks>(p, r, head + kScoreWarps, next);
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const float other = __shfl_xor_sync(kWholeWarp, x[b], 1);
      const float turned = to_float(
          to_bf16(lane % 2 == 0 ? __fmaf_rn(x[b], cos[b], -__fmul_rn(other, sin[b])) : __fmaf_rn(other, sin[b], __fmul_rn(x[b], cos[b]))));
      x[b] = b * kQ4IndexGroup + lane < first_turned ? x[b] : turned;
      const float scale = ue8m0_to_float(power_of_two_scale(group_amax(x[b], kQ4IndexGroup, kQ4IndexFloor), kE2M1Max));
      const auto code = static_cast<std::int8_t>(2.0F * e2m1_value(float_to_e2m1(x[b] * (1.0F / scale))));
      out.codes[head * Query::pitch(kDim) + b * kQ4IndexGroup + lane] = code;
      scales[b] = __any_sync(kWholeWarp, code != 0) ? scale : 0.0F;
      if (lane == 0) {
        out.scales[head * kBlocks + b] = scales[b];
      }
    }
    spread = max(spread, spread_of<kBlocks>(scales));
  }
  if (lane == 0) {
    out.spread[warp] = spread;
  }
  __syncthreads();
}

/// c += a b with 8-bit factors: a 16 x 32, b 32 x 8.
__device__ __forceinline__ void multiply(int (&c)[4], const int (&a)[4], int b0, int b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// A key as a lane sees it: of every 32 values the eight that the lane brings to a product.
template <int kBlocks>
struct Key {
  unsigned codes[kBlocks] = {};
  float scale[kBlocks] = {};  ///< of codes times two on both sides

  /// `place`: the key's place among the rows of a request.
  __device__ __forceinline__ void load(const IndexSelectParams& p, const std::int32_t* blocks, std::int32_t place, std::int32_t t) {
    constexpr std::int32_t kCodeBytes = kBlocks * kQ4IndexGroup / 2;
    const std::int32_t in_block = place % p.rows_per_block;
    const std::int64_t block = blocks[place / p.rows_per_block];
    const std::uint8_t* base = p.keys + block * p.rows_per_block * index_key_bytes(kBlocks * kQ4IndexGroup);
    const unsigned* words = reinterpret_cast<const unsigned*>(base + in_block * kCodeBytes) + t;
    const std::uint8_t* scales = base + p.rows_per_block * kCodeBytes + in_block * kBlocks;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      codes[b] = __ldg(words + b * 4);
      scale[b] = 0.25F * ue8m0_to_float(__ldg(scales + b));
    }
  }
};

/// Sums of codes come out of products as the bits of kSumBase + sum.
inline constexpr int kSumBaseBits = 0x4B400000;
inline constexpr float kSumBase = 12582912.0F;

/// What the heads of a lane add to the scores of two keys: heads 8 j + 2 t and the next.
template <int kBlocks, bool kIsExactInSingle>
__device__ __forceinline__ void score_keys(const Query& query, std::int32_t heads, const Key<kBlocks> (&keys)[2], double (&scores)[2]) {
  const std::int32_t dim = kBlocks * kQ4IndexGroup;
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t g = lane / 4;
  const std::int32_t t = lane % 4;
  int a[kBlocks][4];
  float offset[2][kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[b][i] = four_codes(keys[i].codes[b] & 0xFFFFU);
      a[b][i + 2] = four_codes(keys[i].codes[b] >> 16);
      offset[i][b] = -kSumBase * keys[i].scale[b];
    }
  }
#pragma unroll 1
  for (std::int32_t first_head = 0; first_head < heads; first_head += kHeadTile) {
    const std::int8_t* codes = query.codes + (first_head + g) * Query::pitch(dim) + t * 8;
    int sums[kBlocks][4];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int2 q = *reinterpret_cast<const int2*>(codes + b * kQ4IndexGroup);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[b][i] = kSumBaseBits;
      }
      multiply(sums[b], a[b], q.x, q.y);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int32_t head = first_head + 2 * t + i % 2;
      float scales[kBlocks];
      load_scales<kBlocks>(query.scales + head * kBlocks, scales);
      const Key<kBlocks>& key = keys[i / 2];
      double dot = 0;
      if constexpr (kIsExactInSingle) {
        float sum = 0;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          sum = fmaf(fmaf(__int_as_float(sums[b][i]), key.scale[b], offset[i / 2][b]), scales[b], sum);
        }
        dot = static_cast<double>(fmaxf(sum, 0.0F));
      } else {
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          dot += static_cast<double>(static_cast<float>(sums[b][i] - kSumBaseBits) * (scales[b] * key.scale[b]));
        }
        dot = dot < 0.0 ? 0.0 : dot;
      }
      scores[i / 2] = fma(query.head_weight[head], dot, scores[i / 2]);
    }
  }
}

/// Scores of a row's keys, sixteen a warp. Scores that must never be chosen are -infinity.
template <int kBlocks>
__global__ __launch_bounds__(kScoreThreads, 2) void score_kernel(IndexSelectParams p, std::int64_t first_row, float factor, float* scores,
                                                                 std::int64_t stride) {
  begin_in_turn();
  extern __shared__ __align__(16) std::uint8_t memory[];
  const std::int64_t local = blockIdx.y;
  const std::int64_t r = first_row + local;
  const auto count = static_cast<std::int32_t>(num_scores(p, r));
  if (static_cast<std::int32_t>(blockIdx.x) * kBlockKeys >= count) {
    return;
  }
  const Query query(memory, p.heads, kBlocks * kQ4IndexGroup);
  make_query<kBlocks>(p, r, factor, query);
  std::int32_t query_spread = 0;
  for (int warp = 0; warp < kScoreWarps; ++warp) {
    query_spread = max(query_spread, query.spread[warp]);
  }
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t visible = (p.rows.position[r] + 1) / p.ratio;
  const std::int32_t* blocks = row_at(p.chunks.block_table, p.rows.chunk[r], p.chunks.max_blocks);
  for (std::int32_t base = (static_cast<std::int32_t>(blockIdx.x) * kScoreWarps + static_cast<std::int32_t>(threadIdx.x / 32)) * kWarpKeys;
       base < count; base += static_cast<std::int32_t>(gridDim.x) * kBlockKeys) {
    Key<kBlocks> keys[2];
    bool is_scored[2];
    std::int32_t spread = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t place = base + lane / 4 + i * 8;
      const std::int64_t row = place < count ? scored_row(p, r, place) : -1;
      is_scored[i] = row >= 0 && row < visible;
      if (is_scored[i]) {
        keys[i].load(p, blocks, static_cast<std::int32_t>(row), lane % 4);
        spread = max(spread, spread_of<kBlocks>(keys[i].scale));
      }
    }
    double sums[2] = {};
    if (__any_sync(kWholeWarp, spread + query_spread > kMostSpread)) {
      score_keys<kBlocks, false>(query, p.heads, keys, sums);
    } else {
      score_keys<kBlocks, true>(query, p.heads, keys, sums);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] += __shfl_xor_sync(kWholeWarp, sums[i], 1);
      sums[i] += __shfl_xor_sync(kWholeWarp, sums[i], 2);
      const auto value = static_cast<float>(sums[i]);
      const std::int32_t place = base + lane / 4 + i * 8;
      if (lane % 4 == i && place < count) {
        scores[local * stride + place] = !is_scored[i] ? -INFINITY : isnan(value) ? kLowest : value;
      }
    }
  }
}

}  // namespace deepinfer::cuda
