// Index scores where many rows of a request follow each other (SM90), 32 heads of 128 values: the bits of index_scores.cuh. A block takes
// eight rows: keys are decoded to registers once for all of them and multiplied with the queries by warpgroup instructions in bf16. Sums of
// products are exact where the exponents of the scales differ by at most kMostSpread, so that their order does not matter; the few other
// scores are made anew, one a thread. Behind a product each key and head takes a conversion to double precision, which takes as long again.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/index_scores.cuh"
#include "backends/cuda/kernels/wgmma.cuh"
#include "backends/cuda/kernels/wide_keys.cuh"

namespace deepinfer::cuda {
namespace many {

inline constexpr std::int32_t kHeads = 32;
inline constexpr std::int32_t kDim = 128;
inline constexpr std::int32_t kGroups = kDim / kQ4IndexGroup;
inline constexpr std::int32_t kRows = 8;  ///< of a block, one a warp while queries are made
inline constexpr std::int32_t kStepRows = 2;
inline constexpr std::int32_t kKeys = 64;  ///< a warpgroup takes at once
inline constexpr std::int32_t kTileBytes = kRows * kHeads * kTileRowBytes;
static_assert(kScoreWarps == kRows);

/// Dynamic shared memory; two blocks share a multiprocessor.
struct Queries {
  /// [two tiles of 64 values][row][head]. Lane t of a product has values [32 t, 32 t + 32), eight for two products, in the order of
  /// wide_keys.cuh.
  std::uint8_t values[2 * kTileBytes];
  double weights[kRows][kHeads];
  float scales[kRows][kHeads][kGroups];  ///< 0 where all codes are
  std::int32_t visible[kRows];
  std::int32_t chunk[kRows];
  std::int32_t spread[kRows];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// |x| to the nearest value of E2M1, ties to the even code, at most 6; NaN gives 6.
__device__ __forceinline__ float nearest_e2m1(float x) {
  const float m = fminf(fabsf(x), kE2M1Max);
  // Its exponent, that of 1 for smaller ones, plus 22: behind the addition the last bit is half of the power of two.
  const float magic = __uint_as_float((__float_as_uint(fmaxf(m, 1.0F)) & 0x7F800000U) + 0x0B400000U);
  return copysignf(m + magic - magic, x);
}

__device__ __forceinline__ float lower_half(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float upper_half(unsigned pair) { return __uint_as_float(pair & 0xFFFF0000U); }

/// Rotates and quantises the query of row r; one warp, two heads at a time, eight neighbouring values a lane.
__device__ __forceinline__ void make_query(const IndexSelectParams& p, std::int64_t r, float factor, std::int32_t row, Queries& out) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const std::int32_t t = lane % 16 / 4;
  const std::int32_t word = lane % 4;
  const std::int32_t column = t * kQ4IndexGroup + word * 8;
  const std::int32_t first_turned = kDim - p.rope_dim;
  const bf16* q = row_at(p.q, r * kHeads, kDim) + lane / 16 * kDim + column;
  float cos[4];
  float sin[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t place = r * (p.rope_dim / 2) + (column - first_turned) / 2 + i;
    cos[i] = column >= first_turned ? p.rope.cos[place] : 1.0F;
    sin[i] = column >= first_turned ? p.rope.sin[place] : 0.0F;
  }
  out.weights[row][lane] = to_float(to_bf16(__fmul_rn(to_float(p.head_weight[r * kHeads + lane]), factor)));
  if (lane == 0) {
    out.visible[row] = (p.rows.position[r] + 1) / p.ratio;
    out.chunk[row] = p.rows.chunk[r];
  }
  std::int32_t spread = 0;
  uint4 next = __ldg(reinterpret_cast<const uint4*>(q));
#pragma unroll 1
  for (std::int32_t pass = 0; pass < kHeads / 2; ++pass) {
    const unsigned words[4] = {next.x, next.y, next.z, next.w};
    if (pass + 1 < kHeads / 2) {
      next = __ldg(reinterpret_cast<const uint4*>(q + (pass + 1) * 2 * kDim));
    }
    float x[8];
    float amax = kQ4IndexFloor;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned pair = words[i];
      if (column >= first_turned) {
        const float x0 = lower_half(pair);
        const float x1 = upper_half(pair);
        pair = bf16_pair(__fmaf_rn(x0, cos[i], -__fmul_rn(x1, sin[i])), __fmaf_rn(x0, sin[i], __fmul_rn(x1, cos[i])));
      }
      x[2 * i] = lower_half(pair);
      x[2 * i + 1] = upper_half(pair);
      amax = fmaxf(amax, fmaxf(fabsf(x[2 * i]), fabsf(x[2 * i + 1])));  // skips NaN
    }
    amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
    const float scale = ue8m0_to_float(power_of_two_scale(amax, kE2M1Max));
    const float inverse = 1.0F / scale;
    float highest = 0;
#pragma unroll
    for (float& value : x) {
      value = nearest_e2m1(value * inverse);
      highest = fmaxf(highest, fabsf(value));
      value *= scale;
    }
    highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, 2));
    const bool is_empty = highest == 0.0F;
    const std::int32_t head = 2 * pass + lane / 16;
    if (word == 0) {
      out.scales[row][head][t] = is_empty ? 0.0F : scale;
    }
    std::int32_t low = is_empty ? kTooMuch : exponent_of(scale);
    std::int32_t high = is_empty ? -kTooMuch : exponent_of(scale);
#pragma unroll
    for (int offset = 4; offset <= 8; offset *= 2) {
      low = min(low, __shfl_xor_sync(kWholeWarp, low, offset));
      high = max(high, __shfl_xor_sync(kWholeWarp, high, offset));
    }
    const bool is_far = low < -kMostExponent || high > kMostExponent;
    spread = max(spread, low > high ? 0 : is_far ? kTooMuch : high - low);
    const std::int32_t line = row * kHeads + head;
    std::uint8_t* to = out.values + word / 2 * kTileBytes + t * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<unsigned*>(to + tile_offset(line, word % 2 * 4 + i)) =
          __byte_perm(__float_as_uint(x[i]), __float_as_uint(x[i + 4]), 0x7632);
    }
  }
  spread = max(spread, __shfl_xor_sync(kWholeWarp, spread, 16));
  if (lane == 0) {
    out.spread[row] = spread;
  }
}

/// Where a key lies, in its block.
struct KeyPlace {
  const std::uint8_t* codes;
  const std::uint8_t* scales;

  __device__ __forceinline__ KeyPlace(const IndexSelectParams& p, const std::int32_t* blocks, std::int32_t place) {
    const std::int32_t in_block = place % p.rows_per_block;
    const std::uint8_t* base = p.keys + std::int64_t{blocks[place / p.rows_per_block]} * p.rows_per_block * index_key_bytes(kDim);
    codes = base + in_block * (kDim / 2);
    scales = base + p.rows_per_block * (kDim / 2) + in_block * kGroups;
  }
};

/// A score as score_keys<kGroups, false>() makes it.
__device__ __noinline__ double score_alone(const Queries& queries, std::int32_t row, const KeyPlace& key) {
  double parts[4];
  for (std::int32_t t = 0; t < 4; ++t) {
    double sum = 0;
    for (std::int32_t i = 0; i < kHeads / 4; ++i) {
      const std::int32_t head = i / 2 * 8 + 2 * t + i % 2;
      const std::int32_t line = row * kHeads + head;
      double dot = 0;
      for (std::int32_t group = 0; group < kGroups; ++group) {
        const float scale = queries.scales[row][head][group];
        std::int32_t codes = 0;
        for (std::int32_t c = 0; c < kQ4IndexGroup && scale != 0.0F; ++c) {
          const std::int32_t word = c / 8;
          const std::uint8_t* piece = queries.values + word / 2 * kTileBytes + tile_offset(line, word % 2 * 4 + c % 4);
          const float value = to_float(*reinterpret_cast<const bf16*>(piece + group * 4 + c % 8 / 4 * 2)) / scale;
          const float other = e2m1_value(nibble(key.codes, group * kQ4IndexGroup + c));
          codes += static_cast<std::int32_t>(4.0F * value * other);
        }
        dot += static_cast<double>(static_cast<float>(codes) * (scale * (0.25F * ue8m0_to_float(key.scales[group]))));
      }
      dot = dot < 0.0 ? 0.0 : dot;
      sum = fma(queries.weights[row][head], dot, sum);
    }
    parts[t] = sum;
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

/// Two keys of a lane as they are stored: sixteen bytes of codes, all scales.
struct LaneKeys {
  uint4 codes[2];
  unsigned scales[2];

  __device__ __forceinline__ void load(const IndexSelectParams& p, const std::int32_t* blocks, std::int32_t first, std::int32_t count) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int32_t place = first + i * 8;
      codes[i] = {0, 0, 0, 0};
      scales[i] = 0x7F7F7F7FU;
      if (place < count) {
        const KeyPlace key(p, blocks, place);
        codes[i] = __ldg(reinterpret_cast<const uint4*>(key.codes + threadIdx.x % 4 * 16));
        scales[i] = __ldg(reinterpret_cast<const unsigned*>(key.scales));
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t spread(int i) const {
    std::int32_t low = kTooMuch;
    std::int32_t high = -kTooMuch;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const auto exponent = static_cast<std::int32_t>(scales[i] >> group * 8 & 0xFFU) - 129;  // of codes times two on both sides
      low = min(low, exponent);
      high = max(high, exponent);
    }
    return low < -kMostExponent || high > kMostExponent ? kTooMuch : high - low;
  }
  /// The left factors of all eight products; values are true ones where the scales are near 1.
  __device__ __forceinline__ void decode(unsigned (&a)[8][4]) const {
    constexpr unsigned kUnit = 0x7E807E80U;  // 2^126, twice
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned code = scales[i] >> threadIdx.x % 4 * 8 & 0xFFU;
      const unsigned scale = code << 7 | code << 23;
      const unsigned words[4] = {codes[i].x, codes[i].y, codes[i].z, codes[i].w};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        unsigned pairs[4];
        decode_fp4(words[word], kUnit, pairs);
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          a[word * 2 + pair / 2][pair % 2 * 2 + i] = multiply_pairs(pairs[pair], scale);
        }
      }
    }
  }
};

/// Scores of the keys of one tile for rows [first, end) of the block, which belong to one request; a warpgroup. `place`: of the lane's first.
__device__ __forceinline__ void score_tile(const IndexSelectParams& p, const Queries& queries, const std::int32_t* blocks,
                                           std::int32_t first, std::int32_t end, std::int32_t place, const LaneKeys& keys, float* scores,
                                           std::int64_t stride) {
  const auto t = static_cast<std::int32_t>(threadIdx.x % 4);
  unsigned a[8][4];
  keys.decode(a);
  const std::int32_t spread = t % 2 == 0 ? keys.spread(0) : keys.spread(1);  // of the key whose scores end up here
  const std::int32_t own_place = place + t % 2 * 8;
  const unsigned values = shared_address(queries.values);
#pragma unroll 1
  for (std::int32_t step = first / kStepRows; step * kStepRows < end; ++step) {
    float sums[32];
#pragma unroll
    for (float& sum : sums) {
      sum = 0;
    }
    begin_products();
#pragma unroll
    for (int product = 0; product < 8; ++product) {
      const std::int32_t tile = product / 4 * kTileBytes + step * kStepRows * kHeads * kTileRowBytes;
      multiply_by_rows(sums, a[product], values + static_cast<unsigned>(tile), product % 4);
    }
    end_products();
    wait_products<0>();
    take_sums(sums);
    double totals[2][kStepRows] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const double2 weights = *reinterpret_cast<const double2*>(queries.weights[step * kStepRows + j / 4] + j % 4 * 8 + 2 * t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        double& total = totals[i / 2][j / 4];
        total = fma(i % 2 == 0 ? weights.x : weights.y, static_cast<double>(fmaxf(sums[4 * j + i], 0.0F)), total);
      }
    }
    // Lanes 0 and 1 of four join, 2 and 3, then both; a lane keeps key t % 2 of row t / 2.
    double joined[kStepRows];
#pragma unroll
    for (int row = 0; row < kStepRows; ++row) {
      joined[row] = (t % 2 == 0 ? totals[0][row] : totals[1][row]) +
                    __shfl_xor_sync(kWholeWarp, t % 2 == 0 ? totals[1][row] : totals[0][row], 1);
    }
    double total = (t / 2 == 0 ? joined[0] : joined[1]) + __shfl_xor_sync(kWholeWarp, t / 2 == 0 ? joined[1] : joined[0], 2);
    const std::int32_t row = step * kStepRows + t / 2;
    if (row >= first && row < end && own_place < queries.visible[row]) {
      if (spread + queries.spread[row] > kMostSpread) {
        total = score_alone(queries, row, KeyPlace(p, blocks, own_place));
      }
      const auto value = static_cast<float>(total);
      scores[row * stride + own_place] = isnan(value) ? kLowest : value;
    }
  }
}

#endif  // SM90

/// Grid (parts of the keys, rows / kRows).
__global__ __launch_bounds__(kScoreThreads, 2) void score_many_kernel(const __grid_constant__ IndexSelectParams p, std::int64_t first_row,
                                                                      std::int64_t num_rows, float factor, float* scores,
                                                                      std::int64_t stride) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::uint8_t memory[];
  begin_in_turn();
  Queries& queries = *reinterpret_cast<Queries*>(memory);
  const std::int64_t block_row = std::int64_t{blockIdx.y} * kRows;
  const auto rows = static_cast<std::int32_t>(num_rows - block_row < kRows ? num_rows - block_row : kRows);
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  if (warp < rows) {
    make_query(p, first_row + block_row + warp, factor, warp, queries);
  }
  publish_tiles();
  __syncthreads();
  constexpr std::int32_t kGroupThreads = 128;
  const auto group = static_cast<std::int32_t>(blockIdx.x * (kScoreThreads / kGroupThreads) + threadIdx.x / kGroupThreads);
  const auto groups = static_cast<std::int32_t>(gridDim.x * (kScoreThreads / kGroupThreads));
  const auto own = static_cast<std::int32_t>(threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4);
  std::int32_t end = 0;
  for (std::int32_t first = 0; first < rows; first = end) {
    std::int32_t count = 0;
    for (end = first; end < rows && queries.chunk[end] == queries.chunk[first]; ++end) {
      count = max(count, queries.visible[end]);
    }
    const std::int32_t* blocks = row_at(p.chunks.block_table, queries.chunk[first], p.chunks.max_blocks);
    LaneKeys next;
    next.load(p, blocks, group * kKeys + own, count);
    for (std::int32_t tile = group; tile * kKeys < count; tile += groups) {
      const LaneKeys keys = next;
      next.load(p, blocks, (tile + groups) * kKeys + own, count);
      score_tile(p, queries, blocks, first, end, tile * kKeys + own, keys, scores + block_row * stride, stride);
    }
  }
#endif
}

/// Whether score_many_kernel() takes these rows.
[[nodiscard]] inline bool takes(const IndexSelectParams& p) {
  constexpr std::int32_t kEnough = 2 * kRows;  // rows of a request
  return p.heads == kHeads && p.index_dim == kDim && p.rope_dim % 8 == 0 && p.candidate_mode != CandidateMode::restrict &&
         p.rows.num_rows >= kEnough * p.chunks.num_chunks;
}

}  // namespace many
}  // namespace deepinfer::cuda
