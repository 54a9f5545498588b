// Whether kernels with warpgroup instructions run here.
#pragma once

#include <cuda_runtime_api.h>

namespace deepinfer::cuda {

/// Multiprocessors of the current GPU if it is a Hopper GPU, asked once; 0 of others.
[[nodiscard]] inline int hopper_multiprocessors() {
  static const int count = [] {
    int device = 0;
    int major = 0;
    int multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return major == 9 ? multiprocessors : 0;
  }();
  return count;
}

[[nodiscard]] inline bool runs_warpgroups() { return hopper_multiprocessors() != 0; }

}  // namespace deepinfer::cuda
