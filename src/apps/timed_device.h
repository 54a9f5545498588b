// A device that measures what another one does: every operation with its shape, time, and the bytes and FLOPs it cannot do without
// (docs/spec/kernels.md section 2: weights and cached rows once, activations stay on the chip). Not here: which steps are run (bench_steps.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::apps {

/// Sums over the calls of one operation with one shape.
struct OpTime {
  std::int64_t num_calls = 0;
  double seconds = 0;
  double processor_seconds = 0;  ///< of all threads of this process
  double bytes = 0;
  double flops = 0;
  bool on_product_unit = false;  ///< a unit that multiplies bf16 may do it
};

/// By "operation shape".
using OpTimes = std::map<std::string, OpTime>;

class TimedDevice final : public Device {
 public:
  explicit TimedDevice(Device& inner);
  ~TimedDevice() override;

  [[nodiscard]] const DeviceInfo& info() const override { return inner_.info(); }
  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override { return inner_.allocate(size_bytes); }
  [[nodiscard]] Buffer allocate_host(std::size_t size_bytes) override { return inner_.allocate_host(size_bytes); }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override;
  [[nodiscard]] Ops& ops() override;

  /// While it is off work runs as on the device itself: recorded where that is possible, and not measured.
  void set_timing(bool is_on) { is_timing_ = is_on; }
  /// What was done since the last call while timing was on.
  [[nodiscard]] OpTimes take_times();

 private:
  class TimedStream;
  class TimedOps;
  Device& inner_;
  bool is_timing_ = true;
  std::unique_ptr<TimedOps> ops_;
};

}  // namespace deepinfer::apps
