// Engram: collecting table rows and the gated addition to the streams (docs/spec/model.md 5.6.4).
#include <algorithm>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/reference/reference_ops.h"

namespace deepinfer::cpu {
namespace {

constexpr double kGateFloor = 1e-6;  // docs/spec/model.md 5.6.4

/// sigmoid(copysign(sqrt(max(|dot|, floor)), dot)); NaN stays NaN.
double gate_of(double dot) {
  const double magnitude = std::fabs(dot) < kGateFloor ? kGateFloor : std::fabs(dot);
  return 1.0 / (1.0 + std::exp(-std::copysign(std::sqrt(magnitude), dot)));
}

double gate_of_stream(const EngramGateParams& p, const bf16* h, const bf16* key, std::int32_t stream) {
  const bf16* q_weight = row_at(p.q_weight, stream, p.hidden);
  const bf16* k_weight = row_at(p.k_weight, stream, p.hidden);
  double dot = 0;
  double h_square = 0;
  double key_square = 0;
  for (std::int32_t c = 0; c < p.hidden; ++c) {
    const double a = to_float(h[c]);
    const double b = to_float(key[c]);
    dot += a * (static_cast<double>(to_float(q_weight[c])) * to_float(k_weight[c])) * b;
    h_square += a * a;
    key_square += b * b;
  }
  const double norms = std::sqrt(h_square / p.hidden + p.norm_eps) * std::sqrt(key_square / p.hidden + p.norm_eps);
  return gate_of(dot / norms / std::sqrt(static_cast<double>(p.hidden)));
}

}  // namespace

void ReferenceOps::engram_gather(Stream&, const EngramGatherParams& p) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(p.num_rows) * p.columns; ++i) {
    gather_engram_row(p, i);
  }
}

void ReferenceOps::engram_gate(Stream&, const EngramGateParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    if (p.is_image != nullptr && p.is_image[r] != 0) {
      continue;
    }
    const bf16* keys = row_at(p.kv, r * (p.streams + 1), p.hidden);
    const bf16* value = row_at(keys, p.streams, p.hidden);
    for (std::int32_t s = 0; s < p.streams; ++s) {
      bf16* h = row_at(p.h, r * p.streams + s, p.hidden);
      const double gate = gate_of_stream(p, h, row_at(keys, s, p.hidden), s);
      for (std::int32_t c = 0; c < p.hidden; ++c) {
        h[c] = round_bf16(to_float(h[c]) + gate * to_float(value[c]));
      }
    }
  }
}

}  // namespace deepinfer::cpu
