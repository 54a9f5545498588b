// Norms, quantisation, rotations and linears (docs/spec/model.md 4.3-4.6); tokens of logits.
#include <algorithm>
#include <vector>

#include "backends/cpu/reference/decoded_weights.h"
#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"
#include "backends/cpu/token_drawer.h"

namespace deepinfer::cpu {

void ReferenceOps::rms_norm(Stream&, const RmsNormParams& p) {
  std::vector<bf16> y(p.width);
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    rms_norm_row(row_at(p.x, r, p.x_stride == 0 ? p.width : p.x_stride), p.weight, p.width, p.norm_eps, y.data());
    if (p.y != nullptr) {
      std::copy(y.begin(), y.end(), row_at(p.y, r, p.width));
    }
    if (p.q8.codes != nullptr) {
      quantise_q8(y.data(), p.width, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
    }
  }
}

void ReferenceOps::quantise(Stream&, const QuantiseParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    quantise_q8(row_at(p.x, r, p.width), p.width, row_at(p.q8.codes, r, p.width), row_at(p.q8.scales, r, p.width / kQ8Group));
  }
}

void ReferenceOps::rope_table(Stream&, const RopeTableParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    rope_row(p, r);
  }
}

void ReferenceOps::rotate(Stream&, const RotateParams& p) {
  const std::int32_t half = p.rope_dim / 2;
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      bf16* x = row_at(p.x, r * p.heads + head, p.head_dim) + (p.head_dim - p.rope_dim);
      rotate_pairs(x, p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim, Direction::forward);
    }
  }
}

void ReferenceOps::linear_q8(Stream&, const LinearQ8Params& p) {
  std::vector<std::vector<float>> x(p.num_rows);
  for (std::int64_t group = 0; group < p.groups; ++group) {
    for (std::int64_t r = 0; r < p.num_rows; ++r) {
      const std::int64_t part = r * p.groups + group;
      x[r] = decode_q8(row_at(p.x.codes, part, p.k), row_at(p.x.scales, part, p.k / kQ8Group), p.k);
    }
    for (std::int64_t row = group * p.n; row < (group + 1) * p.n && p.num_rows > 0; ++row) {
      const std::vector<float> weight = decode_weight_row(p.weight, p.k, row);
      for (std::int64_t r = 0; r < p.num_rows; ++r) {
        p.y[r * p.groups * p.n + row] = round_bf16(dot_product(x[r], weight));
      }
    }
  }
}

void ReferenceOps::linear_bf16(Stream&, const LinearBf16Params& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    const bf16* x = row_at(p.x, p.row_index != nullptr ? p.row_index[r] : r, p.k);
    for (std::int64_t n = 0; n < p.n; ++n) {
      const bf16* weight = row_at(p.weight.values, n, p.k);
      double sum = 0;
      for (std::int32_t k = 0; k < p.k; ++k) {
        sum += static_cast<double>(to_float(x[k])) * to_float(weight[k]);
      }
      sum += p.bias != nullptr ? to_float(p.bias[n]) : 0.0F;
      if (p.y_f32 != nullptr) {
        p.y_f32[r * p.n + n] = static_cast<float>(sum);
      } else {
        p.y_bf16[r * p.n + n] = round_bf16(sum);
      }
    }
  }
}

void ReferenceOps::draw_tokens(Stream&, const DrawTokensParams& p) {
  TokenDrawer drawer;
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    drawer.draw(p, r);
  }
}

void ReferenceOps::add_rows(Stream&, const AddRowsParams& p) {
  for (std::int64_t i = 0; i < std::int64_t{p.num_rows} * p.width; ++i) {
    p.y[i] += p.x[i];
  }
}

}  // namespace deepinfer::cpu
