// One NVIDIA GPU as a Device: its memory, ordered streams and the operations. The driver is opened at run time: the program starts on
// machines without a GPU, and make_device() then says what is missing. Not here: kernels (kernels/).
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "ops/device.h"

namespace deepinfer::cuda {

struct CudaOptions {
  std::int32_t device = 0;  ///< index as the driver counts
};

/// Fails when this build has no CUDA code, the driver or the GPU is absent, or the GPU is older than SM90.
[[nodiscard]] Result<std::unique_ptr<Device>> make_device(const CudaOptions& options);

}  // namespace deepinfer::cuda
