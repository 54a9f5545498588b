// The shortest prefix of a row that reaches a limit (sampling/prefix.h): buckets of each digit of the order in shared memory, joined over the
// cluster.
#pragma once

#include "backends/cuda/kernels/draw_row.cuh"

namespace deepinfer::cuda::draw {

inline constexpr int kBucketsPerBlock = kBuckets / kClusterBlocks;
inline constexpr std::int32_t kNoColumn = -1;
inline constexpr std::int64_t kNoColumnLimit = INT32_MAX;
inline constexpr std::int32_t kEveryColumn = INT32_MAX;
static_assert(kThreads >= kBucketsPerBlock);

struct Digit {
  int shift, bits;
};

/// Adds the block's columns above `least` with the leading digits of `key` to buckets of the next digit.
template <class Mass>
__device__ void count_digit(const Slice& slice, float least, std::uint32_t key, Digit digit, bool counts_columns, Shared& shared, const Mass& mass) {
  for (int b = threadIdx.x; b < kBuckets; b += kThreads) {
    shared.mass[b] = 0;
    shared.num_columns[b] = 0;
  }
  __syncthreads();
  const int above = digit.shift + digit.bits;
  for (std::int32_t i = threadIdx.x; i < slice.size; i += kThreads) {
    const float x = slice.values[i];
    const std::uint32_t own = order_key(x);
    const bool is_inside = above == 32 || own >> above == key >> above;
    if (is_inside && x > least) {
      const std::uint32_t bucket = own >> digit.shift & ((1U << digit.bits) - 1U);
      atomicAdd(&shared.mass[bucket], mass(x));
      if (counts_columns) {
        atomicAdd(&shared.num_columns[bucket], 1U);
      }
    }
  }
  cluster_barrier();
}

__device__ inline Bucket sum_of(const Bucket& a, const Bucket& b) { return {a.mass + b.mass, a.num_columns + b.num_columns}; }

/// Joins the buckets of all blocks and finds, from the top, the one in which a limit is reached. Given to all threads of the cluster.
__device__ inline Crossing cross(std::int64_t mass_limit, std::int64_t column_limit, Shared& shared) {
  const unsigned rank = cluster_rank();
  const int lane = threadIdx.x % 32;
  // Thread t joins the bucket that is t-th from the top of this block's part, and adds up those above it.
  Bucket own = {0, 0};
  const std::uint32_t bucket = (rank + 1) * kBucketsPerBlock - 1 - threadIdx.x;
  if (threadIdx.x < kBucketsPerBlock) {
    for (unsigned b = 0; b < kClusterBlocks; ++b) {
      own = sum_of(own, {*in_block(&shared.mass[bucket], b), *in_block(&shared.num_columns[bucket], b)});
    }
  }
  Bucket sum = own;
  for (int step = 1; step < 32; step *= 2) {
    const Bucket before = {__shfl_up_sync(~0U, static_cast<unsigned long long>(sum.mass), step), __shfl_up_sync(~0U, sum.num_columns, step)};
    sum = lane >= step ? sum_of(sum, before) : sum;
  }
  if (lane == 31) {
    shared.scan[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  for (int w = 0; w < static_cast<int>(threadIdx.x) / 32; ++w) {
    sum = sum_of(sum, shared.scan[w]);
  }
  if (threadIdx.x == kBucketsPerBlock - 1) {
    shared.merged_total = sum;
  }
  if (threadIdx.x == 0) {
    shared.crossing.is_reached = 0;
  }
  cluster_barrier();
  Bucket above = {0, 0};
  for (unsigned b = kClusterBlocks - 1; b > rank; --b) {
    above = sum_of(above, *in_block(&shared.merged_total, b));
  }
  const auto reaches = [&](const Bucket& prefix) {
    return static_cast<std::int64_t>(prefix.num_columns) >= column_limit || static_cast<std::int64_t>(prefix.mass) >= mass_limit;
  };
  const Bucket with = sum_of(above, sum);
  const Bucket without = {with.mass - own.mass, with.num_columns - own.num_columns};
  if (threadIdx.x < kBucketsPerBlock && reaches(with) && !reaches(without)) {
    shared.crossing = {.mass = mass_limit - static_cast<std::int64_t>(without.mass),
                       .num_columns = column_limit - static_cast<std::int64_t>(without.num_columns),
                       .bucket = bucket,
                       .is_reached = 1,
                       .content = own};
  }
  cluster_barrier();
  Crossing out{};
  for (unsigned b = 0; b < kClusterBlocks; ++b) {
    const Crossing* theirs = in_block(&shared.crossing, b);
    if (theirs->is_reached != 0) {
      out = *theirs;
    }
  }
  return out;
}

/// The shortest prefix of the row that reaches a limit (sampling/prefix.h): larger logits than `key`, and equal ones up to column `cut`.
struct Prefix {
  bool is_all = true;  ///< every column above -infinity
  std::uint32_t key = 0;
  std::int32_t cut = kEveryColumn;

  __device__ bool has(float logit, std::int32_t column) const {
    const std::uint32_t own = order_key(logit);
    return is_all ? logit > kRemoved : own > key || (own == key && column <= cut);
  }
};

/// Up to which column of this block the row's `num_equal` first columns with `key` lie; `num_here` of them are this block's.
__device__ inline std::int32_t cut_of(const Slice& slice, std::uint32_t key, std::int64_t num_equal, std::uint32_t num_here, Shared& shared) {
  if (threadIdx.x == 0) {
    shared.num_equal = static_cast<std::int32_t>(num_here);
  }
  cluster_barrier();
  std::int64_t before = 0;
  for (unsigned b = 0; b < cluster_rank(); ++b) {
    before += *in_block(&shared.num_equal, b);
  }
  const std::int64_t wanted = num_equal - before;
  if (wanted <= 0) {
    return kNoColumn;
  }
  if (wanted >= num_here) {
    return kEveryColumn;
  }
  if (threadIdx.x < 32) {
    std::int64_t left = wanted;
    for (std::int32_t first = 0; left > 0 && first < slice.size; first += 32) {
      const std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x);
      unsigned equal = __ballot_sync(~0U, i < slice.size && order_key(slice.values[i]) == key && slice.values[i] > kRemoved);
      for (; left > 0 && equal != 0; equal &= equal - 1) {
        --left;
        if (left == 0 && threadIdx.x == 0) {
          shared.cut = slice.first + first + __ffs(static_cast<int>(equal)) - 1;
        }
      }
    }
  }
  __syncthreads();
  return shared.cut;
}

/// Columns of at most `least` add nothing to what is limited.
template <class Mass>
__device__ Prefix find_prefix(const Slice& slice, float least, std::int64_t mass_limit, std::int64_t column_limit, Shared& shared, const Mass& mass) {
  constexpr Digit kDigits[3] = {{21, 11}, {10, 11}, {0, 10}};
  Prefix out;
  Crossing crossing{.mass = mass_limit, .num_columns = column_limit, .bucket = 0, .is_reached = 0, .content = {}};
  for (const Digit digit : kDigits) {
    // Where only mass is limited, columns are told apart in the end.
    count_digit(slice, least, out.key, digit, column_limit < kNoColumnLimit || digit.shift == 0, shared, mass);
    crossing = cross(crossing.mass, crossing.num_columns, shared);
    if (crossing.is_reached == 0) {
      return out;
    }
    out.is_all = false;
    out.key |= crossing.bucket << digit.shift;
  }
  const std::int64_t num_columns = crossing.content.num_columns;
  const std::int64_t mass_each = static_cast<std::int64_t>(crossing.content.mass) / num_columns;
  std::int64_t num_equal = min(crossing.num_columns, num_columns);
  if (mass_each > 0) {
    num_equal = min(num_equal, crossing.mass / mass_each + (crossing.mass % mass_each != 0 ? 1 : 0));
  }
  if (num_equal < num_columns) {
    out.cut = cut_of(slice, out.key, num_equal, shared.num_columns[crossing.bucket], shared);
  }
  return out;
}

}  // namespace deepinfer::cuda::draw
