// Routing and experts (docs/spec/model.md 5.5).
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

/// NaN stays NaN.
double clamp_above(double x, double limit) { return x > limit ? limit : x; }
double clamp_below(double x, double limit) { return x < limit ? limit : x; }

/// y[n] = QL(weight, x) for one row.
std::vector<bf16> linear_row(const QuantWeight& weight, const std::vector<float>& x, std::int32_t n) {
  const auto k = static_cast<std::int32_t>(x.size());
  std::vector<bf16> y(n);
  for (std::int32_t row = 0; row < n; ++row) {
    double sum = 0;
    for (std::int32_t i = 0; i < k; ++i) {
      sum += static_cast<double>(x[i]) * weight_value(weight, k, row, i);
    }
    y[row] = round_bf16(sum);
  }
  return y;
}

/// out = w2 . Q8(bf16(silu(min(g, limit)) * clamp(t, +-limit) * weight)) with g = w1 x, t = w3 x.
std::vector<bf16> expert_row(const MoeParams& p, const ExpertWeights& expert, std::int64_t r, float weight) {
  const std::vector<float> x = decode_q8(row_at(p.x.codes, r, p.hidden), row_at(p.x.scales, r, p.hidden / kQ8Group), p.hidden);
  const std::vector<bf16> gate = linear_row(expert.w1, x, p.intermediate);
  const std::vector<bf16> up = linear_row(expert.w3, x, p.intermediate);
  const double limit = p.swiglu_limit > 0 ? p.swiglu_limit : std::numeric_limits<double>::infinity();
  std::vector<bf16> activation(p.intermediate);
  for (std::int32_t i = 0; i < p.intermediate; ++i) {
    const double g = clamp_above(to_float(gate[i]), limit);
    const double t = clamp_below(clamp_above(to_float(up[i]), limit), -limit);
    activation[i] = round_bf16(g / (1.0 + std::exp(-g)) * t * weight);
  }
  std::vector<std::uint8_t> act_codes(p.intermediate);
  std::vector<std::uint8_t> act_scales(p.intermediate / kQ8Group);
  quantise_q8(activation.data(), p.intermediate, act_codes.data(), act_scales.data());
  return linear_row(expert.w2, decode_q8(act_codes.data(), act_scales.data(), p.intermediate), p.hidden);
}

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
        logit += static_cast<double>(to_float(row_at(p.u, r, p.hidden)[c])) * to_float(row_at(p.weight, e, p.hidden)[c]);
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
  std::vector<double> sum(p.hidden);
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    std::fill(sum.begin(), sum.end(), 0.0);
    const auto add = [&](const std::vector<bf16>& y) {
      for (std::int32_t c = 0; c < p.hidden; ++c) {
        sum[c] += to_float(y[c]);
      }
    };
    for (std::int64_t i = r * p.top_k; i < (r + 1) * p.top_k; ++i) {
      add(expert_row(p, p.experts[p.expert[i]], r, p.expert_weight[i]));
    }
    add(expert_row(p, p.shared, r, 1.0F));
    for (std::int32_t c = 0; c < p.hidden; ++c) {
      row_at(p.y, r, p.hidden)[c] = round_bf16(sum[c]);
    }
  }
}

}  // namespace deepinfer::cpu
