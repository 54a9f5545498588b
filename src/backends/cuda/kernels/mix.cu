// Mixing coefficients of the residual streams (docs/spec/model.md 5.3): long dot products cut into a fixed number of parts, then one
// warp a row finishes. The cut depends on the shape only.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

constexpr std::int32_t kParts = 32;
constexpr std::int32_t kManyRows = 16;  // a block, when there are many: each line of fn is read once for all of them
constexpr std::int32_t kWarps = kBlockThreads / 32;
constexpr std::int32_t kVector = 4;  // neighbouring values a lane takes at once
constexpr std::int32_t kMaxStreams = 8;
constexpr std::int32_t kUsualStreams = 4;

/// Dot products of a row, and its sum of squares behind them.
__host__ __device__ constexpr std::int32_t num_sums(std::int32_t streams) { return (2 + streams) * streams + 1; }

__device__ __forceinline__ float4 four_values(const bf16* x) {
  const uint2 words = *reinterpret_cast<const uint2*>(x);
  return {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xFFFF0000U), __uint_as_float(words.y << 16),
          __uint_as_float(words.y & 0xFFFF0000U)};
}

/// Part blockIdx.y of every sum of kRows rows. A warp owns a sum, and every (8 gridDim.z)-th after it.
template <std::int32_t kRows>
__global__ __launch_bounds__(kBlockThreads) void mix_parts_kernel(MixParams p, double* partials) {
  const std::int32_t width = p.streams * p.hidden;
  const std::int32_t part_width = (width / kVector + kParts - 1) / kParts * kVector;
  const std::int32_t first = blockIdx.y * part_width;
  const std::int32_t end = min(first + part_width, width);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kRows;
  const std::int32_t num_rows = static_cast<std::int32_t>(min(static_cast<std::int64_t>(kRows), p.num_rows - first_row));
  const std::int32_t lane = threadIdx.x % 32;
  const auto num_warps = static_cast<std::int32_t>(gridDim.z) * kWarps;
  for (std::int32_t n = blockIdx.z * kWarps + threadIdx.x / 32; n < num_sums(p.streams); n += num_warps) {
    const bool is_square = n + 1 == num_sums(p.streams);
    double sum[kRows] = {};
#pragma unroll 2
    for (std::int32_t k = first + lane * kVector; k < end; k += 32 * kVector) {
      float4 factor{};
      if (!is_square) {
        factor = *reinterpret_cast<const float4*>(row_at(p.fn, n, width) + k);
      }
#pragma unroll
      for (std::int32_t i = 0; i < kRows; ++i) {
        if (i < num_rows) {
          const float4 z = four_values(row_at(p.h, first_row + i, width) + k);
          const float4 f = is_square ? z : factor;
          sum[i] = fma(static_cast<double>(f.x), static_cast<double>(z.x), sum[i]);
          sum[i] = fma(static_cast<double>(f.y), static_cast<double>(z.y), sum[i]);
          sum[i] = fma(static_cast<double>(f.z), static_cast<double>(z.z), sum[i]);
          sum[i] = fma(static_cast<double>(f.w), static_cast<double>(z.w), sum[i]);
        }
      }
    }
#pragma unroll
    for (std::int32_t i = 0; i < kRows; ++i) {
      for (int offset = 16; offset > 0; offset /= 2) {
        sum[i] += __shfl_xor_sync(kWholeWarp, sum[i], offset);
      }
      if (lane == 0 && i < num_rows) {
        partials[((first_row + i) * num_sums(p.streams) + n) * kParts + blockIdx.y] = sum[i];
      }
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

/// One warp a row: lane n adds up sum n, n + 32, …; lane i then owns stream i and row i of the matrix. At most kMost streams.
template <std::int32_t kMost>
__global__ void mix_finish_kernel(MixParams p, const double* partials) {
  __shared__ double totals[(2 + kMaxStreams) * kMaxStreams + 1];
  const std::int64_t r = blockIdx.x;
  const std::int32_t lane = threadIdx.x;
  const std::int32_t streams = kMost == kUsualStreams ? kUsualStreams : p.streams;
  const std::int32_t sums = num_sums(streams);
  for (std::int32_t n = lane; n < sums; n += 32) {
    const double* parts = partials + (r * sums + n) * kParts;
    double sum = 0;
#pragma unroll
    for (std::int32_t i = 0; i < kParts; ++i) {
      sum += parts[i];
    }
    totals[n] = sum;
  }
  __syncwarp();
  const double inverse = 1.0 / sqrt(totals[sums - 1] / (streams * p.hidden) + p.norm_eps);
  const std::int32_t i = min(lane, streams - 1);
  double row[kMost];
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    const std::int32_t n = 2 * streams + i * streams + min(j, streams - 1);
    row[j] = totals[n] * inverse * p.scale[2] + p.base[n];
  }
  sinkhorn(row, streams, p.sinkhorn_iterations, p.mix_eps);
  if (lane >= streams) {
    return;
  }
  p.pre[r * streams + i] = static_cast<float>(sigmoid(totals[i] * inverse * p.scale[0] + p.base[i]) + p.mix_eps);
  p.post[r * streams + i] = static_cast<float>(2.0 * sigmoid(totals[streams + i] * inverse * p.scale[1] + p.base[streams + i]));
#pragma unroll
  for (std::int32_t j = 0; j < kMost; ++j) {
    if (j < streams) {
      p.comb[(r * streams + i) * streams + j] = static_cast<float>(row[j]);
    }
  }
}

}  // namespace

std::size_t mix_partials(const MixParams& p) { return static_cast<std::size_t>(p.num_rows) * num_sums(p.streams) * kParts; }

void mix(const MixParams& p, double* partials, cudaStream_t stream) {
  if (p.num_rows == 1) {
    const auto blocks = static_cast<unsigned>((num_sums(p.streams) + kWarps - 1) / kWarps);  // a sum a warp
    mix_parts_kernel<1><<<dim3(1, kParts, blocks), kBlockThreads, 0, stream>>>(p, partials);
  } else {
    mix_parts_kernel<kManyRows><<<dim3((p.num_rows + kManyRows - 1) / kManyRows, kParts), kBlockThreads, 0, stream>>>(p, partials);
  }
  (p.streams == kUsualStreams ? mix_finish_kernel<kUsualStreams> : mix_finish_kernel<kMaxStreams>)<<<p.num_rows, 32, 0, stream>>>(p,
                                                                                                                                  partials);
}

}  // namespace deepinfer::cuda
