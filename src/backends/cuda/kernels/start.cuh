// Starting kernels so that several may begin while the one before still ends (programmatic dependent launch). A kernel started this way
// calls wait_for_inputs() in every thread before it reads what earlier kernels wrote or writes anything; weights may be read before.
// Every such kernel waits, so that all kernels before the last are complete as well. Nearly all let the next one start before they wait:
// small kernels stand ready in a row, and a product behind them fetches its weights meanwhile. All blocks of a kernel have started before
// the next one begins, so that nothing waits for a place that a later kernel has.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace deepinfer::cuda {

struct Start {
  dim3 grid;
  int block = 0;
  std::size_t shared_bytes = 0;
  int cluster = 1;  // blocks along x that read each other's shared memory; divides grid.x
};

/// The largest cluster that every GPU of these architectures runs; more than 8 has to be asked for.
inline constexpr int kMostClusterBlocks = 16;
inline constexpr int kPortableClusterBlocks = 8;
inline constexpr std::size_t kUsualSharedBytes = 48 * 1024;  // more has to be asked for

/// Errors stay for cudaGetLastError().
template <class... Params, class... Args>
void start(void (*kernel)(Params...), const Start& what, cudaStream_t stream, const Args&... args) {
  if (what.shared_bytes > kUsualSharedBytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(what.shared_bytes));
  }
  if (what.cluster > kPortableClusterBlocks) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  cudaLaunchAttribute attributes[3];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  // The same for all kernels: a multiprocessor changes the split between cache and shared memory only while it is empty.
  attributes[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  attributes[2].id = cudaLaunchAttributeClusterDimension;
  attributes[2].val.clusterDim.x = static_cast<unsigned>(what.cluster);
  attributes[2].val.clusterDim.y = 1;
  attributes[2].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = what.grid;
  config.blockDim = dim3(static_cast<unsigned>(what.block));
  config.dynamicSmemBytes = what.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = what.cluster > 1 ? 3 : 2;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

#ifdef __CUDACC__
__device__ __forceinline__ void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// The next kernel may take free places of the GPU once all blocks have come here.
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Both, for kernels that have nothing to do before.
__device__ __forceinline__ void begin_in_turn() {
  let_next_start();
  wait_for_inputs();
}
#endif

}  // namespace deepinfer::cuda
