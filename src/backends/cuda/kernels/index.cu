// Index scores, candidate blocks and the list of the best compressed rows (docs/spec/model.md 5.4 "Index list"): one kernel scores keys with
// integer products on the tensor cores, one selects by the digits of the scores, several blocks a row where there are many.
// Codes times two are small integers, so products inside a scale block are exact; the rest of a score is summed in double precision.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

constexpr int kScoreThreads = 256;
constexpr int kScoreWarps = kScoreThreads / 32;
constexpr int kWarpKeys = 16;
constexpr int kBlockKeys = kScoreWarps * kWarpKeys;
constexpr int kHeadTile = 8;
constexpr int kSelectThreads = 1024;
constexpr int kSelectWarps = kSelectThreads / 32;
constexpr int kMaxScaleBlocks = 8;  // index_dim <= 256
constexpr float kLowest = -3.402823466e38F;

__host__ __device__ std::int32_t scale_blocks(const IndexSelectParams& p) { return p.index_dim / kQ4IndexGroup; }

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

// --- scores -------------------------------------------------------------------------------------------------------

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
constexpr std::int32_t kMostSpread = 8;
constexpr std::int32_t kMostExponent = 50;
constexpr std::int32_t kTooMuch = 1000;

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
    out[b] = head < p.heads ? to_float(row_at(p.q, r * p.heads + head, kBlocks * kQ4IndexGroup)[b * kQ4IndexGroup + threadIdx.x % 32]) : 0.0F;
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
      const float turned =
          to_float(to_bf16(lane % 2 == 0 ? __fmaf_rn(x[b], cos[b], -__fmul_rn(other, sin[b])) : __fmaf_rn(other, sin[b], __fmul_rn(x[b], cos[b]))));
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
constexpr int kSumBaseBits = 0x4B400000;
constexpr float kSumBase = 12582912.0F;

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

// --- selection ----------------------------------------------------------------------------------------------------

/// Order of floats as unsigned integers; -infinity is below every number.
__device__ __forceinline__ unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(x == 0.0F ? 0.0F : x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
constexpr unsigned kNever = 0x007FFFFFU;  // order_of(-infinity)


enum class Selection : std::uint8_t { rows, blocks };

/// What competes: the scores of a row, or the best scores of its candidate blocks, of which the newest always takes part.
struct Competition {
  const float* scores = nullptr;
  std::int32_t count = 0;
  std::int32_t block_size = 0;  ///< 0: scores
  std::int32_t visible = 0;

  __device__ __forceinline__ unsigned order(std::int32_t i) const {
    if (block_size == 0) {
      return order_of(scores[i]);
    }
    float best = kLowest;
    const std::int32_t end = min((i + 1) * block_size, visible);
    for (std::int32_t j = i * block_size; j < end; ++j) {
      best = fmaxf(best, scores[j]);
    }
    return order_of(i + 1 == count ? INFINITY : best);
  }
};

constexpr int kDigits = 3;
constexpr int kDigitBits[kDigits] = {11, 11, 10};
constexpr int kDigitShift[kDigits] = {21, 10, 0};
constexpr std::int32_t kBins = 2048;
static_assert(kBins == 2 * kSelectThreads);
constexpr std::int32_t kCached = 16384;

struct Counts {
  std::int32_t above = 0;  ///< of those that are chosen for sure
  std::int32_t equal = 0;  ///< equals of the last one chosen
};

struct SelectShared {
  unsigned order[kCached];  ///< of the first ones of the block's share
  std::int32_t bins[2][kBins];
  std::int32_t warp_sums[kSelectWarps];
  Counts warps[kSelectWarps];
  Counts block;
  unsigned digit;
  std::int32_t above;
};

/// A block's share of a competition: [begin, end).
struct SelectShare {
  Competition all;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  const unsigned* cache = nullptr;

  __device__ __forceinline__ unsigned order(std::int32_t i) const { return i - begin < kCached ? cache[i - begin] : all.order(i); }
};

/// Counts digit kDigit of those whose higher digits are those of `prefix`; bins must be zero. The first fills the cache on the way.
template <int kDigit>
__device__ __forceinline__ void count_digits(const SelectShare& share, SelectShared& shared, unsigned prefix, std::int32_t* bins) {
  constexpr unsigned kValues = 1U << kDigitBits[kDigit];
  constexpr int kShift = kDigitShift[kDigit];
#pragma unroll 4
  for (std::int32_t i = share.begin + threadIdx.x; i < share.end; i += kSelectThreads) {
    unsigned order = 0;
    if constexpr (kDigit == 0) {
      order = share.all.order(i);
      if (i - share.begin < kCached) {
        shared.order[i - share.begin] = order;
      }
    } else {
      order = share.order(i);
    }
    if (kDigit == 0 || (order ^ prefix) >> kShift < kValues) {
      atomicAdd(&bins[order >> kShift & (kValues - 1)], 1);
    }
  }
}

/// The largest digit that, with those above it, has as many as are still wanted, by the bins of all blocks of the cluster; thread i owns bins
/// 2047 - 2 i and 2046 - 2 i. Ends with a barrier.
__device__ __forceinline__ void find_digit(SelectShared& shared, std::int32_t* bins, unsigned blocks, std::int32_t wanted) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  std::int32_t* own = bins + kBins - 2 - 2 * static_cast<std::int32_t>(threadIdx.x);
  int2 sums = {0, 0};
  for (unsigned block = 0; block < blocks; ++block) {
    const int2 other = *reinterpret_cast<const int2*>(in_block(own, block));
    sums.x += other.x;
    sums.y += other.y;
  }
  std::int32_t up_to = sums.x + sums.y;
  for (int offset = 1; offset < 32; offset *= 2) {
    const std::int32_t other = __shfl_up_sync(kWholeWarp, up_to, offset);
    up_to += lane >= offset ? other : 0;
  }
  if (lane == 31) {
    shared.warp_sums[warp] = up_to;
  }
  __syncthreads();
  for (std::int32_t i = 0; i < warp; ++i) {
    up_to += shared.warp_sums[i];
  }
  const std::int32_t before = up_to - sums.x - sums.y;
  if (before < wanted && wanted <= up_to) {
    const bool is_upper = before + sums.y >= wanted;
    shared.digit = static_cast<unsigned>(kBins - 2 - 2 * static_cast<std::int32_t>(threadIdx.x) + (is_upper ? 1 : 0));
    shared.above = before + (is_upper ? 0 : sums.y);
  }
  __syncthreads();
}

/// The order value of the last one chosen and how many of its equals are; everything above is chosen.
struct Threshold {
  unsigned order = kNever;
  std::int32_t equals = 0;
};

__device__ __forceinline__ Threshold find_threshold(const SelectShare& share, SelectShared& shared, unsigned blocks, std::int32_t wanted) {
  unsigned prefix = 0;
  const auto digit = [&]<int kDigit>(std::integral_constant<int, kDigit>) {
    constexpr int kShift = kDigitShift[kDigit];
    std::int32_t* bins = shared.bins[kDigit % 2];  // the other blocks may still read those of the digit before
    for (std::int32_t i = threadIdx.x; i < kBins; i += kSelectThreads) {
      bins[i] = 0;
    }
    __syncthreads();
    count_digits<kDigit>(share, shared, prefix, bins);
    cluster_barrier();
    find_digit(shared, bins, blocks, wanted);
    prefix |= shared.digit << kShift;
    wanted -= shared.above;
  };
  digit(std::integral_constant<int, 0>{});
  digit(std::integral_constant<int, 1>{});
  digit(std::integral_constant<int, 2>{});
  return prefix <= kNever ? Threshold{} : Threshold{prefix, wanted};
}

/// The share of a warp in the share of its block, in multiples of 32: order is kept.
struct WarpShare {
  std::int32_t begin, end;

  __device__ explicit WarpShare(const SelectShare& share) {
    const std::int32_t size = ((share.end - share.begin + kSelectWarps - 1) / kSelectWarps + 31) / 32 * 32;
    begin = share.begin + static_cast<std::int32_t>(threadIdx.x / 32) * size;
    end = min(begin + size, share.end);
  }
};

/// Writes what the share holds of the chosen, behind what the blocks and warps before it hold; pads with -1.
__device__ void write_chosen(const IndexSelectParams& p, std::int64_t r, const SelectShare& share, SelectShared& shared, unsigned blocks,
                             const Threshold& threshold, std::int32_t wanted, std::int32_t* out) {
  const unsigned rank = cluster_rank();
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const WarpShare own(share);
  Counts counts;
  for (std::int32_t first = own.begin; first < own.end; first += 32) {
    const unsigned order = first + lane < own.end ? share.order(first + lane) : 0;
    counts.above += __popc(__ballot_sync(kWholeWarp, order > threshold.order));
    counts.equal += __popc(__ballot_sync(kWholeWarp, order == threshold.order));
  }
  if (lane == 0) {
    shared.warps[warp] = counts;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    Counts sum;
    for (const Counts& one : shared.warps) {
      sum.above += one.above;
      sum.equal += one.equal;
    }
    shared.block = sum;
  }
  cluster_barrier();
  Counts before;
  Counts all;
  for (unsigned block = 0; block < blocks; ++block) {
    const Counts other = *in_block(&shared.block, block);
    all.above += other.above;
    all.equal += other.equal;
    before.above += block < rank ? other.above : 0;
    before.equal += block < rank ? other.equal : 0;
  }
  for (std::int32_t i = 0; i < warp; ++i) {
    before.above += shared.warps[i].above;
    before.equal += shared.warps[i].equal;
  }
  const unsigned lower_lanes = (1U << lane) - 1U;
  for (std::int32_t first = own.begin; first < own.end; first += 32) {
    const std::int32_t i = first + lane;
    const unsigned order = i < own.end ? share.order(i) : 0;
    const unsigned above = __ballot_sync(kWholeWarp, order > threshold.order);
    const unsigned equal = __ballot_sync(kWholeWarp, order == threshold.order);
    const std::int32_t equals_before = before.equal + __popc(equal & lower_lanes);
    if (order > threshold.order || (order == threshold.order && equals_before < threshold.equals)) {
      const std::int32_t place = before.above + __popc(above & lower_lanes) + min(equals_before, threshold.equals);
      out[place] = share.all.block_size == 0 ? static_cast<std::int32_t>(scored_row(p, r, i)) : i;
    }
    before.above += __popc(above);
    before.equal += __popc(equal);
  }
  if (rank == 0) {
    for (std::int32_t i = all.above + min(all.equal, threshold.equals) + static_cast<std::int32_t>(threadIdx.x); i < wanted;
         i += kSelectThreads) {
      out[i] = -1;
    }
  }
}

/// Indices of the largest scores of a row, ties to the smaller index, ascending, padded with -1. A cluster of `blocks` blocks takes a row
/// (y = 0) or its candidate blocks (y = 1).
__global__ __launch_bounds__(kSelectThreads) void select_kernel(IndexSelectParams p, std::int64_t first_row, const float* scores,
                                                                std::int64_t stride, unsigned blocks) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  SelectShared& shared = *reinterpret_cast<SelectShared*>(memory);
  const std::int64_t local = blockIdx.x / blocks;
  const std::int64_t r = first_row + local;
  const std::int32_t visible = (p.rows.position[r] + 1) / p.ratio;
  SelectShare share;
  share.all = {scores + local * stride, static_cast<std::int32_t>(num_scores(p, r)), 0, visible};
  std::int32_t wanted = p.top_k;
  std::int32_t* out = row_at(p.list, r, p.top_k);
  if (blockIdx.y == 1) {
    share.all.count = (visible + p.candidate_block_size - 1) / p.candidate_block_size;
    share.all.block_size = p.candidate_block_size;
    wanted = p.candidate_top_blocks;
    out = row_at(p.candidates, r, p.candidate_top_blocks);
  }
  const std::int32_t size = (share.all.count + static_cast<std::int32_t>(blocks) - 1) / static_cast<std::int32_t>(blocks);
  share.begin = min(static_cast<std::int32_t>(cluster_rank()) * size, share.all.count);
  share.end = min(share.begin + size, share.all.count);
  share.cache = shared.order;
  Threshold threshold;
  if (share.all.count > wanted) {
    threshold = find_threshold(share, shared, blocks, wanted);
  } else {  // all that may be chosen are
    for (std::int32_t i = share.begin + threadIdx.x; i < share.end && i - share.begin < kCached; i += kSelectThreads) {
      shared.order[i - share.begin] = share.all.order(i);
    }
    __syncthreads();
  }
  write_chosen(p, r, share, shared, blocks, threshold, wanted, out);
  cluster_arrive();
  cluster_wait();  // a block's counts stay until all blocks have read them
}

using ScoreKernel = void (*)(IndexSelectParams, std::int64_t, float, float*, std::int64_t);

ScoreKernel score_kernel_for(std::int32_t blocks) {
  constexpr ScoreKernel kKernels[kMaxScaleBlocks] = {score_kernel<1>, score_kernel<2>, score_kernel<3>, score_kernel<4>,
                                                     score_kernel<5>, score_kernel<6>, score_kernel<7>, score_kernel<8>};
  return kKernels[blocks - 1];
}

constexpr std::int64_t kMultiprocessors = 132;  ///< of a Hopper GPU; any number works

/// Blocks of a selection: more where scores are many and rows few.
unsigned select_blocks(std::int64_t scores, std::int64_t selections) {
  constexpr std::int64_t kEnough = 8192;  // scores a block
  unsigned blocks = 1;
  while (blocks < kMostClusterBlocks && scores > kEnough * blocks && 2 * blocks * selections <= kMultiprocessors) {
    blocks *= 2;
  }
  return blocks;
}

}  // namespace

std::size_t index_query_bytes(const IndexSelectParams&, std::int64_t) { return 0; }

std::int64_t index_scores_per_row(const IndexSelectParams& p) {
  return p.candidate_mode == CandidateMode::restrict ? static_cast<std::int64_t>(p.candidate_top_blocks) * p.candidate_block_size
                                                     : static_cast<std::int64_t>(p.chunks.max_blocks) * p.rows_per_block;
}

void index_select(const IndexSelectParams& p, std::int64_t first_row, std::int64_t rows, void*, float* scores, cudaStream_t stream) {
  const auto factor = static_cast<float>(1.0 / sqrt(static_cast<double>(p.index_dim) * p.heads));
  const std::int64_t stride = index_scores_per_row(p);
  constexpr std::int64_t kBlocks = kMultiprocessors * 2;  // that run at once; each goes on to further keys
  const std::int64_t needed = (stride + kBlockKeys - 1) / kBlockKeys;
  const dim3 grid(static_cast<unsigned>(std::min(needed, kBlocks / rows + 1)), static_cast<unsigned>(rows));
  score_kernel_for(scale_blocks(p))<<<grid, kScoreThreads, Query::bytes(p.heads, p.index_dim), stream>>>(p, first_row, factor, scores, stride);
  const unsigned selections = p.candidate_mode == CandidateMode::produce ? 2 : 1;
  const unsigned blocks = select_blocks(stride, rows * selections);
  launch_clusters(select_kernel,
                  {.grid = dim3(static_cast<unsigned>(rows) * blocks, selections), .threads = kSelectThreads, .cluster = blocks, .shared_bytes = sizeof(SelectShared)},
                  stream, p, first_row, scores, stride, blocks);
}

}  // namespace deepinfer::cuda
