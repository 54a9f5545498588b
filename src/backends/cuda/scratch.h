// Device memory that operations use between two of their kernels. Grows by doubling to what the largest step needs, then nothing is
// allocated. Outgrown memory stays until the end: recordings of smaller steps refer to it.
// For the operations of one stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "backends/cuda/cuda_check.h"

namespace deepinfer::cuda {

class Scratch {
 public:
  explicit Scratch(Fault& fault) : fault_(fault) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (void* data : outgrown_) {
      cudaFree(data);
    }
    cudaFree(data_);
  }

  /// At least `count` elements, uninitialised; earlier contents are lost when it grows. Without room the device has a fault.
  template <class T>
  T* room(std::size_t count) {
    grow(count * sizeof(T));
    return static_cast<T*>(data_);
  }

 private:
  void grow(std::size_t size_bytes) {
    if (size_bytes <= size_bytes_) {
      return;
    }
    if (data_ != nullptr) {
      outgrown_.push_back(data_);
    }
    size_bytes_ = std::max(size_bytes, 2 * size_bytes_);
    data_ = nullptr;
    fault_.note(cudaMalloc(&data_, size_bytes_));
  }

  Fault& fault_;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::vector<void*> outgrown_;
};

}  // namespace deepinfer::cuda
