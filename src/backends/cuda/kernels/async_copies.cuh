// Copies to shared memory that run by themselves, the barriers that tell of them, and registers that warps give to each other (SM90).
// Addresses of shared memory are 32-bit.
#pragma once

#include <cstdint>

namespace deepinfer::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// --- barriers in shared memory ------------------------------------------------------------------------------------

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialised barriers visible to copies.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void wait_barrier(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// Waits for two barriers; what it takes to look at them is spent once.
__device__ __forceinline__ void wait_barriers(std::uint32_t first, unsigned first_parity, std::uint32_t second, unsigned second_parity) {
  asm volatile(
      "{\n.reg .pred done, too;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 too, [%2], %3;\nand.pred done, done, too;\n@!done bra again;\n}" ::"r"(first),
      "r"(first_parity), "r"(second), "r"(second_parity)
      : "memory");
}
/// Arrives and announces bytes that copies will deliver.
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, unsigned size_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size_bytes) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives once the copies of this thread so far are complete.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// --- copies to shared memory --------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
/// One contiguous piece; the barrier is told of its bytes.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, unsigned size_bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(size_bytes), "r"(barrier)
               : "memory");
}

/// Brings bytes that will be copied later into the cache. Multiples of 16.
__device__ __forceinline__ void fetch_ahead(const void* from, int size_bytes) {
  if (size_bytes > 0) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(size_bytes) : "memory");
  }
}

// --- registers ----------------------------------------------------------------------------------------------------

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#endif

}  // namespace deepinfer::cuda
