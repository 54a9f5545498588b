// Looks for values that no trained weight has: not-a-number codes and invalid scales. They would surface much later, as bad logits of
// some requests. Reads every byte, so it is meant for small checkpoints and on request: a real one has 510 GB, 203 GB of them tables that
// a run touches only row by row. should_check_values() states the policy for a start; `deepinfer inspect` offers the full check.
#pragma once

#include <cstddef>

#include "weights/checkpoint.h"
#include "weights/problems.h"

namespace deepinfer::weights {

/// Reading this much costs about a second from a warm page cache: below it the check runs at every start.
inline constexpr std::size_t kValueCheckLimitBytes = std::size_t{4} << 30;

[[nodiscard]] inline bool should_check_values(const Checkpoint& checkpoint) { return checkpoint.payload_bytes() <= kValueCheckLimitBytes; }

/// One problem per tensor with an E4M3, BF16 or F32 NaN or the UE8M0 byte 255, naming its first place. Other formats have no bad codes.
[[nodiscard]] Problems validate_values(const Checkpoint& checkpoint);

}  // namespace deepinfer::weights
