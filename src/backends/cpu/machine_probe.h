// What this machine can do at most, measured: the denominators of every "% of floor".
#pragma once

#include <cstdint>

namespace deepinfer::cpu {

struct MachineLimits {
  double bytes_per_second = 0;            ///< reading memory far larger than the caches
  double flops_per_second = 0;            ///< fp32 multiply-adds in registers, two FLOP each
  double quantised_flops_per_second = 0;  ///< of what multiplies with quantised weights (product_unit.h), in registers
};

/// Best of several short runs on `num_threads` threads together.
[[nodiscard]] MachineLimits probe_machine(std::int32_t num_threads);

}  // namespace deepinfer::cpu
