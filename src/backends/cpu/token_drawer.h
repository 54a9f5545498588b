// draw_tokens on the CPU, shared by the reference and the fast back end: one row at a time through the sampler.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/ops.h"
#include "sampling/sampler.h"

namespace deepinfer::cpu {

/// Work space for one thread; sized by the first row, and again when the vocabulary changes.
class TokenDrawer {
 public:
  void draw(const DrawTokensParams& params, std::int64_t row);

 private:
  std::optional<sampling::Sampler> sampler_;
  std::vector<float> masked_;  // [vocab]
};

}  // namespace deepinfer::cpu
