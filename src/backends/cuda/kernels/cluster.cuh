// Launches of kernels whose blocks work together in clusters and read each other's shared memory.
#pragma once

#include <cstddef>

#include "backends/cuda/kernels/start.cuh"

namespace deepinfer::cuda {

/// The largest cluster that every GPU of these architectures runs; more than 8 has to be asked for.
inline constexpr int kMostClusterBlocks = 16;
inline constexpr int kPortableClusterBlocks = 8;

/// Grid and block of a launch; `cluster` neighbouring blocks along x form a cluster and divide grid.x.
struct ClusterShape {
  dim3 grid;
  unsigned threads = 0;
  unsigned cluster = 1;
  std::size_t shared_bytes = 0;  ///< dynamic
};

/// Errors stay for cudaGetLastError(), as with <<<>>>. The kernel has to wait for its inputs, see start.cuh.
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), const ClusterShape& shape, cudaStream_t stream, const Arguments&... arguments) {
  constexpr std::size_t kUsualSharedBytes = 48 * 1024;
  if (shape.shared_bytes > kUsualSharedBytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  }
  if (shape.cluster > kPortableClusterBlocks) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  start(kernel,
        {.grid = shape.grid,
         .block = static_cast<int>(shape.threads),
         .shared_bytes = shape.shared_bytes,
         .cluster = static_cast<int>(shape.cluster)},
        stream, arguments...);
}

/// Barrier of all threads of a cluster; what they wrote before, to shared memory too, is seen behind it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/// A barrier in two halves that orders no writes: behind it a block's shared memory is no longer read by the others.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Where `address` of this block's shared memory lies in block `rank` of the cluster.
template <class T>
__device__ __forceinline__ T* in_block(T* address, unsigned rank) {
  T* out = nullptr;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(address), "r"(rank));
  return out;
}

}  // namespace deepinfer::cuda
