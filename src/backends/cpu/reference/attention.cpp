// Attention core: one softmax over window rows and listed rows with a sink (docs/spec/model.md 5.4 "Core").
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

/// The decoded keys of one query, window rows ascending, then listed rows ascending. [keys, head_dim]
std::vector<float> visible_keys(const AttendParams& p, std::int64_t r) {
  std::vector<float> keys;
  const std::int64_t chunk = p.rows.chunk[r];
  for (std::int64_t t = p.window_low[r]; t <= p.window_high[r]; ++t) {
    const std::uint8_t* record = window_record(p, chunk, t);
    for (std::int32_t i = 0; i < p.head_dim; ++i) {
      keys.push_back(q8_value(record, record + p.head_dim, i));
    }
  }
  for (std::int32_t l = 0; p.list != nullptr && l < p.top_k; ++l) {
    const std::int64_t j = row_at(p.list, r, p.top_k)[l];
    if (j < 0) {
      continue;
    }
    const std::uint8_t* record = compressed_record(p, chunk, j);
    for (std::int32_t i = 0; i < p.head_dim; ++i) {
      keys.push_back(q4_kv_value(record, record + p.head_dim / 2, i));
    }
  }
  return keys;
}

/// o = (sum bf16(P) key) / (sum P + exp(sink - m)) with P = exp(s - m), m the largest score; zeros without keys.
void attend_head(const std::vector<float>& keys, const bf16* q, std::int32_t head_dim, float sink, bf16* o) {
  const std::size_t num_keys = keys.size() / head_dim;
  const double factor = 1.0 / std::sqrt(static_cast<double>(head_dim));
  std::vector<double> scores(num_keys);
  double peak = -std::numeric_limits<double>::infinity();
  for (std::size_t j = 0; j < num_keys; ++j) {
    double dot = 0;
    for (std::int32_t i = 0; i < head_dim; ++i) {
      dot += static_cast<double>(to_float(q[i])) * keys[j * head_dim + i];
    }
    scores[j] = dot * factor;
    peak = std::max(peak, scores[j]);
  }
  double denominator = num_keys > 0 ? std::exp(sink - peak) : 1.0;
  std::vector<double> sum(head_dim, 0.0);
  for (std::size_t j = 0; j < num_keys; ++j) {
    const double probability = std::exp(scores[j] - peak);
    denominator += probability;
    const double rounded = to_float(round_bf16(probability));
    for (std::int32_t i = 0; i < head_dim; ++i) {
      sum[i] += rounded * keys[j * head_dim + i];
    }
  }
  for (std::int32_t i = 0; i < head_dim; ++i) {
    o[i] = round_bf16(sum[i] / denominator);
  }
}

}  // namespace

void ReferenceOps::attend(Stream&, const AttendParams& p) {
  const std::int32_t width = p.heads * p.head_dim;
  const std::int32_t half = p.rope_dim / 2;
  std::vector<bf16> o(width);
  for (std::int64_t r = 0; r < p.rows.num_rows; ++r) {
    const std::vector<float> keys = visible_keys(p, r);
    for (std::int32_t head = 0; head < p.heads; ++head) {
      bf16* out = o.data() + head * p.head_dim;
      attend_head(keys, row_at(p.q, r, width) + head * p.head_dim, p.head_dim, p.sink[head], out);
      rotate_pairs(out + (p.head_dim - p.rope_dim), p.rope.cos + r * half, p.rope.sin + r * half, p.rope_dim, Direction::inverse);
    }
    if (p.o != nullptr) {
      std::copy(o.begin(), o.end(), row_at(p.o, r, width));
    }
    if (p.q8.codes != nullptr) {
      quantise_q8(o.data(), width, row_at(p.q8.codes, r, width), row_at(p.q8.scales, r, width / kQ8Group));
    }
  }
}

}  // namespace deepinfer::cpu
