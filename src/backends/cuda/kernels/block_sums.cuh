// Sums over a block that owns a row, in a fixed order, and the norm of a row in shared memory.
#pragma once

#include "backends/cuda/kernels/codecs.cuh"

namespace deepinfer::cuda {

/// Threads of a block that has to reduce over a row: enough for one row alone not to take long.
inline constexpr int kRowThreads = 1024;
inline constexpr int kRowWarps = kRowThreads / 32;

template <int kCount>
struct BlockSums {
  double of_warps[kCount][kRowWarps];
  double result;
};

/// result(sums) of the sums over the threads of a block of whole warps, each in a fixed tree. One warp works it out, since double precision is
/// slow where all do; every thread gets it.
template <int kCount, class Result>
__device__ __forceinline__ double of_block_sums(double (&values)[kCount], BlockSums<kCount>& shared, const Result& result) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    for (int offset = 16; offset > 0; offset /= 2) {
      values[i] += __shfl_xor_sync(kWholeWarp, values[i], offset);
    }
    if (threadIdx.x % 32 == 0) {
      shared.of_warps[i][threadIdx.x / 32] = values[i];
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = threadIdx.x < blockDim.x / 32 ? shared.of_warps[i][threadIdx.x] : 0.0;
      for (int offset = 16; offset > 0; offset /= 2) {
        values[i] += __shfl_xor_sync(kWholeWarp, values[i], offset);
      }
    }
    const double out = result(values);
    if (threadIdx.x == 0) {
      shared.result = out;
    }
  }
  __syncthreads();
  return shared.result;
}

/// 1 / rms of `width` values whose squares the threads have added up.
__device__ __forceinline__ double inverse_norm(double squares, std::int32_t width, float eps, BlockSums<1>& shared) {
  double values[1] = {squares};
  return of_block_sums(values, shared, [&](const double(&sums)[1]) { return 1.0 / sqrt(sums[0] / width + eps); });
}

/// y = rms(x; weight) over `width` values, block-wide; y is shared memory and may be x. Ends with a barrier.
__device__ __forceinline__ void norm_row(const bf16* x, const bf16* weight, std::int32_t width, float eps, bf16* y, BlockSums<1>& shared) {
  double sum = 0;
  for (std::int32_t i = threadIdx.x; i < width; i += blockDim.x) {
    const double value = to_float(x[i]);
    sum += value * value;
  }
  const double inverse = inverse_norm(sum, width, eps, shared);
  for (std::int32_t i = threadIdx.x; i < width; i += blockDim.x) {
    y[i] = round_bf16(to_float(weight[i]) * (to_float(x[i]) * inverse));
  }
  __syncthreads();
}

}  // namespace deepinfer::cuda
