// Mixing coefficients of the residual streams (docs/spec/model.md 5.3) in one kernel: a cluster of blocks takes a few rows, every warp of
// it the same part of all their dot products, and the parts are added in order through shared memory. Products run on the tensor cores in
// double precision. Not here: many rows (mix_many.cu).
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/mix_sums.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace mixing {
namespace {

/// Part `part` of the dot products [first_dot, first_dot + kDots) and of the squares of kRowTiles * kTileRows rows, to
/// partials[row][kDots + 1]. Rows and dot products behind the last one repeat it. kAhead: groups of columns that are loaded before the first
/// is used.
template <std::int32_t kRowTiles, std::int32_t kAhead>
__device__ void sum_part(const MixParams& p, std::int32_t part, std::int64_t first_row, std::int32_t first_dot, double* partials) {
  const std::int32_t width = p.streams * p.hidden;
  const std::int32_t part_width = (width / kColumns + kParts - 1) / kParts * kColumns;
  const std::int32_t begin = part * part_width;
  const std::int32_t end = min(begin + part_width, width);
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t g = lane / 4;
  const std::int32_t t = lane % 4;
  const bf16* z[kRowTiles][2];
  const float* fn[kDotTiles];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    z[m][0] = existing_row(p, first_row + m * kTileRows + g) + t * kLaneColumns;
    z[m][1] = existing_row(p, first_row + m * kTileRows + 8 + g) + t * kLaneColumns;
  }
#pragma unroll
  for (int n = 0; n < kDotTiles; ++n) {
    fn[n] = row_at(p.fn, min(first_dot + n * kTileDots + g, num_dots(p.streams) - 1), width) + t * kLaneColumns;
  }
  Sums<kRowTiles> sums;
  for (std::int32_t k = begin; k < end; k += kAhead * kColumns) {
    Operands<kRowTiles> x[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const std::int32_t column = k + a * kColumns;
      if (column < end) {
#pragma unroll
        for (int n = 0; n < kDotTiles; ++n) {
          x[a].fn[n][0] = *reinterpret_cast<const float4*>(fn[n] + column);
          x[a].fn[n][1] = *reinterpret_cast<const float4*>(fn[n] + column + 4);
        }
      }
    }
    if (k == begin) {
      wait_for_inputs();  // fn is a weight
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const std::int32_t column = k + a * kColumns;
      if (column < end) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          x[a].z[m][0] = *reinterpret_cast<const uint4*>(z[m][0] + column);
          x[a].z[m][1] = *reinterpret_cast<const uint4*>(z[m][1] + column);
        }
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (k + a * kColumns < end) {
        sums.add(x[a]);
      }
    }
  }
  sums.join_squares();
  sums.store(partials);
}

constexpr std::int32_t kSlots = 4;  ///< groups of columns of a warp that are on their way or in use

/// Pieces of 16 bytes that a lane needs of a group of columns, as in Operands: z, then fn.
template <std::int32_t kRowTiles>
constexpr std::int32_t kPieces = 2 * (kRowTiles + kDotTiles);

/// The same through shared memory, `slots` [kSlots][kPieces][32] of the warp: a lane copies what it will read, since operands of several groups
/// of columns would be too many registers.
template <std::int32_t kRowTiles>
__device__ void sum_copied_part(const MixParams& p, std::int32_t part, std::int64_t first_row, std::int32_t first_dot, uint4* slots,
                                double* partials) {
  const std::int32_t width = p.streams * p.hidden;
  const std::int32_t part_width = (width / kColumns + kParts - 1) / kParts * kColumns;
  const std::int32_t begin = part * part_width;
  const std::int32_t steps = (min(begin + part_width, width) - begin) / kColumns;
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t g = lane / 4;
  const std::int32_t first = begin + lane % 4 * kLaneColumns;
  const auto place = [&](std::int32_t step, std::int32_t piece) { return slots + (step % kSlots * kPieces<kRowTiles> + piece) * 32 + lane; };
  const auto copy_fn = [&](std::int32_t step) {
    if (step < steps) {
#pragma unroll
      for (int n = 0; n < kDotTiles; ++n) {
        const float* from = row_at(p.fn, min(first_dot + n * kTileDots + g, num_dots(p.streams) - 1), width) + first + step * kColumns;
        __pipeline_memcpy_async(place(step, 2 * (kRowTiles + n)), from, sizeof(uint4));
        __pipeline_memcpy_async(place(step, 2 * (kRowTiles + n) + 1), from + 4, sizeof(uint4));
      }
    }
  };
  const auto copy_z = [&](std::int32_t step) {
    if (step < steps) {
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        __pipeline_memcpy_async(place(step, i), existing_row(p, first_row + i * 8 + g) + first + step * kColumns, sizeof(uint4));
      }
    }
    __pipeline_commit();
  };
  for (std::int32_t step = 0; step < kSlots; ++step) {
    copy_fn(step);
  }
  wait_for_inputs();  // fn is a weight
  for (std::int32_t step = 0; step < kSlots; ++step) {
    copy_z(step);
  }
  Sums<1> sums[kRowTiles];
#pragma unroll 1
  for (std::int32_t step = 0; step < steps; ++step) {
    __pipeline_wait_prior(kSlots - 1);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const uint4 z[1][2] = {{*place(step, 2 * m), *place(step, 2 * m + 1)}};
#pragma unroll
      for (int quarter = 0; quarter < 2; ++quarter) {
        sums[m].add(z, quarter, [&](int n, int j) {
          return value_of(*reinterpret_cast<const float4*>(place(step, 2 * (kRowTiles + n) + quarter)), j);
        });
      }
    }
    copy_fn(step + kSlots);
    copy_z(step + kSlots);
  }
  __pipeline_wait_prior(0);
  __syncwarp();  // partials lie where the warp's slots were
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    sums[m].join_squares();
    sums[m].store(partials + m * kTileRows * (kDots + 1));
  }
}

/// One tile: operands in registers, which takes less time for a few rows.
template <std::int32_t kRowTiles>
constexpr bool kCopies = kRowTiles > 1;

/// Doubles of shared memory that a warp has: its partials [rows][kDots + 1], before them its slots.
template <std::int32_t kRowTiles>
constexpr std::int32_t kWarpDoubles =
    std::max<std::int32_t>(kCopies<kRowTiles> ? kSlots * kPieces<kRowTiles> * 32 * 2 : 0, kRowTiles * kTileRows * (kDots + 1));

/// Shared memory of a block, in doubles: that of its warps, then the block's sums [rows][num_sums].
template <std::int32_t kRowTiles>
constexpr std::int32_t shared_doubles(std::int32_t streams) {
  return kWarps * kWarpDoubles<kRowTiles> + kRowTiles * kTileRows * num_sums(streams);
}

/// A cluster of kMostClusterBlocks blocks takes kRowTiles * kTileRows rows.
template <std::int32_t kRowTiles, std::int32_t kMost>
__global__ __launch_bounds__(kBlockThreads, 1) void mix_kernel(MixParams p) {
  let_next_start();
  constexpr std::int32_t kRows = kRowTiles * kTileRows;
  constexpr std::int32_t kWarpRows = (kRows + kMostClusterBlocks - 1) / kMostClusterBlocks;  ///< rows that a block finishes, one a warp
  extern __shared__ __align__(16) double partials[];
  constexpr std::int32_t kOwn = kWarpDoubles<kRowTiles>;
  __shared__ double totals[kWarpRows][num_sums(kMost)];
  __shared__ float base[num_dots(kMost)];
  __shared__ float scale[3];
  const auto rank = static_cast<std::int32_t>(cluster_rank());
  const std::int32_t warp = threadIdx.x / 32;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x / kMostClusterBlocks) * kRows;
  const std::int32_t dots = num_dots(p.streams);
  double* sums = partials + kWarps * kOwn;
  if (threadIdx.x < static_cast<unsigned>(dots)) {
    base[threadIdx.x] = p.base[threadIdx.x];
  } else if (threadIdx.x - dots < 3U) {
    scale[threadIdx.x - dots] = p.scale[threadIdx.x - dots];
  }
  for (std::int32_t first_dot = 0; first_dot < dots; first_dot += kDots) {
    double* const own = partials + warp * kOwn;
    if constexpr (kCopies<kRowTiles>) {
      sum_copied_part<kRowTiles>(p, rank * kWarps + warp, first_row, first_dot, reinterpret_cast<uint4*>(own), own);
    } else {
      sum_part<kRowTiles, kRowTiles == 1 ? 5 : 1>(p, rank * kWarps + warp, first_row, first_dot, own);
    }
    __syncthreads();
    for (std::int32_t i = threadIdx.x; i < kRows * (kDots + 1); i += kBlockThreads) {
      double sum = 0;
#pragma unroll
      for (std::int32_t w = 0; w < kWarps; ++w) {
        sum += partials[w * kOwn + i];
      }
      const std::int32_t n = i % (kDots + 1);
      const std::int32_t place = n == kDots ? dots : first_dot + n;
      if (place < dots || n == kDots) {
        sums[i / (kDots + 1) * (dots + 1) + place] = sum;
      }
    }
    __syncthreads();
  }
  wait_for_inputs();  // also where a part of the sums is empty
  cluster_barrier();
  const std::int32_t row = warp * kMostClusterBlocks + rank;
  if (row < kRows && first_row + row < p.num_rows) {
    for (std::int32_t n = threadIdx.x % 32; n <= dots; n += 32) {
      double sum = 0;
#pragma unroll
      for (std::int32_t block = 0; block < kMostClusterBlocks; ++block) {
        sum += in_block(sums, block)[row * (dots + 1) + n];
      }
      totals[warp][n] = sum;
    }
    __syncwarp();
    finish_row<kMost>(p, first_row + row, totals[warp], base, scale);
  }
  cluster_arrive();
  cluster_wait();  // a block's sums stay until all blocks have read them
}

template <std::int32_t kRowTiles, std::int32_t kMost>
void launch_mix(const MixParams& p, cudaStream_t stream) {
  constexpr std::int32_t kRows = kRowTiles * kTileRows;
  start(mix_kernel<kRowTiles, kMost>,
        {.grid = dim3(static_cast<unsigned>((p.num_rows + kRows - 1) / kRows * kMostClusterBlocks)),
         .block = kBlockThreads,
         .shared_bytes = static_cast<std::size_t>(shared_doubles<kRowTiles>(p.streams)) * sizeof(double),
         .cluster = kMostClusterBlocks},
        stream, p);
}

}  // namespace
}  // namespace mixing

void mix(const MixParams& p, cudaStream_t stream) {
  using namespace mixing;
  // Clusters of 16 blocks that fill a multiprocessor: seven run side by side on a Hopper GPU. Each reads all of fn.
  constexpr std::int32_t kFewRows = 64;
  constexpr std::int32_t kSomeTiles = 3;
  // Blocks of mix_many() take one time whatever their number while there is a multiprocessor for each; clusters take as long for so many rows.
  constexpr std::int32_t kManyAtOnce = 132;
  constexpr std::int32_t kClusterRows = 3200;
  const std::int32_t blocks = (p.num_rows + kManyRows - 1) / kManyRows;
  if (p.streams != kUsualStreams) {
    launch_mix<1, kMaxStreams>(p, stream);
  } else if (p.num_rows <= kFewRows) {
    launch_mix<1, kUsualStreams>(p, stream);
  } else if (p.num_rows <= (blocks + kManyAtOnce - 1) / kManyAtOnce * kClusterRows) {
    launch_mix<kSomeTiles, kUsualStreams>(p, stream);
  } else {
    mix_many(p, stream);
  }
}

}  // namespace deepinfer::cuda
