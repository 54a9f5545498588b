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

/// bf16 multiply-adds that the tensor cores of the current GPU do in a second at most, two FLOP each: operands lie in shared memory, sums in
/// registers. 0 without a GPU.
[[nodiscard]] double probe_matrix_flops();

}  // namespace deepinfer::cuda
