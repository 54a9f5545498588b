// The first look at a row: its largest logit, or why nothing can be drawn from it.
#pragma once

#include <cstdint>
#include <expected>
#include <span>

#include "sampling/params.h"

namespace deepinfer::sampling {

struct RowMax {
  float value = 0.0F;
  std::int32_t column = 0;  ///< the smallest of the columns with this value
};

/// `logits` is one row, [vocab] fp32, not empty; −infinity marks a column that is not allowed.
[[nodiscard]] std::expected<RowMax, RowFailure> scan_row(std::span<const float> logits);

}  // namespace deepinfer::sampling
