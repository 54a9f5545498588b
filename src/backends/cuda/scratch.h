// Device memory that operations use between two of their kernels. Grows to the largest step once, then nothing is allocated.
// One stream at a time may use it: operations of one device are issued in order.
#pragma once

#include <cstddef>

#include "backends/cuda/cuda_check.h"

namespace deepinfer::cuda {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { cudaFree(data_); }

  /// At least `count` elements, uninitialised; earlier contents are lost when it grows.
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
    must(cudaFree(data_));  // waits for kernels that use it
    must(cudaMalloc(&data_, size_bytes));
    size_bytes_ = size_bytes;
  }

  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace deepinfer::cuda
