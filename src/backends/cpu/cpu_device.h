// The CPU as a Device: aligned host memory, a Stream whose work is done when the call returns, and the operations.
// Not here: kernels (reference/, fast/).
#pragma once

#include <cstdint>
#include <memory>

#include "ops/device.h"

namespace deepinfer::cpu {

struct CpuOptions {
  std::int32_t num_threads = 0;        ///< 0: as many as this process may use (affinity mask, container quota)
  bool use_reference_kernels = false;  ///< the plain kernels in double precision, on one thread: slow, an oracle
  bool use_matrix_unit = true;         ///< where there is one (AMX); off, the vector units give the same bits
};

[[nodiscard]] std::unique_ptr<Device> make_device(const CpuOptions& options);

}  // namespace deepinfer::cpu
