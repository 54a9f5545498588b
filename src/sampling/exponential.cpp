#include "sampling/exponential.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

using Lanes = std::array<double, kSumLanes>;

/// Lane i takes lane i + half, until one is left.
double folded(Lanes& lanes) {
  for (std::size_t half = kSumLanes / 2; half >= 1; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

}  // namespace

void ColumnSum::fold() {
  total_ += folded(lanes_);
  lanes_.fill(0.0);
}

double exponentiate(std::span<const float> logits, float max, double inverse_temperature, std::span<double> weights) {
  check(logits.size() == weights.size(), "a row has one weight per logit");
  const float* const in = logits.data();
  double* const out = weights.data();
  const double largest = max;
  for (std::size_t c = 0; c < logits.size(); ++c) {
    out[c] = exp_nonpositive((static_cast<double>(in[c]) - largest) * inverse_temperature);
  }
  double total = 0.0;
  for (std::size_t first = 0; first < logits.size(); first += kSumBlock) {
    const std::size_t size = std::min<std::size_t>(kSumBlock, logits.size() - first);
    const std::size_t whole = size - size % kSumLanes;
    Lanes lanes{};
    for (std::size_t c = 0; c < whole; c += kSumLanes) {
      for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
        lanes[lane] += out[first + c + lane];
      }
    }
    for (std::size_t c = whole; c < size; ++c) {
      lanes[c - whole] += out[first + c];
    }
    total += folded(lanes);
  }
  return total;
}

}  // namespace deepinfer::sampling
