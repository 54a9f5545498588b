// CUDA calls whose failure means a broken device or a broken launch: nothing after them can be trusted, so the process ends.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

#include "base/check.h"

namespace deepinfer::cuda {

inline void must(cudaError_t status, std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]] {
    broken_invariant(std::string("CUDA: ") + cudaGetErrorString(status), where);
  }
}

}  // namespace deepinfer::cuda
