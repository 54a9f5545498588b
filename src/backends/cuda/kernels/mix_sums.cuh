// What both kernels of mixing coefficients share: the order of the sums, products in double precision on the tensor cores, and what becomes of
// a row's sums. The cut into parts depends on the width only, so a row has the same bits in any company.
#pragma once

#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda::mixing {

inline constexpr std::int32_t kWarps = kBlockThreads / 32;
inline constexpr std::int32_t kParts = kMostClusterBlocks * kWarps;  ///< of a sum, one a warp
inline constexpr std::int32_t kTileRows = 16;                        ///< of one product of the tensor cores
inline constexpr std::int32_t kTileDots = 8;
inline constexpr std::int32_t kDotTiles = 3;                         ///< taken at once: all 24 dot products of four streams
inline constexpr std::int32_t kDots = kDotTiles * kTileDots;
inline constexpr std::int32_t kColumns = 32;  ///< a warp takes at once, eight neighbours a lane; divides the width (hidden is a multiple of 32)
inline constexpr std::int32_t kLaneColumns = 8;
inline constexpr std::int32_t kMaxStreams = 8;
inline constexpr std::int32_t kUsualStreams = 4;

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

__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

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

/// Many rows at once, of four streams: a block takes kManyRows.
inline constexpr std::int32_t kManyRows = 64;
void mix_many(const MixParams& p, cudaStream_t stream);

}  // namespace deepinfer::cuda::mixing
