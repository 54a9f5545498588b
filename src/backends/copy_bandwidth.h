// How fast a device copies its own memory: the denominator of memory floors on a GPU (the CPU's is cpu/machine_probe.h).
#pragma once

#include "ops/device.h"

namespace deepinfer {

/// Bytes per second of a large copy, reads and writes counted, median of several; 0 when the device has no room for 2 GiB.
[[nodiscard]] double copy_bandwidth(Device& device);

}  // namespace deepinfer
