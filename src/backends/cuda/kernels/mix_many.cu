// Mixing coefficients of many rows: half of a block's multiplying warps take the even blocks of a cluster of mix.cu, half the odd ones, each warp
// for a tile of rows, while others bring fn to shared memory in double precision and in the order of the products. Two warps for each
// scheduler: one alone left the tensor cores idle half of the time. Work goes in rounds, none of which reaches over a part.
#include <cuda_pipeline_primitives.h>

#include "backends/cuda/kernels/mix_sums.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda::mixing {
namespace {

constexpr std::int32_t kGroups = 2;
constexpr std::int32_t kTiles = kManyRows / kTileRows;
constexpr std::int32_t kMultiplyingWarps = kGroups * kTiles;
constexpr std::int32_t kBringingWarps = 4;
constexpr std::int32_t kBringers = kBringingWarps / kGroups * 32;  ///< of a group
constexpr std::int32_t kManyThreads = (kMultiplyingWarps + kBringingWarps) * 32;
constexpr std::int32_t kRoundSteps = 5;  ///< groups of kColumns: what a part has at the released model's width
constexpr std::int32_t kColumnValues = kDots * 4;
constexpr std::int32_t kHalfGap = 8;  ///< before the second half of a lane's columns: stores of both halves meet different banks
constexpr std::int32_t kStepValues = kLaneColumns * kColumnValues + kHalfGap;
constexpr std::int32_t kPieceValues = 4;
constexpr std::int32_t kRowPieces = kColumns / kPieceValues;
constexpr std::int32_t kBlocksInGroup = kMostClusterBlocks / kGroups;
static_assert(kBringers == kTileDots * kRowPieces, "a thread brings one piece of each tile of dot products and step");

struct Shared {
  double fragments[2][kGroups][kRoundSteps * kStepValues];    // [step][column of a lane][tile][lane]
  uint4 rows[2][kMultiplyingWarps][kRoundSteps][2][32];       // what a lane needs: it copies that itself
  double totals[kManyRows][kDots + 1];
  float base[kDots];
  float scale[3];
};

/// The rounds of a group: those of its blocks, in order.
struct Rounds {
  std::int32_t group, width, part_width, per_part;

  __device__ Rounds(const MixParams& p, std::int32_t group)
      : group(group),
        width(p.streams * p.hidden),
        part_width((width / kColumns + kParts - 1) / kParts * kColumns),
        per_part((part_width + kRoundSteps * kColumns - 1) / (kRoundSteps * kColumns)) {}
  [[nodiscard]] __device__ std::int32_t count() const { return kBlocksInGroup * kWarps * per_part; }
  [[nodiscard]] __device__ std::int32_t begin(std::int32_t round) const {
    const std::int32_t part = round / per_part;
    return (part + (part / kWarps + group) * kWarps) * part_width + round % per_part * kRoundSteps * kColumns;
  }
  /// First column of a step; of one that does not exist any other.
  [[nodiscard]] __device__ std::int32_t column(std::int32_t begin, std::int32_t step) const { return min(begin + step * kColumns, width - kColumns); }
  [[nodiscard]] __device__ std::int32_t steps(std::int32_t round) const {
    const std::int32_t first = begin(round);
    const std::int32_t end = min(first - round % per_part * kRoundSteps * kColumns + part_width, width);
    return max(0, min(kRoundSteps, (end - first) / kColumns));
  }
};

/// What a thread brings of fn: all loads of a round are on their way together, since none depends on a condition.
struct Bringer {
  const MixParams& p;
  const Rounds& rounds;
  std::int32_t thread;  // of the group
  float4 values[kRoundSteps][kDotTiles];

  __device__ __forceinline__ void load(std::int32_t round) {
    const std::int32_t begin = rounds.begin(min(round, rounds.count() - 1));
    const float* const own = row_at(p.fn, thread / kRowPieces, rounds.width) + thread % kRowPieces * kPieceValues;
#pragma unroll
    for (int step = 0; step < kRoundSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kDotTiles; ++n) {
        values[step][n] = __ldg(reinterpret_cast<const float4*>(own + std::int64_t{n} * kTileDots * rounds.width + rounds.column(begin, step)));
      }
    }
  }
  __device__ __forceinline__ void store(double* out) const {
    const std::int32_t in_row = thread % kRowPieces;
    double* const own = out + in_row % 2 * (kLaneColumns / 2 * kColumnValues + kHalfGap) + thread / kRowPieces * 4 + in_row / 2;
#pragma unroll
    for (int step = 0; step < kRoundSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kDotTiles; ++n) {
#pragma unroll
        for (int c = 0; c < kPieceValues; ++c) {
          own[step * kStepValues + c * kColumnValues + n * kTileDots * 4] = value_of(values[step][n], c);
        }
      }
    }
  }
};

__device__ void bring(const MixParams& p, Shared& shared, std::int32_t thread) {
  const std::int32_t group = thread / kBringers;
  const Rounds rounds(p, group);
  Bringer bringer{p, rounds, thread % kBringers, {}};
  bringer.load(0);
  bringer.store(shared.fragments[0][group]);
  bringer.load(1);
  for (std::int32_t round = 0; round < rounds.count(); ++round) {
    __syncthreads();  // the round has its fragments, the one before is done
    bringer.store(shared.fragments[(round + 1) % 2][group]);
    bringer.load(round + 2);
  }
  __syncthreads();
  wait_for_inputs();
}

/// Adds what a warp has of a tile's rows to the totals.
__device__ __forceinline__ void add_to_totals(const Sums<1>& sums, double (*totals)[kDots + 1]) {
  const std::int32_t g = threadIdx.x % 32 / 4;
  const std::int32_t t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    double* const row = totals[i * 8 + g];
#pragma unroll
    for (int n = 0; n < kDotTiles; ++n) {
      row[n * kTileDots + t * 2] += sums.dots[0][n][2 * i];
      row[n * kTileDots + t * 2 + 1] += sums.dots[0][n][2 * i + 1];
    }
    if (t == 0) {
      row[kDots] += sums.squares[0][i];
    }
  }
}

__device__ void multiply_rounds(const MixParams& p, Shared& shared, std::int32_t warp) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t group = warp / kTiles;
  const Rounds rounds(p, group);
  auto* const totals = shared.totals + warp % kTiles * kTileRows;
  const std::int64_t own_row = std::int64_t{blockIdx.x} * kManyRows + warp % kTiles * kTileRows + lane / 4;
  const bf16* z[2] = {existing_row(p, own_row) + lane % 4 * kLaneColumns, existing_row(p, own_row + 8) + lane % 4 * kLaneColumns};
  const auto copy = [&](std::int32_t round) {
    const std::int32_t begin = rounds.begin(min(round, rounds.count() - 1));
#pragma unroll
    for (int step = 0; step < kRoundSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        __pipeline_memcpy_async(&shared.rows[round % 2][warp][step][i][lane], z[i] + rounds.column(begin, step), sizeof(uint4));
      }
    }
    __pipeline_commit();
  };
  copy(0);
  Sums<1> part;
  Sums<1> block;  // of the parts that a block of a cluster has
  bool is_full = false;
#pragma unroll 1
  for (std::int32_t round = 0; round < rounds.count(); ++round) {
    copy(round + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    if (is_full && group > 0) {  // the group before has added its block
      add_to_totals(block, totals);
    }
    if (is_full) {
      block = {};
    }
    const std::int32_t steps = rounds.steps(round);
    const double* fn = shared.fragments[round % 2][group] + lane;
#pragma unroll
    for (int step = 0; step < kRoundSteps; ++step) {
      if (step < steps) {
        const uint4 words[1][2] = {{shared.rows[round % 2][warp][step][0][lane], shared.rows[round % 2][warp][step][1][lane]}};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          part.add(words, half, [&](int n, int j) {
            return fn[step * kStepValues + half * kHalfGap + (half * 4 + j) * kColumnValues + n * kTileDots * 4];
          });
        }
      }
    }
    is_full = (round + 1) % (rounds.per_part * kWarps) == 0;
    if ((round + 1) % rounds.per_part == 0) {
      part.join_squares();
      block.take(part);
    }
    if (is_full && group == 0) {
      add_to_totals(block, totals);
    }
  }
  __syncthreads();
  if (group > 0) {
    add_to_totals(block, totals);
  }
  __pipeline_wait_prior(0);
}

__global__ __launch_bounds__(kManyThreads, 1) void mix_many_kernel(MixParams p) {
  let_next_start();
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  if (thread < kDots) {
    shared.base[thread] = p.base[thread];
  } else if (thread < kDots + 3) {
    shared.scale[thread - kDots] = p.scale[thread - kDots];
  }
  for (std::int32_t i = thread; i < kManyRows * (kDots + 1); i += kManyThreads) {
    shared.totals[i / (kDots + 1)][i % (kDots + 1)] = 0.0;
  }
  if (thread >= kMultiplyingWarps * 32) {
    bring(p, shared, thread - kMultiplyingWarps * 32);
  } else {
    wait_for_inputs();
    multiply_rounds(p, shared, thread / 32);
  }
  __syncthreads();
  static_assert(kManyRows * kUsualStreams == kMultiplyingWarps * 32);
  if (thread < kManyRows * kUsualStreams) {
    const std::int32_t row = thread / kUsualStreams;
    const std::int64_t r = std::int64_t{blockIdx.x} * kManyRows + row;
    finish_row<kUsualStreams>(p, min(r, static_cast<std::int64_t>(p.num_rows) - 1), shared.totals[row], shared.base, shared.scale);
  }
}

}  // namespace

void mix_many(const MixParams& p, cudaStream_t stream) {
  start(mix_many_kernel,
        {.grid = dim3(static_cast<unsigned>((p.num_rows + kManyRows - 1) / kManyRows)), .block = kManyThreads, .shared_bytes = sizeof(Shared)},
        stream, p);
}

}  // namespace deepinfer::cuda::mixing
