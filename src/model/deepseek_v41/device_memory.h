// Takes typed arrays from a device and adds up what did not fit, so that one error can show the whole arithmetic.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ops/device.h"

namespace deepinfer::model {

class DeviceMemory {
 public:
  explicit DeviceMemory(Device& device) : device_(device) {}

  /// `count` uninitialised elements; nullptr for none, or when the device is full (then finish() fails).
  template <class T>
  T* take(std::size_t count) {
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  /// The buffers, or how much was wanted and how much was missing. `what` names the part: "caches".
  [[nodiscard]] Result<std::vector<Buffer>> finish(const std::string& what) && {
    if (missing_bytes_ > 0) {
      return fail(ErrorKind::exhausted, device_.info().name + " has no room for the " + what + ": " + std::to_string(wanted_bytes_) +
                                            " bytes wanted, " + std::to_string(missing_bytes_) +
                                            " missing; lower --kv-memory, --max-requests or --max-batched-tokens");
    }
    return std::move(buffers_);
  }

 private:
  void* take_bytes(std::size_t size_bytes) {
    if (size_bytes == 0) {
      return nullptr;
    }
    wanted_bytes_ += size_bytes;
    Buffer buffer = device_.allocate(size_bytes);
    if (buffer.data() == nullptr) {
      missing_bytes_ += size_bytes;
      return nullptr;
    }
    buffers_.push_back(std::move(buffer));
    return buffers_.back().data();
  }

  Device& device_;
  std::vector<Buffer> buffers_;
  std::size_t wanted_bytes_ = 0;
  std::size_t missing_bytes_ = 0;
};

}  // namespace deepinfer::model
