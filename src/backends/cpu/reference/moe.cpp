// Routing and experts (docs/spec/model.md 5.5).
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/reference/decoded_weights.h"
#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

/// NaN stays NaN.
double clamp_above(double x, double limit) { return x > limit ? limit : x; }
double clamp_below(double x, double limit) { return x < limit ? limit : x; }

/// A weight as values, row by row.
std::vector<std::vector<float>> decode_weight(const QuantWeight& weight, std::int32_t n, std::int32_t k) {
  std::vector<std::vector<float>> out(n);
  for (std::int32_t row = 0; row < n; ++row) {
    out[row] = decode_weight_row(weight, k, row);
  }
  return out;
}

/// y = bf16(weight x) for one row.
std::vector<bf16> linear_row(const std::vector<std::vector<float>>& weight, const std::vector<float>& x) {
  std::vector<bf16> y(weight.size());
  std::transform(weight.begin(), weight.end(), y.begin(), [&x](const std::vector<float>& row) { return round_bf16(dot_product(x, row)); });
  return y;
}

/// One expert, decoded for all rows that chose it.
class Expert {
 public:
  Expert(const MoeParams& p, const ExpertWeights& weights)
      : p_(p),
        w1_(decode_weight(weights.w1, p.intermediate, p.hidden)),
        w3_(decode_weight(weights.w3, p.intermediate, p.hidden)),
        w2_(decode_weight(weights.w2, p.hidden, p.intermediate)) {}

  /// w2 . Q8(bf16(silu(min(g, limit)) * clamp(t, +-limit) * weight)) with g = w1 x, t = w3 x for row r.
  [[nodiscard]] std::vector<bf16> run(std::int64_t r, float weight) const {
    const std::vector<float> x = decode_q8(row_at(p_.x.codes, r, p_.hidden), row_at(p_.x.scales, r, p_.hidden / kQ8Group), p_.hidden);
    const std::vector<bf16> gate = linear_row(w1_, x);
    const std::vector<bf16> up = linear_row(w3_, x);
    const double limit = p_.swiglu_limit > 0 ? p_.swiglu_limit : std::numeric_limits<double>::infinity();
    std::vector<bf16> activation(p_.intermediate);
    for (std::int32_t i = 0; i < p_.intermediate; ++i) {
      const double g = clamp_above(to_float(gate[i]), limit);
      const double t = clamp_below(clamp_above(to_float(up[i]), limit), -limit);
      activation[i] = round_bf16(g / (1.0 + std::exp(-g)) * t * weight);
    }
    std::vector<std::uint8_t> act_codes(p_.intermediate);
    std::vector<std::uint8_t> act_scales(p_.intermediate / kQ8Group);
    quantise_q8(activation.data(), p_.intermediate, act_codes.data(), act_scales.data());
    return linear_row(w2_, decode_q8(act_codes.data(), act_scales.data(), p_.intermediate));
  }

 private:
  const MoeParams& p_;
  std::vector<std::vector<float>> w1_, w3_, w2_;
};

/// The top_k largest score + bias, ties to the smaller id, ascending; NaN ranks lowest.
std::vector<std::int32_t> select_experts(const std::vector<float>& scores, const float* bias, std::int32_t top_k) {
  std::vector<float> biased(scores.size());
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const float value = scores[e] + bias[e];
    biased[e] = std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
  }
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return biased[a] > biased[b]; });
  order.resize(top_k);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

void ReferenceOps::route(Stream&, const RouteParams& p) {
  std::vector<float> scores(p.num_experts);
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    bool finite = true;
    for (std::int32_t e = 0; e < p.num_experts; ++e) {
      double logit = 0;
      for (std::int32_t c = 0; c < p.hidden; ++c) {
        logit += static_cast<double>(to_float(row_at(p.u, r, p.hidden)[c])) * to_float(row_at(p.weight.values, e, p.hidden)[c]);
      }
      scores[e] = static_cast<float>(std::sqrt(softplus(logit)));
      finite = finite && std::isfinite(static_cast<float>(logit));
    }
    const bool image = p.is_image != nullptr && p.is_image[r] != 0;
    const std::vector<std::int32_t> chosen = select_experts(scores, image ? p.bias_image : p.bias, p.top_k);
    double sum = 1e-20;
    for (const std::int32_t e : chosen) {
      sum += scores[e];
    }
    for (std::int32_t i = 0; i < p.top_k; ++i) {
      const double weight = scores[chosen[i]] / sum * p.routed_scaling;
      p.expert[r * p.top_k + i] = chosen[i];
      p.expert_weight[r * p.top_k + i] = finite ? static_cast<float>(weight) : std::numeric_limits<float>::quiet_NaN();
    }
  }
}

void ReferenceOps::moe(Stream&, const MoeParams& p) {
  std::vector<double> sum(static_cast<std::size_t>(p.num_rows) * p.hidden);
  const auto add = [&](std::int64_t r, const std::vector<bf16>& y) {
    std::transform(y.begin(), y.end(), row_at(sum.data(), r, p.hidden), row_at(sum.data(), r, p.hidden),
                   [](bf16 value, double so_far) { return so_far + to_float(value); });
  };
  const std::int64_t num_choices = std::int64_t{p.num_rows} * p.top_k;
  for (std::int32_t e = 0; e < p.num_experts; ++e) {  // ascending for every row
    if (std::find(p.expert, p.expert + num_choices, e) == p.expert + num_choices) {
      continue;
    }
    const Expert expert(p, p.experts[e]);
    for (std::int64_t i = 0; i < num_choices; ++i) {
      if (p.expert[i] == e) {
        add(i / p.top_k, expert.run(i / p.top_k, p.expert_weight[i]));
      }
    }
  }
  const Expert shared(p, p.shared);
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    add(r, shared.run(r, 1.0F));
    std::transform(row_at(sum.data(), r, p.hidden), row_at(sum.data(), r + 1, p.hidden), row_at(p.y, r, p.hidden), round_bf16);
  }
}

}  // namespace deepinfer::cpu
