// Rotary frequencies (docs/spec/model.md 4.6).
#pragma once

#include <vector>

#include "model/deepseek_v41/config.h"

namespace deepinfer::model {

/// fp32 [rope_dim / 2]: base rope_theta; layers of ratio 0 and the drafter.
[[nodiscard]] std::vector<float> plain_frequencies(const Config& config);

/// fp32 [rope_dim / 2]: base compress_rope_theta, stretched by YaRN when the config has a scaling; layers of ratio > 0.
[[nodiscard]] std::vector<float> compressed_frequencies(const Config& config);

}  // namespace deepinfer::model
