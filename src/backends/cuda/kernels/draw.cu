// Tokens of rows of logits (sampling/sampler.h) with the bits of the CPU: a cluster of blocks holds one row in its shared memories, every
// sum of weights runs in the order of sampling::ColumnSum, masses are whole units, and the noise is a function of seed, position and column.
#include <cstdint>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"
#include "sampling/exponential.h"
#include "sampling/noise.h"
#include "sampling/prefix.h"

namespace deepinfer::cuda {
namespace {

using sampling::kSumBlock;
using sampling::kSumLanes;
using sampling::order_key;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kClusterBlocks = kPortableClusterBlocks;
constexpr int kDigitBits = 11;
constexpr int kBuckets = 1 << kDigitBits;
constexpr int kBucketsPerBlock = kBuckets / kClusterBlocks;
constexpr std::int32_t kMaxSumBlocks = 512;
constexpr float kRemoved = -INFINITY;
constexpr float kLargestNoise = 17.34F;  // above that of every word (sampling/noise.h)
constexpr std::int32_t kNoColumn = -1;
constexpr std::int32_t kEveryColumn = INT32_MAX;
static_assert(kSumLanes == 32 && kThreads >= kBucketsPerBlock && kThreads >= kMaxSumBlocks);

/// Sums of kSumBlock columns in the slice of one block.
__host__ __device__ constexpr std::int32_t sums_per_block(std::int32_t vocab) {
  const std::int32_t num_sums = (vocab + kSumBlock - 1) / kSumBlock;
  return (num_sums + kClusterBlocks - 1) / kClusterBlocks;
}

/// Orders values, larger ones first by `key`, and of equal ones the smaller column.
__device__ std::uint64_t ranked(float value, std::int32_t column) {
  return static_cast<std::uint64_t>(order_key(value)) << 32 | static_cast<std::uint32_t>(~column);
}
__device__ std::int32_t column_of(std::uint64_t ranked) { return static_cast<std::int32_t>(~static_cast<std::uint32_t>(ranked)); }

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

struct Shared {
  double all_sums[kMaxSumBlocks];
  double block_sums[kMaxSumBlocks / kClusterBlocks];
  std::uint64_t mass[kBuckets];
  std::uint32_t num_columns[kBuckets];
  Bucket merged_total;
  Bucket scan[kWarps];
  Crossing crossing;
  std::uint64_t best[kWarps];
  std::uint64_t block_best[3];  // of the maximum, of the maximum where no allowed logit is finite, of the winner
  std::uint32_t bad;
  std::int32_t num_equal;
  std::int32_t cut;
};

struct Slice {
  float* values;            // [size] shared memory
  std::int32_t first;       // column
  std::int32_t size;
};

template <class T>
__device__ T larger(T a, T b) {
  return a > b ? a : b;
}

/// The largest value of the block's threads, given to all of them.
__device__ std::uint64_t block_largest(std::uint64_t value, Shared& shared) {
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
__device__ std::uint64_t cluster_largest(std::uint64_t value, int place, Shared& shared) {
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

__device__ bool is_allowed(const std::uint32_t* mask, std::int32_t column) {
  return mask == nullptr || (mask[column / 32] >> (column % 32) & 1U) != 0;
}

/// Reads the block's columns. Returns the largest, ranked; 0 when none is above -infinity. `bad`: an allowed NaN or +infinity was seen.
__device__ std::uint64_t load_row(const float* logits, const std::uint32_t* mask, const Slice& slice, bool& bad) {
  constexpr std::int32_t kTogether = 8;  // loads on their way at once
  std::uint64_t best = 0;
  for (std::int32_t first = threadIdx.x; first < slice.size; first += kTogether * kThreads) {
    float values[kTogether];
#pragma unroll
    for (std::int32_t j = 0; j < kTogether; ++j) {
      const std::int32_t i = first + j * kThreads;
      values[j] = i < slice.size ? __ldg(logits + slice.first + i) : kRemoved;
    }
#pragma unroll
    for (std::int32_t j = 0; j < kTogether; ++j) {
      const std::int32_t i = first + j * kThreads;
      if (i < slice.size) {
        const std::int32_t column = slice.first + i;
        const float x = is_allowed(mask, column) ? values[j] : kRemoved;
        slice.values[i] = x;
        bad = bad || !(x < INFINITY);
        if (x > kRemoved) {
          best = larger(best, ranked(x, column));
        }
      }
    }
  }
  return best;
}

/// All allowed columns alike, where none of them has a finite logit (sampling::mask_row).
__device__ std::uint64_t level_row(const std::uint32_t* mask, const Slice& slice) {
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
    for (std::int32_t i = b * kSumBlock + lane; i < min((b + 1) * kSumBlock, slice.size); i += 32) {
      sum += weight(i);
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

/// Adds the block's columns with the leading digits of `key` to buckets of the next digit.
template <class Mass>
__device__ void count_digit(const Slice& slice, std::uint32_t key, int shift, int bits, Shared& shared, const Mass& mass) {
  for (int b = threadIdx.x; b < kBuckets; b += kThreads) {
    shared.mass[b] = 0;
    shared.num_columns[b] = 0;
  }
  __syncthreads();
  const int above = shift + bits;
  for (std::int32_t i = threadIdx.x; i < slice.size; i += kThreads) {
    const float x = slice.values[i];
    const std::uint32_t own = order_key(x);
    const bool is_inside = above == 32 || own >> above == key >> above;
    if (is_inside && x > kRemoved) {
      const std::uint32_t bucket = own >> shift & ((1U << bits) - 1U);
      atomicAdd(reinterpret_cast<unsigned long long*>(&shared.mass[bucket]), static_cast<unsigned long long>(mass(x)));
      atomicAdd(&shared.num_columns[bucket], 1U);
    }
  }
  cluster_barrier();
}

__device__ Bucket sum_of(const Bucket& a, const Bucket& b) { return {a.mass + b.mass, a.num_columns + b.num_columns}; }

/// Joins the buckets of all blocks and finds, from the top, the one in which a limit is reached. Given to all threads of the cluster.
__device__ Crossing cross(std::int64_t mass_limit, std::int64_t column_limit, Shared& shared) {
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
__device__ std::int32_t cut_of(const Slice& slice, std::uint32_t key, std::int64_t num_equal, std::uint32_t num_here, Shared& shared) {
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

template <class Mass>
__device__ Prefix find_prefix(const Slice& slice, std::int64_t mass_limit, std::int64_t column_limit, Shared& shared, const Mass& mass) {
  struct Digit {
    int shift, bits;
  };
  constexpr Digit kDigits[3] = {{21, 11}, {10, 11}, {0, 10}};
  Prefix out;
  Crossing crossing{.mass = mass_limit, .num_columns = column_limit, .bucket = 0, .is_reached = 0, .content = {}};
  for (const Digit digit : kDigits) {
    count_digit(slice, out.key, digit.shift, digit.bits, shared, mass);
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

/// The largest log-probability plus noise of the block's kept columns, ranked.
template <class Kept, class LogProb>
__device__ std::uint64_t noisy_best(const Slice& slice, sampling::RandomKey key, float at_least, const Kept& kept, const LogProb& log_prob) {
  std::uint64_t best = 0;
  for (std::int32_t group = threadIdx.x; group < (slice.size + 3) / 4; group += kThreads) {
    float log_probs[4];
    bool has_chance = false;
    for (int j = 0; j < 4; ++j) {
      const std::int32_t i = 4 * group + j;
      log_probs[j] = i < slice.size && kept(i) ? log_prob(slice.values[i]) : kRemoved;
      has_chance = has_chance || log_probs[j] + kLargestNoise >= at_least;
    }
    if (!has_chance) {
      continue;
    }
    const auto words = sampling::noise_words(key, slice.first / 4 + group);
    for (int j = 0; j < 4; ++j) {
      if (log_probs[j] > kRemoved) {
        best = larger(best, ranked(log_probs[j] + sampling::gumbel(words[j]), slice.first + 4 * group + j));
      }
    }
  }
  return best;
}

__device__ std::int32_t draw_row(const float* logits, const std::uint32_t* mask, const TokenDraw& draw, std::int32_t vocab, const Slice& slice,
                                 Shared& shared) {
  bool bad = false;
  std::uint64_t best = load_row(logits, mask, slice, bad);
  if (__syncthreads_or(bad ? 1 : 0) != 0) {
    best = ~std::uint64_t{0};
  }
  best = cluster_largest(best, 0, shared);
  if (best == ~std::uint64_t{0}) {
    return kRowNotFinite;
  }
  if (best == 0 && mask != nullptr) {
    best = cluster_largest(level_row(mask, slice), 1, shared);
  }
  if (best == 0) {
    return kNothingAllowed;
  }
  const std::int32_t largest = column_of(best);
  if (draw.temperature < sampling::kGreedyBelow) {
    return largest;
  }

  const std::uint32_t key = static_cast<std::uint32_t>(best >> 32);
  const float peak = __uint_as_float(key >> 31 != 0 ? key ^ 0x80000000U : ~key);
  const Weights weights{.largest = peak, .inverse_temperature = 1.0 / draw.temperature};
  double total = sum_row(slice, vocab, shared, [&](std::int32_t i) { return weights(slice.values[i]); });
  const bool limits_mass = draw.top_p < 1.0;
  const bool limits_count = draw.top_k >= 0 && draw.top_k < vocab;
  Prefix prefix;
  if (limits_mass || limits_count) {
    const double units_per_weight = sampling::kMassUnits / total;
    prefix = find_prefix(slice, limits_mass ? static_cast<std::int64_t>(draw.top_p * sampling::kMassUnits) + 1 : INT64_MAX,
                         limits_count ? draw.top_k : INT32_MAX, shared,
                         [&](float logit) { return static_cast<std::int64_t>(weights(logit) * units_per_weight); });
  }
  const auto kept = [&](std::int32_t i) {
    return prefix.has(slice.values[i], slice.first + i) && (draw.min_p <= 0.0 || weights(slice.values[i]) >= draw.min_p);
  };
  if (limits_mass || limits_count || draw.min_p > 0.0) {
    total = sum_row(slice, vocab, shared, [&](std::int32_t i) { return kept(i) ? weights(slice.values[i]) : 0.0; });
  }
  const double log_total = sampling::log_positive(total);
  const auto log_prob = [&](float logit) { return static_cast<float>(weights.exponent(logit) - log_total); };
  const sampling::RandomKey random{.seed = draw.seed, .position = draw.position};
  const float at_least = log_prob(peak) + sampling::noise_at(random, largest);
  return column_of(cluster_largest(noisy_best(slice, random, at_least, kept, log_prob), 2, shared));
}

__global__ void __launch_bounds__(kThreads, 2) draw_tokens_kernel(DrawTokensParams p) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  begin_in_turn();
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const std::int64_t r = blockIdx.y;
  const TokenDraw draw = p.draw[r];
  const std::int32_t columns = sums_per_block(p.vocab) * kSumBlock;
  const std::int32_t first = static_cast<std::int32_t>(cluster_rank()) * columns;
  const Slice slice{.values = reinterpret_cast<float*>(memory + sizeof(Shared)), .first = first, .size = max(0, min(columns, p.vocab - first))};
  const float* logits = p.logits + (p.row_index != nullptr ? p.row_index[r] : r) * p.vocab;
  const std::uint32_t* mask = draw.mask >= 0 ? p.masks + static_cast<std::int64_t>(draw.mask) * ((p.vocab + 31) / 32) : nullptr;
  const std::int32_t token = draw_row(logits, mask, draw, p.vocab, slice, shared);
  if (cluster_rank() == 0 && threadIdx.x == 0) {
    p.token[r] = p.always ? max(token, 0) : token;
  }
  cluster_barrier();  // the other blocks read this one's memory
}

}  // namespace

void draw_tokens(const DrawTokensParams& p, cudaStream_t stream) {
  const std::int32_t columns = sums_per_block(p.vocab) * kSumBlock;
  start(draw_tokens_kernel,
        {.grid = dim3(kClusterBlocks, p.num_rows),
         .block = kThreads,
         .shared_bytes = sizeof(Shared) + columns * sizeof(float),
         .cluster = kClusterBlocks},
        stream, p);
}

}  // namespace deepinfer::cuda
