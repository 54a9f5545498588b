// Device and Stream: where memory lives and in which order work happens. Parses as C++20: device code includes it.
// Not here: what the work is (ops/ops.h), who owns which memory (model, engine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace deepinfer {

class Ops;

/// What a device says of itself. Sizes in bytes.
struct DeviceInfo {
  std::string name;                ///< "cpu", "cuda:0"
  std::string description;         ///< model and instruction set, for people
  std::size_t memory_bytes = 0;    ///< all of it; limits of containers are respected
  std::size_t host_bytes = 0;      ///< of the host's memory, free for allocate_host() when the device was opened; 0: its memory is the host's
  std::int32_t num_threads = 0;    ///< workers of a CPU device
  bool reads_host_memory = false;  ///< kernels may read mapped files and host arrays in place
};

/// Work that was recorded once and can be issued again as a whole, with what its pointers then hold.
class Recording {
 public:
  virtual ~Recording() = default;
};

/// An ordered queue of work. On the CPU work is done before the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Returns when everything issued so far is done.
  virtual void synchronize() = 0;
  /// What went wrong with the device, as a sentence without a final full stop, once something did: nothing that came after it was done.
  /// Looked at after synchronize(). Empty: nothing.
  [[nodiscard]] virtual std::string_view fault() const { return {}; }
  /// Copies between host and device memory, in stream order. `source` may be reused after synchronize().
  virtual void copy(void* destination, const void* source, std::size_t size_bytes) = 0;
  /// What is issued here from now on begins when everything issued to `other`, a stream of the same device, so far is done. While this stream
  /// records, `other` joins the recording by waiting for it and has to be waited for before the end.
  virtual void wait_for(Stream& /*other*/) {}

  /// From here to end_recording() work is kept instead of done. The same work must have run before: operations take memory on first use.
  /// False, and nothing changes, on a device where issuing work costs nothing.
  virtual bool begin_recording() { return false; }
  virtual std::unique_ptr<Recording> end_recording() { return nullptr; }
  virtual void replay(Recording&) {}
};

/// One accelerator or the CPU.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;
  /// Uninitialised memory aligned to 256 bytes; an empty Buffer when the device has no room.
  [[nodiscard]] virtual Buffer allocate(std::size_t size_bytes) = 0;
  /// The same on the host, so that copies to and from the device go on while the host does and operations read it in place; empty when the
  /// host has no room.
  [[nodiscard]] virtual Buffer allocate_host(std::size_t size_bytes) { return allocate(size_bytes); }
  [[nodiscard]] virtual std::unique_ptr<Stream> make_stream() = 0;
  [[nodiscard]] virtual Ops& ops() = 0;
};

}  // namespace deepinfer
