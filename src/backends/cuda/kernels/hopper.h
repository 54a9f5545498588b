// Whether kernels with warpgroup instructions run here.
#pragma once

#include <cuda_runtime_api.h>

namespace deepinfer::cuda {

/// Of the current GPU, asked once.
[[nodiscard]] inline bool runs_warpgroups() {
  static const bool is_hopper = [] {
    int device = 0;
    int major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major == 9;
  }();
  return is_hopper;
}

}  // namespace deepinfer::cuda
