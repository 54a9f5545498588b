// The device on which tests of whole models run: the CPU, or the GPU when DEEPINFER_TEST_DEVICE=cuda.
#pragma once

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "base/check.h"

namespace deepinfer::test {

/// `options` count on the CPU; the reference kernels are always the CPU's.
inline std::unique_ptr<Device> test_device(const cpu::CpuOptions& options = {}) {
  const char* name = std::getenv("DEEPINFER_TEST_DEVICE");
  if (options.use_reference_kernels || name == nullptr || std::string_view(name) != "cuda") {
    return cpu::make_device(options);
  }
  auto device = cuda::make_device({});
  check(device.has_value(), "DEEPINFER_TEST_DEVICE=cuda is set where there is a GPU");
  return std::move(*device);
}

}  // namespace deepinfer::test
