// Mixing coefficients of the residual streams (docs/spec/model.md 5.3): long dot products cut into a fixed number of parts, then one
// thread a row finishes. The cut depends on the shape only.
#include "backends/cuda/kernels/codecs.cuh"
#include "backends/cuda/kernels/launch.h"

namespace deepinfer::cuda {
namespace {

constexpr std::int32_t kParts = 16;
constexpr std::int32_t kRowsPerBlock = 4;
constexpr std::int32_t kWarps = kBlockThreads / 32;
constexpr std::int32_t kMaxStreams = 8;

/// Dot products of a row, and its sum of squares behind them.
__host__ __device__ constexpr std::int32_t num_sums(std::int32_t streams) { return (2 + streams) * streams + 1; }

/// Part blockIdx.y of every sum of kRowsPerBlock rows. A warp owns sums warp, warp + 8, …
__global__ void mix_parts_kernel(MixParams p, double* partials) {
  const std::int32_t width = p.streams * p.hidden;
  const std::int32_t part_width = (width + kParts - 1) / kParts;
  const std::int32_t first = blockIdx.y * part_width;
  const std::int32_t end = min(first + part_width, width);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock;
  const std::int32_t lane = threadIdx.x % 32;
  for (std::int32_t n = threadIdx.x / 32; n < num_sums(p.streams); n += kWarps) {
    const bool is_square = n + 1 == num_sums(p.streams);
    double sum[kRowsPerBlock] = {};
    for (std::int32_t k = first + lane; k < end; k += 32) {
      const double factor = is_square ? 0.0 : row_at(p.fn, n, width)[k];
#pragma unroll
      for (std::int32_t i = 0; i < kRowsPerBlock; ++i) {
        if (first_row + i < p.num_rows) {
          const double z = to_float(row_at(p.h, first_row + i, width)[k]);
          sum[i] = fma(is_square ? z : factor, z, sum[i]);
        }
      }
    }
#pragma unroll
    for (std::int32_t i = 0; i < kRowsPerBlock; ++i) {
      for (int offset = 16; offset > 0; offset /= 2) {
        sum[i] += __shfl_xor_sync(kWholeWarp, sum[i], offset);
      }
      if (lane == 0 && first_row + i < p.num_rows) {
        partials[((first_row + i) * num_sums(p.streams) + n) * kParts + blockIdx.y] = sum[i];
      }
    }
  }
}

__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/// Divides one row (stride 1) or column (stride `streams`) by its sum.
__device__ void normalise(double* first, std::int32_t stride, std::int32_t streams, double eps) {
  double sum = eps;
  for (std::int32_t i = 0; i < streams; ++i) {
    sum += first[i * stride];
  }
  for (std::int32_t i = 0; i < streams; ++i) {
    first[i * stride] /= sum;
  }
}

/// Softmax over every row counts as the first row step of the iteration.
__device__ void sinkhorn(double* comb, std::int32_t streams, std::int32_t iterations, double eps) {
  for (std::int32_t i = 0; i < streams; ++i) {
    double* row = comb + i * streams;
    double peak = row[0];
    for (std::int32_t j = 1; j < streams; ++j) {
      peak = row[j] > peak ? row[j] : peak;
    }
    double sum = 0;
    for (std::int32_t j = 0; j < streams; ++j) {
      row[j] = exp(row[j] - peak);
      sum += row[j];
    }
    for (std::int32_t j = 0; j < streams; ++j) {
      row[j] = row[j] / sum + eps;
    }
  }
  for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
    for (std::int32_t i = 0; i < streams && iteration > 0; ++i) {
      normalise(comb + i * streams, 1, streams, eps);
    }
    for (std::int32_t j = 0; j < streams; ++j) {
      normalise(comb + j, streams, streams, eps);
    }
  }
}

__global__ void mix_finish_kernel(MixParams p, const double* partials) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (r >= p.num_rows) {
    return;
  }
  const std::int32_t streams = p.streams;
  const std::int32_t sums = num_sums(streams);
  const auto total = [&](std::int32_t n) {
    const double* parts = partials + (r * sums + n) * kParts;
    double sum = parts[0];
    for (std::int32_t i = 1; i < kParts; ++i) {
      sum += parts[i];
    }
    return sum;
  };
  const double inverse = 1.0 / sqrt(total(sums - 1) / (streams * p.hidden) + p.norm_eps);
  for (std::int32_t i = 0; i < streams; ++i) {
    p.pre[r * streams + i] = static_cast<float>(sigmoid(total(i) * inverse * p.scale[0] + p.base[i]) + p.mix_eps);
    p.post[r * streams + i] = static_cast<float>(2.0 * sigmoid(total(streams + i) * inverse * p.scale[1] + p.base[streams + i]));
  }
  double comb[kMaxStreams * kMaxStreams];
  for (std::int32_t i = 0; i < streams * streams; ++i) {
    comb[i] = total(2 * streams + i) * inverse * p.scale[2] + p.base[2 * streams + i];
  }
  sinkhorn(comb, streams, p.sinkhorn_iterations, p.mix_eps);
  for (std::int32_t i = 0; i < streams * streams; ++i) {
    p.comb[r * streams * streams + i] = static_cast<float>(comb[i]);
  }
}

}  // namespace

std::size_t mix_partials(const MixParams& p) { return static_cast<std::size_t>(p.num_rows) * num_sums(p.streams) * kParts; }

void mix(const MixParams& p, double* partials, cudaStream_t stream) {
  const dim3 grid((p.num_rows + kRowsPerBlock - 1) / kRowsPerBlock, kParts);
  mix_parts_kernel<<<grid, kBlockThreads, 0, stream>>>(p, partials);
  constexpr int kFinishThreads = 32;
  mix_finish_kernel<<<(p.num_rows + kFinishThreads - 1) / kFinishThreads, kFinishThreads, 0, stream>>>(p, partials);
}

}  // namespace deepinfer::cuda
