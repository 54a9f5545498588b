// Every implementation of the operations that this machine can run, for tests that repeat themselves on each.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_device.h"

namespace deepinfer::test {

struct Implementation {
  std::string name;
  std::int64_t target = 0;  ///< instruction set of Highway; 0: the reference kernels
  std::int32_t num_threads = 1;
};

/// The fast kernels of each instruction set of this machine, on one and on three threads.
[[nodiscard]] inline std::vector<Implementation> fast_implementations() {
  std::vector<Implementation> out;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SSSE3) {  // not built (src/backends/CMakeLists.txt)
      continue;
    }
    for (const std::int32_t threads : {1, 3}) {
      out.push_back({hwy::TargetName(target) + std::string(threads == 1 ? "" : "_threads"), target, threads});
    }
  }
  return out;
}

[[nodiscard]] inline Implementation reference_implementation() { return {"reference", 0, 1}; }

[[nodiscard]] inline std::unique_ptr<Device> make_implementation(const Implementation& implementation) {
  if (implementation.target == 0) {
    return cpu::make_device({.use_reference_kernels = true});
  }
  hwy::SetSupportedTargetsForTest(implementation.target);
  std::unique_ptr<Device> device = cpu::make_device({.num_threads = implementation.num_threads});
  hwy::SetSupportedTargetsForTest(0);
  return device;
}

}  // namespace deepinfer::test
