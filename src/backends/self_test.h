// A numeric self-test of a device: a handful of operations on small random inputs beside the plain CPU kernels.
// Not here: the complete comparison (tests/backends), which needs more time than a start may take.
#pragma once

#include "base/result.h"
#include "ops/device.h"

namespace deepinfer {

/// Runs norms, quantised and plain products, experts and attention on `device` and on the plain CPU kernels. Takes some 10 ms and a few MiB
/// of the device. Errors: corrupt, naming the operation and the values, when they differ by more than rounding; exhausted without memory.
[[nodiscard]] Result<void> self_test(Device& device);

}  // namespace deepinfer
