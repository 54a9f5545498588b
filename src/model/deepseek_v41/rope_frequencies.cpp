#include "model/deepseek_v41/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace deepinfer::model {

namespace {

/// 1 / base^(2i / dim), each step in fp32 as the official code does.
std::vector<float> powers(double base, std::int32_t dim) {
  std::vector<float> out;
  for (std::int32_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    out.push_back(1.0F / std::pow(static_cast<float>(base), exponent));
  }
  return out;
}

}  // namespace

std::vector<float> plain_frequencies(const Config& config) { return powers(config.rope_theta, config.qk_rope_head_dim); }

std::vector<float> compressed_frequencies(const Config& config) {
  const std::int32_t dim = config.qk_rope_head_dim;
  std::vector<float> out = powers(config.compress_rope_theta, dim);
  if (!config.rope_scaling) {
    return out;
  }
  const RopeScaling& scaling = *config.rope_scaling;
  // The element that turns `rotations` times over the original length.
  const auto element_of = [&](double rotations) {
    return dim * std::log(scaling.original_max_position_embeddings / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.compress_rope_theta));
  };
  const double low = std::max(std::floor(element_of(scaling.beta_fast)), 0.0);
  const double high = std::min(std::ceil(element_of(scaling.beta_slow)), dim - 1.0);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto width = static_cast<float>(std::max(high - low, 1e-3));
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.0F, 1.0F);
    out[i] = out[i] / static_cast<float>(scaling.factor) * ramp + out[i] * (1.0F - ramp);
  }
  return out;
}

}  // namespace deepinfer::model
