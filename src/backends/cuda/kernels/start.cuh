// Starting kernels so that one may begin while the one before still ends (programmatic dependent launch). A kernel started this way
// calls wait_for_inputs() in every thread before it reads what earlier kernels wrote or writes anything; weights may be read before.
// Every such kernel waits, so that all kernels before the last are complete as well.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace deepinfer::cuda {

struct Start {
  dim3 grid;
  int block = 0;
  std::size_t shared_bytes = 0;
  int cluster = 1;  // blocks along x that share their memories
};

template <class... Params, class... Args>
void start(void (*kernel)(Params...), const Start& what, cudaStream_t stream, const Args&... args) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(what.cluster);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = what.grid;
  config.blockDim = dim3(static_cast<unsigned>(what.block));
  config.dynamicSmemBytes = what.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = what.cluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);  // callers look at cudaGetLastError()
}

#ifdef __CUDACC__
__device__ __forceinline__ void wait_for_inputs() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// The next kernel may take free places of the GPU from here on.
__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Both, for kernels that have nothing to do before.
__device__ __forceinline__ void begin_in_turn() {
  wait_for_inputs();
  let_next_start();
}
#endif

}  // namespace deepinfer::cuda
