// What becomes of CUDA calls that fail. While a device is set up and given back: the process ends. In streams and operations: the first
// failure stays as the device's fault, nothing is issued after it, and who waits for the stream learns of it (Stream::fault).
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include "base/check.h"

namespace deepinfer::cuda {

inline void must(cudaError_t status, std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]] {
    broken_invariant(std::string("CUDA: ") + cudaGetErrorString(status), where);
  }
}

/// The first failure of a device. For the thread that issues its work.
class Fault {
 public:
  [[nodiscard]] bool is_set() const { return !text_.empty(); }
  [[nodiscard]] std::string_view text() const { return text_; }

  /// Keeps the failure, if it is one and the first. False: there is a fault.
  bool note(cudaError_t status, std::source_location where = std::source_location::current()) {
    if (status != cudaSuccess && text_.empty()) [[unlikely]] {
      text_ = std::string("the GPU failed: ") + cudaGetErrorString(status) + " (" + where.file_name() + ":" + std::to_string(where.line()) + ")";
    }
    return text_.empty();
  }

 private:
  std::string text_;
};

}  // namespace deepinfer::cuda
