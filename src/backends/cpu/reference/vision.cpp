// The vision tower and its aligner (docs/spec/model.md section 6).
#include <algorithm>
#include <vector>

#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {

void ReferenceOps::rotate_halves(Stream&, const RotateHalvesParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      rotate_half_row(p, r, head);
    }
  }
}

void ReferenceOps::attend_all(Stream&, const AttendAllParams& p) {
  const double factor = 1.0 / std::sqrt(static_cast<double>(p.head_dim));
  std::vector<double> weight(static_cast<std::size_t>(p.num_keys));
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      const bf16* q = row_at(row_at(p.q, r, p.q_stride), head, p.head_dim);
      for (std::int64_t j = 0; j < p.num_keys; ++j) {
        const bf16* key = row_at(row_at(p.k, j, p.kv_stride), head, p.head_dim);
        double score = 0;
        for (std::int32_t i = 0; i < p.head_dim; ++i) {
          score += static_cast<double>(to_float(q[i])) * to_float(key[i]);
        }
        weight[j] = score * factor;
      }
      const double peak = weight.empty() ? 0.0 : *std::max_element(weight.begin(), weight.end());
      double sum = 0;
      for (double& w : weight) {
        w = std::exp(w - peak);
        sum += w;
      }
      for (std::int32_t i = 0; i < p.head_dim; ++i) {
        double value = 0;
        for (std::int64_t j = 0; j < p.num_keys; ++j) {
          value += weight[j] * to_float(row_at(row_at(p.v, j, p.kv_stride), head, p.head_dim)[i]);
        }
        row_at(p.o, r * p.heads + head, p.head_dim)[i] = round_bf16(value / sum);
      }
    }
  }
}

void ReferenceOps::add(Stream&, const AddParams& p) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.num_rows) * p.width; ++i) {
    p.x[i] = to_bf16(to_float(p.x[i]) + to_float(p.y[i]));
  }
}

void ReferenceOps::silu_product(Stream&, const SiluProductParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    const bf16* gate = row_at(p.gate_up, r, 2 * p.width);
    for (std::int32_t i = 0; i < p.width; ++i) {
      const double g = to_float(gate[i]);
      row_at(p.y, r, p.width)[i] = round_bf16(g / (1.0 + std::exp(-g)) * to_float(gate[p.width + i]));
    }
  }
}

void ReferenceOps::gelu(Stream&, const GeluParams& p) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.num_rows) * p.width; ++i) {
    p.x[i] = gelu_value(p.x[i]);
  }
}

void ReferenceOps::gather_cells(Stream&, const GatherCellsParams& p) {
  for (std::int64_t cell = 0; cell < p.num_rows; ++cell) {
    gather_cell(p, cell);
  }
}

}  // namespace deepinfer::cpu
