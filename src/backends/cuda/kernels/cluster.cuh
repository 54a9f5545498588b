// Blocks that work together in a cluster and read each other's shared memory.
#pragma once

#include <cstdint>

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

// Words that blocks send to each other, without the barrier of cluster_barrier(), which waits for all writes to memory as well. One exchange: every
// block opens its inbox, all threads pass cluster_arrive() and cluster_wait(), blocks send, and see_inbox() returns when `size_bytes` have come.

/// By one thread, before cluster_arrive().
__device__ __forceinline__ void open_inbox(std::uint64_t* inbox, unsigned size_bytes) {
  const auto barrier = static_cast<std::uint32_t>(__cvta_generic_to_shared(inbox));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size_bytes) : "memory");
}
/// To where `to` lies in block `rank`, 16 bytes.
__device__ __forceinline__ void send(std::uint64_t* inbox, std::uint64_t* to, std::uint64_t first, std::uint64_t second, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 place, barrier;\nmapa.shared::cluster.u32 place, %0, %4;\nmapa.shared::cluster.u32 barrier, %1, %4;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [place], {%2, %3}, [barrier];\n}" ::"r"(
          static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(inbox))), "l"(first), "l"(second), "r"(rank)
      : "memory");
}
__device__ __forceinline__ void see_inbox(std::uint64_t* inbox) {
  asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(inbox)))
               : "memory");
}

}  // namespace deepinfer::cuda
