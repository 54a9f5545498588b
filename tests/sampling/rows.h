// Rows of logits for the tests of this room.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace deepinfer::sampling {

/// Normally distributed logits; with `num_levels` > 0 rounded to so many distinct values per unit, so that ties occur.
inline std::vector<float> random_row(std::mt19937_64& random, std::size_t size, float spread, int num_levels = 0) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(size);
  for (float& logit : row) {
    logit = normal(random);
    if (num_levels > 0) {
      logit = std::round(logit * static_cast<float>(num_levels)) / static_cast<float>(num_levels);
    }
  }
  return row;
}

}  // namespace deepinfer::sampling
