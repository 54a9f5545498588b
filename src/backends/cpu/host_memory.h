// Memory for tensors in large pages: a model walks through many small tensors in every step, more of them than the processor remembers
// addresses of 4 KB pages. Small buffers share chunks of 16 MB; a chunk goes back when its last buffer does.
// Not here: scratch memory of workers (fast/scratch.h).
#pragma once

#include <cstddef>

#include "tensor/tensor.h"

namespace deepinfer::cpu {

inline constexpr std::size_t kBufferAlignment = 256;  ///< promised by Device::allocate

/// Hands out buffers from chunks. One thread allocates; buffers may be released on any thread and outlive the allocator.
class HostMemory {
 public:
  HostMemory() = default;
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// Uninitialised memory aligned to kBufferAlignment; an empty Buffer when the system has none.
  [[nodiscard]] Buffer allocate(std::size_t size_bytes);

 private:
  [[nodiscard]] bool open_chunk();
  void close_chunk();

  std::byte* chunk_ = nullptr;  ///< the one that is being filled
  std::size_t used_bytes_ = 0;  ///< of it
};

}  // namespace deepinfer::cpu
