// Every implementation of the operations that this machine can run, for tests that repeat themselves on each.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/fast/kernels.h"
#include "backends/cuda/cuda_device.h"

namespace deepinfer::test {

inline constexpr std::int64_t kGpu = -1;

struct Implementation {
  std::string name;
  std::int64_t target = 0;  ///< instruction set of Highway; 0: the reference kernels; kGpu
  std::int32_t num_threads = 1;
  cpu::ProductUnit unit = cpu::ProductUnit::vector;
};

/// The fast kernels of each instruction set of this machine, the best one with each of its product units, on one and on three threads.
[[nodiscard]] inline std::vector<Implementation> fast_implementations() {
  std::vector<Implementation> out;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SSSE3) {  // not built (src/backends/CMakeLists.txt)
      continue;
    }
    hwy::SetSupportedTargetsForTest(target);
    const cpu::ProductUnit best = cpu::best_product_unit();
    hwy::SetSupportedTargetsForTest(0);
    for (const cpu::ProductUnit unit : {cpu::ProductUnit::matrix, cpu::ProductUnit::pairs, cpu::ProductUnit::vector}) {
      for (const std::int32_t threads : {1, 3}) {
        if (unit <= best) {
          const std::string suffix = unit == cpu::ProductUnit::vector ? "" : "_" + std::string(cpu::name_of(unit));
          out.push_back({hwy::TargetName(target) + suffix + (threads == 1 ? "" : "_threads"), target, threads, unit});
        }
      }
    }
  }
  return out;
}

/// The GPU, where there is one.
[[nodiscard]] inline std::vector<Implementation> gpu_implementations() {
  return cuda::make_device({}).has_value() ? std::vector<Implementation>{{"cuda", kGpu, 0}} : std::vector<Implementation>{};
}

[[nodiscard]] inline Implementation reference_implementation() { return {"reference", 0, 1}; }

[[nodiscard]] inline std::unique_ptr<Device> make_implementation(const Implementation& implementation) {
  if (implementation.target == 0) {
    return cpu::make_device({.use_reference_kernels = true});
  }
  if (implementation.target == kGpu) {
    return std::move(*cuda::make_device({}));
  }
  hwy::SetSupportedTargetsForTest(implementation.target);
  std::unique_ptr<Device> device = cpu::make_device({.num_threads = implementation.num_threads, .best_unit = implementation.unit});
  hwy::SetSupportedTargetsForTest(0);
  return device;
}

}  // namespace deepinfer::test
