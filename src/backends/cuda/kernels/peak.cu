// What the tensor cores do at most: products of bf16 tiles that never leave shared memory, on every multiprocessor.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/launch.h"
#include "backends/cuda/kernels/wgmma.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 512;  // four warpgroups
constexpr int kProducts = 16;  // of a batch
constexpr int kRounds = 4000;
constexpr unsigned kTileBytes = 64 * kTileRowBytes;
constexpr double kFlopsOfProduct = 2.0 * 64 * 128 * 16;

__global__ void __launch_bounds__(kThreads) peak_kernel(float* out) {
  extern __shared__ __align__(1024) std::uint8_t tiles[];  // a, then two blocks of b
  auto* words = reinterpret_cast<std::uint32_t*>(tiles);
  for (unsigned i = threadIdx.x; i < 3 * kTileBytes / 4; i += kThreads) {
    words[i] = (i * 2654435761U & 0x807F807FU) | 0x3E803E80U;  // bf16 of both signs, 0.25 to 0.5
  }
  publish_tiles();
  __syncthreads();
  const unsigned a = shared_address(tiles);
  float c[64] = {};
  for (int round = 0; round < kRounds; ++round) {
    begin_products();
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      multiply_tiles(c, a, i % 4, a + kTileBytes, kTileBytes);
    }
    end_products();
    wait_products<0>();
    take_sums(c);
  }
  float sum = 0;
  for (const float x : c) {
    sum += x;
  }
  if (sum == 1.0F) {  // never; the products are not left out
    *out = sum;
  }
}

}  // namespace

double probe_matrix_flops() {
  int device = 0;
  int num_multiprocessors = 0;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
      cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess) {
    return 0;
  }
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    cudaEventRecord(begin);
    peak_kernel<<<num_multiprocessors, kThreads, 3 * kTileBytes>>>(nullptr);
    cudaEventRecord(end);
    float milliseconds = 0;
    if (cudaEventSynchronize(end) == cudaSuccess && cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess && milliseconds > 0) {
      const double products = static_cast<double>(num_multiprocessors) * (kThreads / 128) * kRounds * kProducts;
      best = std::max(best, products * kFlopsOfProduct / (1e-3 * milliseconds));
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

}  // namespace deepinfer::cuda
