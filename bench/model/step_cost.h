// Bytes and FLOPs that a forward must spend at least, from the configuration alone (docs/spec/kernels.md section 2).
#pragma once

#include "model/deepseek_v41/config.h"

namespace deepinfer::bench {

struct Cost {
  double bytes = 0;  ///< weights read once, cache rows read once per request
  double flops = 0;  ///< a multiply and an add count as two
};

/// One forward of `rows` rows of `requests` requests at context length `context`; logits for `logit_rows`.
struct StepShape {
  double rows = 1;
  double requests = 1;
  double context = 1;
  double logit_rows = 1;
};

[[nodiscard]] Cost step_cost(const model::Config& config, const StepShape& shape);

}  // namespace deepinfer::bench
