// Mixing coefficients of the residual streams (docs/spec/model.md 5.3) in one kernel: a cluster of blocks takes a few rows, every warp of
// it the same part of all their dot products, and the parts are added in order through shared memory. Products run on the tensor cores
// in double precision. The cut into parts depends on the width only, so a row has the same bits in any company.
#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr std::int32_t kWarps = kBlockThreads / 32;
constexpr std::int32_t kParts = kMostClusterBlocks * kWarps;  ///< of a sum, one a warp
constexpr std::int32_t kTile = 8;                             ///< rows, or dot products, of one product of the tensor cores
constexpr std::int32_t kDotTiles = 3;                         ///< taken at once: all 24 dot products of four streams
constexpr std::int32_t kDots = kDotTiles * kTile;
constexpr std::int32_t kColumns = 32;  ///< a warp takes at once, eight neighbours a lane; divides the width (hidden is a multiple of 32)
constexpr std::int32_t kLaneColumns = 8;
constexpr std::int32_t kMaxStreams = 8;
constexpr std::int32_t kUsualStreams = 4;

__host__ __device__ constexpr std::int32_t num_dots(std::int32_t streams) { return (2 + streams) * streams; }
/// Dot products of a row, and its sum of squares behind them.
__host__ __device__ constexpr std::int32_t num_sums(std::int32_t streams) { return num_dots(streams) + 1; }

/// c += a b in double precision: a 8 x 4, b 4 x 8. Lane l holds a[l / 4][l % 4], b[l % 4][l / 4], c[l / 4][l % 4 * 2 + {0, 1}].
__device__ __forceinline__ void multiply(double (&c)[2], double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}

/// Value i of eight neighbouring bf16.
__device__ __forceinline__ double value_of(const uint4& words, int i) {
  const unsigned word = i < 4 ? (i < 2 ? words.x : words.y) : (i < 6 ? words.z : words.w);
  return static_cast<double>(__uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000U));
}

__device__ __forceinline__ double value_of(const float4& values, int i) {
  return static_cast<double>(i < 2 ? (i == 0 ? values.x : values.y) : (i == 2 ? values.z : values.w));
}

/// What a lane loads of kColumns columns: its columns of one row of each tile of rows and of one line of each tile of dot products.
template <std::int32_t kRowTiles>
struct Operands {
  uint4 z[kRowTiles];
  float4 fn[kDotTiles][2];
};

/// Sums of one warp: dots[row tile][dot tile] as `multiply` leaves them, squares of the lane's columns of the lane's row.
template <std::int32_t kRowTiles>
struct Sums {
  double dots[kRowTiles][kDotTiles][2] = {};
  double squares[kRowTiles] = {};

  __device__ __forceinline__ void add(const Operands<kRowTiles>& x) {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      double fn[kDotTiles];
#pragma unroll
      for (int n = 0; n < kDotTiles; ++n) {
        fn[n] = value_of(x.fn[n][i / 4], i % 4);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const double z = value_of(x.z[m], i);
        squares[m] = fma(z, z, squares[m]);
#pragma unroll
        for (int n = 0; n < kDotTiles; ++n) {
          multiply(dots[m][n], z, fn[n]);
        }
      }
    }
  }
};

/// Part `part` of the dot products [first_dot, first_dot + kDots) and of the squares of kRowTiles * kTile rows, to partials[row][kDots +
/// 1]. Rows and dot products behind the last one repeat it. kAhead: groups of columns that are loaded before the first is used.
template <std::int32_t kRowTiles, std::int32_t kAhead>
__device__ void sum_part(const MixParams& p, std::int32_t part, std::int64_t first_row, std::int32_t first_dot, double* partials) {
  const std::int32_t width = p.streams * p.hidden;
  const std::int32_t part_width = (width / kColumns + kParts - 1) / kParts * kColumns;
  const std::int32_t begin = part * part_width;
  const std::int32_t end = min(begin + part_width, width);
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t g = lane / 4;
  const std::int32_t t = lane % 4;
  const bf16* z[kRowTiles];
  const float* fn[kDotTiles];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    z[m] = row_at(p.h, min(first_row + m * kTile + g, static_cast<std::int64_t>(p.num_rows) - 1), width) + t * kLaneColumns;
  }
#pragma unroll
  for (int n = 0; n < kDotTiles; ++n) {
    fn[n] = row_at(p.fn, min(first_dot + n * kTile + g, num_dots(p.streams) - 1), width) + t * kLaneColumns;
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
          x[a].z[m] = *reinterpret_cast<const uint4*>(z[m] + column);
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
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    double* out = partials + (m * kTile + g) * (kDots + 1);
#pragma unroll
    for (int n = 0; n < kDotTiles; ++n) {
      out[n * kTile + t * 2] = sums.dots[m][n][0];
      out[n * kTile + t * 2 + 1] = sums.dots[m][n][1];
    }
    double squares = sums.squares[m];
    squares += __shfl_xor_sync(kWholeWarp, squares, 1);
    squares += __shfl_xor_sync(kWholeWarp, squares, 2);
    if (t == 0) {
      out[kDots] = squares;
    }
  }
}

__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/// Sinkhorn normalisation of a matrix whose row i is `row` of lane i; the softmax counts as the first row step. Sums run as written.
template <std::int32_t kMost>
__device__ void sinkhorn(double (&row)[kMost], std::int32_t streams, std::int32_t iterations, double eps) {
  double peak = row[0];
  for (std::int32_t j = 1; j < streams; ++j) {
    peak = row[j] > peak ? row[j] : peak;
  }
  double sum = 0;
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    row[j] = j < streams ? exp(row[j] - peak) : 0.0;
    sum += row[j];
  }
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    row[j] = j < streams ? row[j] / sum + eps : 0.0;
  }
  for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0) {
      sum = eps;
#pragma unroll
      for (std::int32_t j = 0; j < kMost; ++j) {
        sum += row[j];
      }
      const double inverse = 1.0 / sum;
#pragma unroll
      for (std::int32_t j = 0; j < kMost; ++j) {
        row[j] *= inverse;
      }
    }
#pragma unroll
    for (std::int32_t j = 0; j < kMost; ++j) {
      if (j < streams) {
        sum = eps;
#pragma unroll
        for (std::int32_t i = 0; i < kMost; ++i) {
          if (i < streams) sum += __shfl_sync(kWholeWarp, row[j], i);
        }
        row[j] *= 1.0 / sum;
      }
    }
  }
}

/// One warp a row: lane i owns stream i and row i of the matrix. At most kMost streams.
template <std::int32_t kMost>
__device__ void finish_row(const MixParams& p, std::int64_t r, const double* totals, const float* base, const float* scale) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int32_t streams = kMost == kUsualStreams ? kUsualStreams : p.streams;
  const double inverse = 1.0 / sqrt(totals[num_dots(streams)] / (streams * p.hidden) + p.norm_eps);
  const std::int32_t i = min(lane, streams - 1);
  double row[kMost];
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    const std::int32_t n = 2 * streams + i * streams + min(j, streams - 1);
    row[j] = totals[n] * inverse * scale[2] + base[n];
  }
  const double pre = sigmoid(totals[i] * inverse * scale[0] + base[i]) + p.mix_eps;
  const double post = 2.0 * sigmoid(totals[streams + i] * inverse * scale[1] + base[streams + i]);
  sinkhorn(row, streams, p.sinkhorn_iterations, p.mix_eps);
  if (lane >= streams) {
    return;
  }
  p.pre[r * streams + i] = static_cast<float>(pre);
  p.post[r * streams + i] = static_cast<float>(post);
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    if (j < streams) {
      p.comb[(r * streams + i) * streams + j] = static_cast<float>(row[j]);
    }
  }
}

/// Shared memory of a block, in doubles: [kWarps][rows][kDots + 1], then the block's sums [rows][num_sums].
constexpr std::int32_t shared_doubles(std::int32_t rows, std::int32_t streams) { return rows * (kWarps * (kDots + 1) + num_sums(streams)); }

/// A cluster of kMostClusterBlocks blocks takes kRowTiles * kTile rows.
template <std::int32_t kRowTiles, std::int32_t kMost>
__global__ __launch_bounds__(kBlockThreads, kRowTiles == 1 ? 1 : 2) void mix_kernel(MixParams p) {
  let_next_start();
  constexpr std::int32_t kRows = kRowTiles * kTile;
  constexpr std::int32_t kWarpRows = (kRows + kMostClusterBlocks - 1) / kMostClusterBlocks;  ///< rows that a block finishes, one a warp
  extern __shared__ double partials[];
  __shared__ double totals[kWarpRows][num_sums(kMost)];
  __shared__ float base[num_dots(kMost)];
  __shared__ float scale[3];
  const auto rank = static_cast<std::int32_t>(cluster_rank());
  const std::int32_t warp = threadIdx.x / 32;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x / kMostClusterBlocks) * kRows;
  const std::int32_t dots = num_dots(p.streams);
  double* sums = partials + kWarps * kRows * (kDots + 1);
  if (threadIdx.x < static_cast<unsigned>(dots)) {
    base[threadIdx.x] = p.base[threadIdx.x];
  } else if (threadIdx.x - dots < 3U) {
    scale[threadIdx.x - dots] = p.scale[threadIdx.x - dots];
  }
  for (std::int32_t first_dot = 0; first_dot < dots; first_dot += kDots) {
    sum_part<kRowTiles, kRowTiles == 1 ? 5 : 1>(p, rank * kWarps + warp, first_row, first_dot, partials + warp * kRows * (kDots + 1));
    __syncthreads();
    for (std::int32_t i = threadIdx.x; i < kRows * (kDots + 1); i += kBlockThreads) {
      double sum = 0;
#pragma unroll
      for (std::int32_t w = 0; w < kWarps; ++w) {
        sum += partials[w * kRows * (kDots + 1) + i];
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

template <std::int32_t kRowTiles>
void launch_mix(const MixParams& p, cudaStream_t stream) {
  constexpr std::int32_t kRows = kRowTiles * kTile;
  start(p.streams == kUsualStreams ? mix_kernel<kRowTiles, kUsualStreams> : mix_kernel<kRowTiles, kMaxStreams>,
        {.grid = dim3(static_cast<unsigned>((p.num_rows + kRows - 1) / kRows * kMostClusterBlocks)),
         .block = kBlockThreads,
         .shared_bytes = static_cast<std::size_t>(shared_doubles(kRows, p.streams)) * sizeof(double),
         .cluster = kMostClusterBlocks},
        stream, p);
}

}  // namespace

void mix(const MixParams& p, cudaStream_t stream) {
  constexpr std::int32_t kFewRows = 64;  // clusters of eight rows still run side by side; each reads all of fn
  constexpr std::int32_t kManyRowTiles = 4;
  p.num_rows <= kFewRows ? launch_mix<1>(p, stream) : launch_mix<kManyRowTiles>(p, stream);
}

}  // namespace deepinfer::cuda
