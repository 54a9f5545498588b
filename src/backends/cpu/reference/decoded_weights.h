// Quantised weights as values, for kernels that use one weight for several rows.
// Not here: formats (rows.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/cpu/rows.h"

namespace deepinfer::cpu {

/// One row of a quantised weight [.., k].
[[nodiscard]] inline std::vector<float> decode_weight_row(const QuantWeight& weight, std::int32_t k, std::int64_t row) {
  std::vector<float> out(k);
  for (std::int32_t i = 0; i < k; ++i) {
    out[i] = weight_value(weight, k, row, i);
  }
  return out;
}

/// Sum of products in double precision, ascending.
[[nodiscard]] inline double dot_product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * b[i];
  }
  return sum;
}

}  // namespace deepinfer::cpu
