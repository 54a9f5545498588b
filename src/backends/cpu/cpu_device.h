// The CPU as a Device: aligned host memory, a Stream whose work is done when the call returns, and the operations.
// Not here: kernels (reference/, fast/).
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/product_unit.h"
#include "ops/device.h"

namespace deepinfer::cpu {

struct CpuOptions {
  std::int32_t num_threads = 0;        ///< 0: as many as this process may use (affinity mask, container quota)
  bool use_reference_kernels = false;  ///< the plain kernels in double precision, on one thread: slow, an oracle
  ProductUnit best_unit = ProductUnit::matrix;  ///< the machine's best one up to this is used
};

[[nodiscard]] std::unique_ptr<Device> make_device(const CpuOptions& options);

}  // namespace deepinfer::cpu
