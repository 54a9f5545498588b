// What the steps of a draw share: a row of logits in the shared memories of a cluster of blocks, its largest value, its sum of weights in the
// order of sampling::ColumnSum.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/start.cuh"
#include "sampling/exponential.h"
#include "sampling/prefix.h"

namespace deepinfer::cuda::draw {

using sampling::kSumBlock;
using sampling::kSumLanes;
using sampling::order_key;

inline constexpr int kThreads = 512;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kClusterBlocks = kPortableClusterBlocks;
inline constexpr int kDigitBits = 11;
inline constexpr int kBuckets = 1 << kDigitBits;
inline constexpr std::int32_t kMaxSumBlocks = 512;
inline constexpr float kRemoved = -INFINITY;
static_assert(kSumLanes == 32 && kThreads >= kMaxSumBlocks);

/// Sums of kSumBlock columns in the slice of one block.
__host__ __device__ constexpr std::int32_t sums_per_block(std::int32_t vocab) {
  const std::int32_t num_sums = (vocab + kSumBlock - 1) / kSumBlock;
  return (num_sums + kClusterBlocks - 1) / kClusterBlocks;
}

/// Orders values, larger ones first by `key`, and of equal ones the smaller column.
__device__ __forceinline__ std::uint64_t ranked(float value, std::int32_t column) {
  return static_cast<std::uint64_t>(order_key(value)) << 32 | static_cast<std::uint32_t>(~column);
}
__device__ __forceinline__ std::int32_t column_of(std::uint64_t ranked) { return static_cast<std::int32_t>(~static_cast<std::uint32_t>(ranked)); }
/// The value that order_key() made `key` of.
__device__ __forceinline__ float value_of(std::uint32_t key) { return __uint_as_float(key >> 31 != 0 ? key ^ 0x80000000U : ~key); }

struct Bucket {
  std::uint64_t mass;
  std::uint32_t num_columns;
};

/// What is left of the limits of a prefix, and where one is reached.
struct Crossing {
  std::int64_t mass;
  std::int64_t num_columns;
  std::uint32_t bucket;
  std::uint32_t is_reached;
  Bucket content;
};

/// The largest value of some columns, where it is, and a bound of all the others.
struct TopTwo {
  double best = -INFINITY;
  double second = -INFINITY;
  std::int32_t column = 0;

  __device__ __forceinline__ void offer(double value, std::int32_t at) {
    second = fmax(second, fmin(best, value));
    column = value > best ? at : column;
    best = fmax(best, value);
  }
  __device__ __forceinline__ void join(const TopTwo& other) {
    second = fmax(other.second, second);
    offer(other.best, other.column);
  }
};

struct alignas(16) Shared {
  double all_sums[kMaxSumBlocks];
  double block_sums[kMaxSumBlocks / kClusterBlocks];
  std::uint32_t mass[kBuckets];  // that of a whole row is about sampling::kMassUnits, which leaves a bit
  std::uint32_t num_columns[kBuckets];
  Bucket merged_total;
  Bucket scan[kWarps];
  Crossing crossing;
  std::uint64_t best[kWarps];
  std::uint64_t block_best[3];  // of the maximum, of the maximum where no allowed logit is finite, of the winner
  TopTwo top[kWarps];
  TopTwo block_top;
  std::uint64_t inbox;
  std::uint64_t sent[kClusterBlocks][4];  // BlockFound
  std::uint32_t at_least;  // order_key()
  std::int32_t num_equal;
  std::int32_t cut;
};

/// What a block finds in its columns alone, in the words in which blocks tell each other.
struct BlockFound {
  std::uint64_t best = 0;  // ranked logit; 0: none above -infinity, all bits: one is no number
  TopTwo top;              // of sums relative to that logit
};

/// Columns behind the last one are removed ones, up to a whole number of sums.
struct Slice {
  float* values;            // [columns] shared memory
  std::int32_t first;       // column
  std::int32_t size;
  std::int32_t columns;
};

template <class T>
__device__ T larger(T a, T b) {
  return a > b ? a : b;
}

/// The largest value of the block's threads, given to all of them.
__device__ inline std::uint64_t block_largest(std::uint64_t value, Shared& shared) {
  for (int step = 16; step >= 1; step /= 2) {
    value = larger(value, static_cast<std::uint64_t>(__shfl_xor_sync(~0U, static_cast<unsigned long long>(value), step)));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared.best[threadIdx.x / 32] = value;
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) {
    value = larger(value, shared.best[w]);
  }
  return value;
}

/// The same over the cluster; every `place` is used once.
__device__ inline std::uint64_t cluster_largest(std::uint64_t value, int place, Shared& shared) {
  value = block_largest(value, shared);
  if (threadIdx.x == 0) {
    shared.block_best[place] = value;
  }
  cluster_barrier();
  for (unsigned b = 0; b < kClusterBlocks; ++b) {
    value = larger(value, *in_block(&shared.block_best[place], b));
  }
  return value;
}

__device__ __forceinline__ TopTwo warp_top(TopTwo top) {
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) {
    const TopTwo other = {.best = __shfl_xor_sync(~0U, top.best, step),
                          .second = __shfl_xor_sync(~0U, top.second, step),
                          .column = __shfl_xor_sync(~0U, top.column, step)};
    top.join(other);
  }
  return top;
}

/// The two largest values of the block, for the threads of its first warp.
__device__ inline TopTwo block_top(const TopTwo& own, Shared& shared) {
  const TopTwo top = warp_top(own);
  if (threadIdx.x % 32 == 0) {
    shared.top[threadIdx.x / 32] = top;
  }
  __syncthreads();
  return threadIdx.x < 32 ? warp_top(threadIdx.x < kWarps ? shared.top[threadIdx.x] : TopTwo{}) : TopTwo{};
}

/// The two largest values of the cluster.
__device__ inline TopTwo cluster_top(const TopTwo& own, Shared& shared) {
  const TopTwo top = block_top(own, shared);
  if (threadIdx.x == 0) {
    shared.block_top = top;
  }
  cluster_barrier();
  TopTwo out;
  for (unsigned b = 0; b < kClusterBlocks; ++b) {
    out.join(*in_block(&shared.block_top, b));
  }
  return out;
}

__device__ __forceinline__ bool is_allowed(const std::uint32_t* mask, std::int32_t column) {
  return mask == nullptr || (mask[column / 32] >> (column % 32) & 1U) != 0;
}

/// kWide neighbouring columns.
template <int kWide>
struct Columns {
  float v[kWide];

  __device__ __forceinline__ float largest() const {
    float out = v[0];
#pragma unroll
    for (int j = 1; j < kWide; ++j) {
      out = fmaxf(out, v[j]);
    }
    return out;
  }
};

template <int kWide>
__device__ __forceinline__ Columns<kWide> load_columns(const float* from) {
  if constexpr (kWide == 4) {
    const float4 x = __ldcs(reinterpret_cast<const float4*>(from));
    return {x.x, x.y, x.z, x.w};
  } else {
    return {__ldcs(from)};
  }
}

/// Reads the block's columns, kWide at a time; the vocabulary is a multiple of it. Returns the thread's largest, ranked; 0 when none is above
/// -infinity. `bad`: an allowed NaN or +infinity was seen.
template <int kWide>
__device__ std::uint64_t load_row(const float* logits, const std::uint32_t* mask, const Slice& slice, bool& bad) {
  constexpr std::int32_t kTogether = 8;  // loads on their way at once
  constexpr std::int32_t kStep = kThreads * kWide;
  float best = kRemoved;
  std::int32_t place = 0;
  for (std::int32_t first = static_cast<std::int32_t>(threadIdx.x) * kWide; first < slice.columns; first += kTogether * kStep) {
    Columns<kWide> columns[kTogether];
#pragma unroll
    for (std::int32_t t = 0; t < kTogether; ++t) {
      const std::int32_t i = first + t * kStep;
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        columns[t].v[j] = kRemoved;
      }
      if (i < slice.size) {
        columns[t] = load_columns<kWide>(logits + slice.first + i);
      }
    }
#pragma unroll
    for (std::int32_t t = 0; t < kTogether; ++t) {
      const std::int32_t i = first + t * kStep;
      if (i >= slice.columns) {
        break;
      }
      Columns<kWide>& x = columns[t];
      const std::int32_t column = slice.first + i;
      const std::uint32_t allowed = mask != nullptr && i < slice.size ? mask[column / 32] >> (column % 32) : ~0U;
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        x.v[j] = (allowed >> j & 1U) != 0 ? x.v[j] : kRemoved;
        bad = bad || !(x.v[j] < INFINITY);
      }
      if constexpr (kWide == 4) {
        *reinterpret_cast<float4*>(slice.values + i) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
      } else {
        slice.values[i] = x.v[0];
      }
      const float largest = x.largest();
      place = largest > best ? i : place;
      best = fmaxf(best, largest);
    }
  }
  while (best > kRemoved && slice.values[place] != best) {  // which of them it is
    ++place;
  }
  return best > kRemoved ? ranked(best, slice.first + place) : 0;
}

/// All allowed columns alike, where none of them has a finite logit (sampling::mask_row).
__device__ inline std::uint64_t level_row(const std::uint32_t* mask, const Slice& slice) {
  std::uint64_t best = 0;
  for (std::int32_t i = threadIdx.x; i < slice.size; i += kThreads) {
    if (is_allowed(mask, slice.first + i)) {
      slice.values[i] = 0.0F;
      best = larger(best, ranked(0.0F, slice.first + i));
    }
  }
  return best;
}

struct Weights {
  double largest;
  double inverse_temperature;

  __device__ double exponent(float logit) const { return (static_cast<double>(logit) - largest) * inverse_temperature; }
  __device__ double operator()(float logit) const { return sampling::exp_nonpositive(exponent(logit)); }
};

/// The sum of weight(i) over all columns of the row in the order of sampling::ColumnSum; `i` counts the columns of the block.
template <class Weight>
__device__ double sum_row(const Slice& slice, std::int32_t vocab, Shared& shared, const Weight& weight) {
  const int lane = threadIdx.x % 32;
  const std::int32_t num_sums = (slice.size + kSumBlock - 1) / kSumBlock;
  for (std::int32_t b = threadIdx.x / 32; b < num_sums; b += kWarps) {
    double sum = 0.0;
#pragma unroll 8
    for (std::int32_t i = 0; i < kSumBlock; i += 32) {
      sum += weight(b * kSumBlock + lane + i);
    }
    for (int half = 16; half >= 1; half /= 2) {
      sum += __shfl_down_sync(~0U, sum, half);
    }
    if (lane == 0) {
      shared.block_sums[b] = sum;
    }
  }
  cluster_barrier();
  const std::int32_t num_all = (vocab + kSumBlock - 1) / kSumBlock;
  const std::int32_t per_block = sums_per_block(vocab);
  for (std::int32_t b = threadIdx.x; b < num_all; b += kThreads) {
    shared.all_sums[b] = *in_block(&shared.block_sums[b % per_block], b / per_block);
  }
  cluster_barrier();  // the next sum may be written
  double total = 0.0;
  for (std::int32_t b = 0; b < num_all; ++b) {
    total += shared.all_sums[b];
  }
  return total;
}

}  // namespace deepinfer::cuda::draw
