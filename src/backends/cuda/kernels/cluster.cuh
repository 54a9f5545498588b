// Blocks that work together in a cluster and read each other's shared memory.
#pragma once

namespace deepinfer::cuda {

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
