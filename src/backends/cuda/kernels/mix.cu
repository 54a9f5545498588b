// Mixing coefficients of the residual streams (docs/spec/model.md 5.3) in one kernel: a cluster of blocks takes a few rows, every warp of
// it the same part of all their dot products, and the parts are added in order through shared memory; of many rows a warp takes sixteen and
// all parts, one after the other. Products run on the tensor cores in double precision. The cut into parts depends on the width only, so a
// row has the same bits in any company.
#include "backends/cuda/kernels/cluster.cuh"
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {
namespace {

constexpr std::int32_t kWarps = kBlockThreads / 32;
constexpr std::int32_t kParts = kMostClusterBlocks * kWarps;  ///< of a sum, one a warp
constexpr std::int32_t kTileRows = 16;                        ///< of one product of the tensor cores
constexpr std::int32_t kTileDots = 8;
constexpr std::int32_t kDotTiles = 3;                         ///< taken at once: all 24 dot products of four streams
constexpr std::int32_t kDots = kDotTiles * kTileDots;
constexpr std::int32_t kColumns = 32;  ///< a warp takes at once, eight neighbours a lane; divides the width (hidden is a multiple of 32)
constexpr std::int32_t kLaneColumns = 8;
constexpr std::int32_t kMaxStreams = 8;
constexpr std::int32_t kUsualStreams = 4;

__host__ __device__ constexpr std::int32_t num_dots(std::int32_t streams) { return (2 + streams) * streams; }
/// Dot products of a row, and its sum of squares behind them.
__host__ __device__ constexpr std::int32_t num_sums(std::int32_t streams) { return num_dots(streams) + 1; }

/// c += a b in double precision: a 16 x 16, b 16 x 8. Lane l, g = l / 4, t = l % 4, holds a[g + 8 i][t + 4 j] at 2 j + i, b[t + 4 j][g] at
/// j, c[g + 8 i][2 t + j] at 2 i + j. Smaller products are slower on Hopper: 64 rows took 26 us with 8 x 8 x 4, 16 us with these.
__device__ __forceinline__ void multiply(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

/// Value i of eight neighbouring bf16.
__device__ __forceinline__ double value_of(const uint4& words, int i) {
  const unsigned word = i < 4 ? (i < 2 ? words.x : words.y) : (i < 6 ? words.z : words.w);
  return static_cast<double>(__uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000U));
}

__device__ __forceinline__ double value_of(const float4& values, int i) {
  return static_cast<double>(i < 2 ? (i == 0 ? values.x : values.y) : (i == 2 ? values.z : values.w));
}

/// What a lane loads of kColumns columns: its columns of two rows of each tile of rows and of one line of each tile of dot products.
template <std::int32_t kRowTiles>
struct Operands {
  uint4 z[kRowTiles][2];
  float4 fn[kDotTiles][2];
};

/// Sums of one warp: dots[row tile][dot tile] as `multiply` leaves them; squares of the lane's rows, until join_squares() of the lane's
/// columns only and in two chains that do not wait for each other.
template <std::int32_t kRowTiles>
struct Sums {
  double dots[kRowTiles][kDotTiles][4] = {};
  double squares[kRowTiles][2] = {};
  double chains[kRowTiles][4] = {};

  /// Columns [4 quarter, 4 quarter + 4) of the lane's eight; fn(n, j): value of column j of them.
  template <class Fn>
  __device__ __forceinline__ void add(const uint4 (&z)[kRowTiles][2], int quarter, const Fn& fn) {
    double a[kRowTiles][8];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        a[m][i] = value_of(z[m][i % 2], quarter * 4 + i / 2);
        chains[m][i % 4] = fma(a[m][i], a[m][i], chains[m][i % 4]);
      }
    }
#pragma unroll
    for (int n = 0; n < kDotTiles; ++n) {
      const double b[4] = {fn(n, 0), fn(n, 1), fn(n, 2), fn(n, 3)};
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply(dots[m][n], a[m], b);
      }
    }
  }
  __device__ __forceinline__ void add(const Operands<kRowTiles>& x) {
#pragma unroll
    for (int quarter = 0; quarter < 2; ++quarter) {
      add(x.z, quarter, [&](int n, int j) { return value_of(x.fn[n][quarter], j); });
    }
  }
  /// Joins the columns of the lanes.
  __device__ __forceinline__ void join_squares() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        double sum = chains[m][i] + chains[m][i + 2];
        sum += __shfl_xor_sync(kWholeWarp, sum, 1);
        sum += __shfl_xor_sync(kWholeWarp, sum, 2);
        squares[m][i] = sum;
      }
    }
  }
  /// Takes over what `other` has and leaves it empty.
  __device__ __forceinline__ void take(Sums& other) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kDotTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          dots[m][n][i] += other.dots[m][n][i];
        }
      }
      squares[m][0] += other.squares[m][0];
      squares[m][1] += other.squares[m][1];
    }
    other = {};
  }
  /// To out[row][kDots + 1].
  __device__ __forceinline__ void store(double* out) const {
    const std::int32_t g = threadIdx.x % 32 / 4;
    const std::int32_t t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        double* row = out + (m * kTileRows + i * 8 + g) * (kDots + 1);
#pragma unroll
        for (int n = 0; n < kDotTiles; ++n) {
          row[n * kTileDots + t * 2] = dots[m][n][2 * i];
          row[n * kTileDots + t * 2 + 1] = dots[m][n][2 * i + 1];
        }
        if (t == 0) {
          row[kDots] = squares[m][i];
        }
      }
    }
  }
};

/// Row `row`, or the last one.
__device__ __forceinline__ const bf16* existing_row(const MixParams& p, std::int64_t row) {
  return row_at(p.h, min(row, static_cast<std::int64_t>(p.num_rows) - 1), static_cast<std::int64_t>(p.streams) * p.hidden);
}

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

__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/// 1 / x of a positive normal x to the last bit or two, without the branches of a division.
__device__ __forceinline__ double inverse_of(double x) {
  double out = 0;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(out) : "d"(x));  // 20 bits
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    out = fma(fma(-x, out, 1.0), out, out);
  }
  return out;
}

/// Sinkhorn normalisation; the softmax, which is done, counts as the first row step. Sums run as written.
template <std::int32_t kMost>
__device__ __forceinline__ void sinkhorn(double (&matrix)[kMost][kMost], std::int32_t streams, std::int32_t iterations, double eps) {
#pragma unroll 1
  for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
    for (std::int32_t i = 0; i < kMost; ++i) {
      double sum = eps;
#pragma unroll
      for (std::int32_t j = 0; j < kMost; ++j) {
        sum = __dadd_rn(sum, matrix[i][j]);  // 0 behind the last stream
      }
      const double inverse = iteration > 0 ? inverse_of(sum) : 1.0;
#pragma unroll
      for (std::int32_t j = 0; j < kMost; ++j) {
        matrix[i][j] = __dmul_rn(matrix[i][j], inverse);
      }
    }
#pragma unroll
    for (std::int32_t j = 0; j < kMost; ++j) {
      double sum = eps;
#pragma unroll
      for (std::int32_t i = 0; i < kMost; ++i) {
        sum = i < streams ? __dadd_rn(sum, matrix[i][j]) : sum;
      }
      const double inverse = inverse_of(sum);
#pragma unroll
      for (std::int32_t i = 0; i < kMost; ++i) {
        matrix[i][j] = __dmul_rn(matrix[i][j], inverse);
      }
    }
  }
}

/// kMost neighbouring lanes a row: lane i brings what belongs to stream i, then each has the whole matrix. All lanes of a warp take part;
/// those without a row of their own repeat another.
template <std::int32_t kMost>
__device__ __forceinline__ void finish_row(const MixParams& p, std::int64_t r, const double* totals, const float* base,
                                           const float* scale) {
  const std::int32_t streams = kMost == kUsualStreams ? kUsualStreams : p.streams;
  const double inverse = 1.0 / sqrt(totals[num_dots(streams)] / (streams * p.hidden) + p.norm_eps);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % kMost);
  const std::int32_t i = min(lane, streams - 1);
  const auto value = [&](std::int32_t n, std::int32_t kind) {
    return fma(__dmul_rn(totals[n], inverse), static_cast<double>(scale[kind]), static_cast<double>(base[n]));
  };
  const double pre = sigmoid(value(i, 0)) + p.mix_eps;
  const double post = 2.0 * sigmoid(value(streams + i, 1));
  double row[kMost];
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    row[j] = value(2 * streams + i * streams + min(j, streams - 1), 2);
  }
  double peak = row[0];
#pragma unroll
  for (std::int32_t j = 1; j < kMost; ++j) {
    peak = row[j] > peak ? row[j] : peak;
  }
  double sum = 0;
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    row[j] = j < streams ? exp(row[j] - peak) : 0.0;
    sum = __dadd_rn(sum, row[j]);
  }
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    row[j] = j < streams ? __dadd_rn(row[j] / sum, p.mix_eps) : 0.0;
  }
  double matrix[kMost][kMost];
#pragma unroll
  for (std::int32_t from = 0; from < kMost; ++from) {
#pragma unroll
    for (std::int32_t j = 0; j < kMost; ++j) {
      matrix[from][j] = __shfl_sync(kWholeWarp, row[j], from, kMost);
    }
  }
  sinkhorn(matrix, streams, p.sinkhorn_iterations, p.mix_eps);
  if (lane >= streams) {
    return;
  }
  p.pre[r * streams + lane] = static_cast<float>(pre);
  p.post[r * streams + lane] = static_cast<float>(post);
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    double own = matrix[0][j];
#pragma unroll
    for (std::int32_t from = 1; from < kMost; ++from) {  // constant indices keep the matrix in registers
      own = lane == from ? matrix[from][j] : own;
    }
    if (j < streams) {
      p.comb[(r * streams + lane) * streams + j] = static_cast<float>(own);
    }
  }
}

/// Shared memory of a block, in doubles: [kWarps][rows][kDots + 1], then the block's sums [rows][num_sums].
constexpr std::int32_t shared_doubles(std::int32_t rows, std::int32_t streams) { return rows * (kWarps * (kDots + 1) + num_sums(streams)); }

/// A cluster of kMostClusterBlocks blocks takes kRowTiles * kTileRows rows.
template <std::int32_t kRowTiles, std::int32_t kMost>
__global__ __launch_bounds__(kBlockThreads, kRowTiles == 1 || kMost > kUsualStreams ? 1 : 2) void mix_kernel(MixParams p) {
  let_next_start();
  constexpr std::int32_t kRows = kRowTiles * kTileRows;
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

// --- many rows ----------------------------------------------------------------------------------------------------
// Half of a block's warps multiply, each for a tile of rows; the other half brings fn to shared memory, in double precision and in the
// order of the products. Work goes in rounds, none of which reaches over a part.

constexpr std::int32_t kManyWarps = kWarps / 2;
constexpr std::int32_t kManyRows = kManyWarps * kTileRows;
constexpr std::int32_t kRoundSteps = 5;  ///< groups of kColumns: what a part has at the released model's width
constexpr std::int32_t kStepValues = kLaneColumns * kDots * 4;
constexpr std::int32_t kRoundPieces = kRoundSteps * kDots * kColumns / 4;  ///< of four values
constexpr std::int32_t kBringers = kBlockThreads - kManyWarps * 32;
constexpr std::int32_t kBrought = (kRoundPieces + kBringers - 1) / kBringers;  ///< pieces a thread brings, at most
constexpr std::size_t kManyBytes = std::size_t{2} * kRoundSteps * kStepValues * sizeof(double);

struct Rounds {
  std::int32_t width, part_width, per_part;

  __device__ explicit Rounds(const MixParams& p)
      : width(p.streams * p.hidden),
        part_width((width / kColumns + kParts - 1) / kParts * kColumns),
        per_part((part_width + kRoundSteps * kColumns - 1) / (kRoundSteps * kColumns)) {}
  [[nodiscard]] __device__ std::int32_t count() const { return kParts * per_part; }
  [[nodiscard]] __device__ std::int32_t begin(std::int32_t round) const {
    return round / per_part * part_width + round % per_part * kRoundSteps * kColumns;
  }
  [[nodiscard]] __device__ std::int32_t steps(std::int32_t round) const {
    const std::int32_t end = min(round / per_part * part_width + part_width, width);
    return round < count() ? max(0, min(kRoundSteps, (end - begin(round)) / kColumns)) : 0;
  }
};

/// What a thread brings of fn.
struct Bringer {
  const MixParams& p;
  const Rounds& rounds;
  float4 values[kBrought];

  [[nodiscard]] __device__ static std::int32_t piece(std::int32_t i) {
    return static_cast<std::int32_t>(threadIdx.x) - kManyWarps * 32 + i * kBringers;
  }
  __device__ __forceinline__ void load(std::int32_t round) {
    const std::int32_t pieces = rounds.steps(round) * kDots * kColumns / 4;
#pragma unroll
    for (std::int32_t i = 0; i < kBrought; ++i) {
      if (piece(i) < pieces) {
        const std::int32_t column = rounds.begin(round) + piece(i) / (kDots * kColumns / 4) * kColumns + piece(i) % (kColumns / 4) * 4;
        values[i] = __ldg(reinterpret_cast<const float4*>(row_at(p.fn, piece(i) / (kColumns / 4) % kDots, rounds.width) + column));
      }
    }
  }
  /// [step][column of a lane][tile][lane], a lane's value as multiply() wants it.
  __device__ __forceinline__ void store(std::int32_t round, double* out) const {
    const std::int32_t pieces = rounds.steps(round) * kDots * kColumns / 4;
#pragma unroll
    for (std::int32_t i = 0; i < kBrought; ++i) {
      if (piece(i) < pieces) {
        const std::int32_t dot = piece(i) / (kColumns / 4) % kDots;
        const std::int32_t in_row = piece(i) % (kColumns / 4);
        double* first = out + piece(i) / (kDots * kColumns / 4) * kStepValues + in_row % 2 * 4 * kDots * 4 + dot / kTileDots * 32 +
                        dot % kTileDots * 4 + in_row / 2;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          first[c * kDots * 4] = value_of(values[i], c);
        }
      }
    }
  }
};

__global__ __launch_bounds__(kBlockThreads, 1) void mix_many_kernel(MixParams p) {
  let_next_start();
  extern __shared__ double fragments[];
  __shared__ double totals[kManyRows][kDots + 1];
  __shared__ float base[kDots];
  __shared__ float scale[3];
  const std::int32_t warp = threadIdx.x / 32;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kManyRows;
  const std::int64_t last_row = static_cast<std::int64_t>(p.num_rows) - 1;
  const Rounds rounds(p);
  if (threadIdx.x < kDots) {
    base[threadIdx.x] = p.base[threadIdx.x];
  } else if (threadIdx.x < kDots + 3) {
    scale[threadIdx.x - kDots] = p.scale[threadIdx.x - kDots];
  }
  if (warp >= kManyWarps) {
    Bringer bringer{p, rounds, {}};
    bringer.load(0);
    bringer.store(0, fragments);
    bringer.load(1);
    for (std::int32_t round = 0; round < rounds.count(); ++round) {
      __syncthreads();  // the round has its fragments, the one before is done
      bringer.store(round + 1, fragments + (round + 1) % 2 * kRoundSteps * kStepValues);
      bringer.load(round + 2);
    }
    wait_for_inputs();
  } else {
    wait_for_inputs();
    const std::int64_t own_row = first_row + warp * kTileRows + threadIdx.x % 32 / 4;
    const std::int32_t own_column = static_cast<std::int32_t>(threadIdx.x % 4) * kLaneColumns;
    const bf16* z[2] = {existing_row(p, own_row) + own_column, existing_row(p, own_row + 8) + own_column};
    uint4 next_words[kRoundSteps][1][2];
    const auto load = [&](std::int32_t round) {  // all of a round at once: a wait for one load is a wait for all that a thread has issued
      const std::int32_t column = rounds.begin(round);
      const std::int32_t steps = rounds.steps(round);
#pragma unroll
      for (int step = 0; step < kRoundSteps; ++step) {
        if (step < steps) {
          next_words[step][0][0] = __ldcs(reinterpret_cast<const uint4*>(z[0] + column + step * kColumns));
          next_words[step][0][1] = __ldcs(reinterpret_cast<const uint4*>(z[1] + column + step * kColumns));
        }
      }
    };
    load(0);
    Sums<1> part;
    Sums<1> block;  // of the parts that a block of a cluster has
    Sums<1> total;
#pragma unroll 1
    for (std::int32_t round = 0; round < rounds.count(); ++round) {
      __syncthreads();
      uint4 words[kRoundSteps][1][2];
#pragma unroll
      for (int step = 0; step < kRoundSteps; ++step) {
        words[step][0][0] = next_words[step][0][0];
        words[step][0][1] = next_words[step][0][1];
      }
      load(round + 1);
      const std::int32_t steps = rounds.steps(round);
      const double* fn = fragments + round % 2 * kRoundSteps * kStepValues + threadIdx.x % 32;
#pragma unroll
      for (int step = 0; step < kRoundSteps; ++step) {
        if (step < steps) {
#pragma unroll
          for (int quarter = 0; quarter < 2; ++quarter) {
            part.add(words[step], quarter,
                     [&](int n, int j) { return fn[step * kStepValues + ((quarter * 4 + j) * kDotTiles + n) * 32]; });
          }
        }
      }
      if ((round + 1) % rounds.per_part == 0) {
        part.join_squares();
        block.take(part);
        if ((round + 1) % (rounds.per_part * kWarps) == 0) {
          total.take(block);
        }
      }
    }
    total.store(totals[warp * kTileRows]);
  }
  __syncthreads();
  static_assert(kManyRows * kUsualStreams == kBlockThreads);
  const std::int32_t row = threadIdx.x / kUsualStreams;
  const std::int64_t r = first_row + row;
  finish_row<kUsualStreams>(p, r < last_row ? r : last_row, totals[row], base, scale);
}

template <std::int32_t kRowTiles>
void launch_mix(const MixParams& p, cudaStream_t stream) {
  constexpr std::int32_t kRows = kRowTiles * kTileRows;
  start(p.streams == kUsualStreams ? mix_kernel<kRowTiles, kUsualStreams> : mix_kernel<kRowTiles, kMaxStreams>,
        {.grid = dim3(static_cast<unsigned>((p.num_rows + kRows - 1) / kRows * kMostClusterBlocks)),
         .block = kBlockThreads,
         .shared_bytes = static_cast<std::size_t>(shared_doubles(kRows, p.streams)) * sizeof(double),
         .cluster = kMostClusterBlocks},
        stream, p);
}

}  // namespace

void mix(const MixParams& p, cudaStream_t stream) {
  constexpr std::int32_t kFewRows = 64;  // clusters of one tile still run side by side; each reads all of fn
  // Blocks of mix_many_kernel() take one time whatever their number while there is a multiprocessor of a Hopper GPU for each; clusters take
  // as long for so many rows.
  constexpr std::int32_t kManyAtOnce = 132;
  constexpr std::int32_t kClusterRows = 6500;
  const std::int32_t blocks = (p.num_rows + kManyRows - 1) / kManyRows;
  if (p.num_rows <= kFewRows) {
    launch_mix<1>(p, stream);
  } else if (p.num_rows <= (blocks + kManyAtOnce - 1) / kManyAtOnce * kClusterRows || p.streams != kUsualStreams) {
    launch_mix<2>(p, stream);
  } else {
    start(mix_many_kernel, {.grid = dim3(static_cast<unsigned>(blocks)), .block = kBlockThreads, .shared_bytes = kManyBytes}, stream, p);
  }
}

}  // namespace deepinfer::cuda
