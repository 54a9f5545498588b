// Candidate blocks and the list of the best compressed rows (docs/spec/model.md 5.4 "Index list"): one kernel scores keys
// (index_scores.cuh), one selects by the digits of the scores, several blocks a row where there are many.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/hopper.h"
#include "backends/cuda/kernels/index_many.cuh"
#include "backends/cuda/kernels/index_scores.cuh"
#include "sampling/prefix.h"

namespace deepinfer::cuda {
namespace {

using sampling::order_key;

/// Threads of a block that selects: many where a row waits for it, few where several rows share a multiprocessor.
constexpr int kMostSelectThreads = 1024;
constexpr int kFewSelectThreads = 256;

constexpr unsigned kNever = 0x007FFFFFU;  // order_key(-infinity)

enum class Selection : std::uint8_t { rows, blocks };

/// What competes: the scores of a row, or the best scores of its candidate blocks, of which the newest always takes part.
struct Competition {
  const float* scores = nullptr;
  std::int32_t count = 0;
  std::int32_t block_size = 0;  ///< 0: scores
  std::int32_t visible = 0;

  __device__ __forceinline__ unsigned order(std::int32_t i) const {
    if (block_size == 0) {
      return order_key(scores[i]);
    }
    float best = kLowest;
    const std::int32_t end = min((i + 1) * block_size, visible);
    for (std::int32_t j = i * block_size; j < end; ++j) {
      best = fmaxf(best, scores[j]);
    }
    return order_key(i + 1 == count ? INFINITY : best);
  }
};

constexpr int kDigits = 3;
constexpr int kDigitBits[kDigits] = {11, 11, 10};
constexpr int kDigitShift[kDigits] = {21, 10, 0};
constexpr std::int32_t kBins = 2048;
constexpr std::int32_t kMostCached = 40960;  ///< 160 KiB

struct Counts {
  std::int32_t above = 0;  ///< of those that are chosen for sure
  std::int32_t equal = 0;  ///< equals of the last one chosen
};

/// Dynamic shared memory, behind it the cache of SelectShare.
template <int kThreads>
struct SelectShared {
  std::int32_t bins[2][kBins];
  std::int32_t warp_sums[kThreads / 32];
  Counts warps[kThreads / 32];
  Counts block;
  unsigned digit;
  std::int32_t above;
};

/// A block's share of a competition: [begin, end).
struct SelectShare {
  Competition all;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  unsigned* cache = nullptr;  ///< orders of the first ones
  std::int32_t cached = 0;

  __device__ __forceinline__ unsigned order(std::int32_t i) const { return i - begin < cached ? cache[i - begin] : all.order(i); }
};

/// Counts digit kDigit of those whose higher digits are those of `prefix`; bins must be zero. The first fills the cache on the way.
template <int kThreads, int kDigit>
__device__ __forceinline__ void count_digits(const SelectShare& share, unsigned prefix, std::int32_t* bins) {
  constexpr unsigned kValues = 1U << kDigitBits[kDigit];
  constexpr int kShift = kDigitShift[kDigit];
#pragma unroll 8
  for (std::int32_t i = share.begin + threadIdx.x; i < share.end; i += kThreads) {
    unsigned order = 0;
    if constexpr (kDigit == 0) {
      order = share.all.order(i);
      if (i - share.begin < share.cached) {
        share.cache[i - share.begin] = order;
      }
    } else {
      order = share.order(i);
    }
    if (kDigit == 0 || (order ^ prefix) >> kShift < kValues) {
      atomicAdd(&bins[order >> kShift & (kValues - 1)], 1);
    }
  }
}

/// The largest digit that, with those above it, has as many as are still wanted, by the bins of all blocks of the cluster; thread 0 owns
/// the highest bins. Ends with a barrier.
template <int kThreads>
__device__ __forceinline__ void find_digit(SelectShared<kThreads>& shared, std::int32_t* bins, unsigned blocks, std::int32_t wanted) {
  constexpr std::int32_t kOwn = kBins / kThreads;
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const std::int32_t first = kBins - kOwn * (1 + static_cast<std::int32_t>(threadIdx.x));
  std::int32_t sums[kOwn] = {};
  for (unsigned block = 0; block < blocks; ++block) {
    const int2* others = reinterpret_cast<const int2*>(in_block(bins + first, block));
#pragma unroll
    for (int i = 0; i < kOwn; i += 2) {
      const int2 other = others[i / 2];
      sums[i] += other.x;
      sums[i + 1] += other.y;
    }
  }
  std::int32_t own = 0;
#pragma unroll
  for (const std::int32_t sum : sums) {
    own += sum;
  }
  std::int32_t up_to = own;
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
  std::int32_t before = up_to - own;
  if (before < wanted && wanted <= up_to) {
#pragma unroll
    for (int i = kOwn - 1; i >= 0; --i) {
      if (before < wanted && wanted <= before + sums[i]) {
        shared.digit = static_cast<unsigned>(first + i);
        shared.above = before;
      }
      before += sums[i];
    }
  }
  __syncthreads();
}

/// The order value of the last one chosen and how many of its equals are; everything above is chosen.
struct Threshold {
  unsigned order = kNever;
  std::int32_t equals = 0;
};

template <int kThreads>
__device__ __forceinline__ Threshold find_threshold(const SelectShare& share, SelectShared<kThreads>& shared, unsigned blocks,
                                                    std::int32_t wanted) {
  unsigned prefix = 0;
  const auto digit = [&]<int kDigit>(std::integral_constant<int, kDigit>) {
    constexpr int kShift = kDigitShift[kDigit];
    std::int32_t* bins = shared.bins[kDigit % 2];  // the other blocks may still read those of the digit before
    for (std::int32_t i = threadIdx.x; i < kBins; i += kThreads) {
      bins[i] = 0;
    }
    __syncthreads();
    count_digits<kThreads, kDigit>(share, prefix, bins);
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
template <int kThreads>
struct WarpShare {
  static constexpr int kAhead = 8;  ///< groups of 32 that are loaded before the first is used

  std::int32_t begin, end;

  __device__ explicit WarpShare(const SelectShare& share) {
    constexpr std::int32_t kWarps = kThreads / 32;
    const std::int32_t size = ((share.end - share.begin + kWarps - 1) / kWarps + 31) / 32 * 32;
    begin = share.begin + static_cast<std::int32_t>(threadIdx.x / 32) * size;
    end = min(begin + size, share.end);
  }

  /// Calls work(index, order) for the lane's part of every group of 32, in order; order 0: none. All lanes take part.
  template <class Work>
  __device__ __forceinline__ void for_each(const SelectShare& share, const Work& work) const {
    const std::int32_t lane = threadIdx.x % 32;
    for (std::int32_t first = begin; first < end; first += kAhead * 32) {
      unsigned order[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const std::int32_t index = first + i * 32 + lane;
        order[i] = index < end ? share.order(index) : 0;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        work(first + i * 32 + lane, order[i]);
      }
    }
  }
};

/// Writes what the share holds of the chosen, behind what the blocks and warps before it hold; pads with -1.
template <int kThreads>
__device__ void write_chosen(const IndexSelectParams& p, std::int64_t r, const SelectShare& share, SelectShared<kThreads>& shared,
                             unsigned blocks, const Threshold& threshold, std::int32_t wanted, std::int32_t* out) {
  const unsigned rank = cluster_rank();
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t warp = threadIdx.x / 32;
  const WarpShare<kThreads> own(share);
  Counts counts;
  own.for_each(share, [&](std::int32_t, unsigned order) {
    counts.above += __popc(__ballot_sync(kWholeWarp, order > threshold.order));
    counts.equal += __popc(__ballot_sync(kWholeWarp, order == threshold.order));
  });
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
  own.for_each(share, [&](std::int32_t i, unsigned order) {
    const unsigned above = __ballot_sync(kWholeWarp, order > threshold.order);
    const unsigned equal = __ballot_sync(kWholeWarp, order == threshold.order);
    const std::int32_t equals_before = before.equal + __popc(equal & lower_lanes);
    if (order > threshold.order || (order == threshold.order && equals_before < threshold.equals)) {
      const std::int32_t place = before.above + __popc(above & lower_lanes) + min(equals_before, threshold.equals);
      out[place] = share.all.block_size == 0 ? static_cast<std::int32_t>(scored_row(p, r, i)) : i;
    }
    before.above += __popc(above);
    before.equal += __popc(equal);
  });
  if (rank == 0) {
    for (std::int32_t i = all.above + min(all.equal, threshold.equals) + static_cast<std::int32_t>(threadIdx.x); i < wanted;
         i += kThreads) {
      out[i] = -1;
    }
  }
}

/// Indices of the largest scores of a row, ties to the smaller index, ascending, padded with -1. A cluster of `blocks` blocks takes a row
/// (y = 0) or its candidate blocks (y = 1).
template <int kThreads>
__global__ __launch_bounds__(kThreads, kThreads == kFewSelectThreads ? 5 : 1) void select_kernel(
    IndexSelectParams p, std::int64_t first_row, const float* scores, std::int64_t stride, unsigned blocks, std::int32_t cached) {
  begin_in_turn();
  extern __shared__ __align__(16) std::uint8_t memory[];
  SelectShared<kThreads>& shared = *reinterpret_cast<SelectShared<kThreads>*>(memory);
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
  share.cache = reinterpret_cast<unsigned*>(memory + sizeof(shared));
  share.cached = cached;
  Threshold threshold;
  if (share.all.count > wanted) {
    threshold = find_threshold(share, shared, blocks, wanted);
  } else {  // all that may be chosen are
    for (std::int32_t i = share.begin + threadIdx.x; i < share.end && i - share.begin < cached; i += kThreads) {
      share.cache[i - share.begin] = share.all.order(i);
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

std::int64_t index_scores_per_row(const IndexSelectParams& p) {
  return p.candidate_mode == CandidateMode::restrict ? static_cast<std::int64_t>(p.candidate_top_blocks) * p.candidate_block_size
                                                     : static_cast<std::int64_t>(p.chunks.max_blocks) * p.rows_per_block;
}

void index_select(const IndexSelectParams& p, std::int64_t first_row, std::int64_t rows, float* scores, cudaStream_t stream) {
  const auto factor = static_cast<float>(1.0 / sqrt(static_cast<double>(p.index_dim) * p.heads));
  const std::int64_t stride = index_scores_per_row(p);
  const std::int64_t needed = (stride + kBlockKeys - 1) / kBlockKeys;
  // As many blocks as run at once; each goes on to further keys.
  const auto grid = [&](std::int64_t row_blocks, std::int64_t blocks) {
    return dim3(static_cast<unsigned>(std::min(needed, std::max<std::int64_t>(1, blocks / row_blocks))), static_cast<unsigned>(row_blocks));
  };
  if (runs_warpgroups() && many::takes(p)) {
    start(many::score_many_kernel,
          {.grid = grid((rows + many::kRows - 1) / many::kRows, kMultiprocessors * 2),
           .block = kScoreThreads,
           .shared_bytes = sizeof(many::Queries)},
          stream, p, first_row, rows, factor, scores, stride);
  } else {
    start(score_kernel_for(scale_blocks(p)),
          {.grid = grid(rows, kMultiprocessors * 3),
           .block = kScoreThreads,
           .shared_bytes = static_cast<std::size_t>(Query::bytes(p.heads, p.index_dim))},
          stream, p, first_row, factor, scores, stride);
  }
  const unsigned selections = p.candidate_mode == CandidateMode::produce ? 2 : 1;
  const unsigned blocks = select_blocks(stride, rows * selections);
  const auto cached = static_cast<std::int32_t>(std::min<std::int64_t>(kMostCached, (stride + blocks - 1) / blocks));
  const auto select = [&]<int kThreads>(std::integral_constant<int, kThreads>) {
    start(select_kernel<kThreads>,
          {.grid = dim3(static_cast<unsigned>(rows) * blocks, selections),
           .block = kThreads,
           .shared_bytes = sizeof(SelectShared<kThreads>) + static_cast<std::size_t>(cached) * sizeof(unsigned),
           .cluster = static_cast<int>(blocks)},
          stream, p, first_row, scores, stride, blocks, cached);
  };
  constexpr std::int32_t kSharingCached = 16384;  // two rows share a multiprocessor
  if (rows * selections > kMultiprocessors && cached <= kSharingCached) {
    select(std::integral_constant<int, kFewSelectThreads>{});
  } else {
    select(std::integral_constant<int, kMostSelectThreads>{});
  }
}

}  // namespace deepinfer::cuda
