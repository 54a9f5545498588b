// Residual streams: embedding, mixing coefficients, collapse, expand, mean (docs/spec/model.md 5.1-5.3).
#include <algorithm>
#include <vector>

#include "backends/cpu/reference/reference_ops.h"
#include "backends/cpu/rows.h"

namespace deepinfer::cpu {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// comb[i][j] <- softmax over j, then alternating row and column normalisation; the softmax counts as the first row step.
void sinkhorn(std::vector<double>& comb, std::int32_t streams, std::int32_t iterations, double eps) {
  const auto at = [&](std::int32_t i, std::int32_t j) -> double& { return comb[i * streams + j]; };
  // Divides one row (stride 1) or column (stride `streams`) by its sum.
  const auto normalise = [&](double* first, std::int32_t stride) {
    double sum = eps;
    for (std::int32_t i = 0; i < streams; ++i) {
      sum += first[i * stride];
    }
    for (std::int32_t i = 0; i < streams; ++i) {
      first[i * stride] /= sum;
    }
  };
  for (std::int32_t i = 0; i < streams; ++i) {
    double* row = &at(i, 0);
    const double peak = *std::max_element(row, row + streams);
    double sum = 0;
    for (std::int32_t j = 0; j < streams; ++j) {
      row[j] = std::exp(row[j] - peak);
      sum += row[j];
    }
    for (std::int32_t j = 0; j < streams; ++j) {
      row[j] = row[j] / sum + eps;
    }
  }
  for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
    for (std::int32_t i = 0; i < streams && iteration > 0; ++i) {
      normalise(&at(i, 0), 1);
    }
    for (std::int32_t j = 0; j < streams; ++j) {
      normalise(&at(0, j), streams);
    }
  }
}

/// m = (fn z) * rsqrt(mean(z^2) + eps) for one row z of streams * hidden values.
std::vector<double> mixing_logits(const MixParams& p, const bf16* z) {
  const std::int32_t width = p.streams * p.hidden;
  double square = 0;
  for (std::int32_t k = 0; k < width; ++k) {
    square += static_cast<double>(to_float(z[k])) * to_float(z[k]);
  }
  const double inverse = 1.0 / std::sqrt(square / width + p.norm_eps);
  std::vector<double> m((2 + p.streams) * p.streams);
  for (std::size_t n = 0; n < m.size(); ++n) {
    const float* fn = row_at(p.fn, static_cast<std::int64_t>(n), width);
    double dot = 0;
    for (std::int32_t k = 0; k < width; ++k) {
      dot += static_cast<double>(fn[k]) * to_float(z[k]);
    }
    m[n] = dot * inverse;
  }
  return m;
}

}  // namespace

void ReferenceOps::embed(Stream&, const EmbedParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    const bf16* row = embedding_row(p, r);
    for (std::int64_t s = 0; s < p.streams; ++s) {
      std::copy_n(row, p.hidden, row_at(p.h, r * p.streams + s, p.hidden));
    }
  }
}

void ReferenceOps::mix(Stream&, const MixParams& p) {
  const std::int32_t streams = p.streams;
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    const std::vector<double> m = mixing_logits(p, row_at(p.h, r, streams * p.hidden));
    for (std::int32_t i = 0; i < streams; ++i) {
      p.pre[r * streams + i] = static_cast<float>(sigmoid(m[i] * p.scale[0] + p.base[i]) + p.mix_eps);
      p.post[r * streams + i] = static_cast<float>(2.0 * sigmoid(m[streams + i] * p.scale[1] + p.base[streams + i]));
    }
    std::vector<double> comb(streams * streams);
    for (std::int32_t i = 0; i < streams * streams; ++i) {
      comb[i] = m[2 * streams + i] * p.scale[2] + p.base[2 * streams + i];
    }
    sinkhorn(comb, streams, p.sinkhorn_iterations, p.mix_eps);
    for (std::int32_t i = 0; i < streams * streams; ++i) {
      p.comb[r * streams * streams + i] = static_cast<float>(comb[i]);
    }
  }
}

void ReferenceOps::collapse_norm(Stream&, const CollapseNormParams& p) {
  std::vector<bf16> x(p.hidden);
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    for (std::int32_t c = 0; c < p.hidden; ++c) {
      double sum = 0;
      for (std::int64_t s = 0; s < p.streams; ++s) {
        sum += static_cast<double>(p.pre[r * p.streams + s]) * to_float(row_at(p.h, r * p.streams + s, p.hidden)[c]);
      }
      x[c] = round_bf16(sum);
    }
    if (p.x != nullptr) {
      std::copy(x.begin(), x.end(), row_at(p.x, r, p.hidden));
    }
    bf16* y = row_at(p.y, r, p.hidden);
    rms_norm_row(x.data(), p.weight, p.hidden, p.norm_eps, y);
    if (p.q8.codes != nullptr) {
      quantise_q8(y, p.hidden, row_at(p.q8.codes, r, p.hidden), row_at(p.q8.scales, r, p.hidden / kQ8Group));
    }
  }
}

void ReferenceOps::expand(Stream&, const ExpandParams& p) {
  const std::int32_t streams = p.streams;
  std::vector<double> old(streams);
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    const float* comb = row_at(p.comb, r, streams * streams);
    for (std::int32_t c = 0; c < p.hidden; ++c) {
      for (std::int32_t j = 0; j < streams; ++j) {
        old[j] = to_float(row_at(p.h, r * streams + j, p.hidden)[c]);
      }
      const double y = to_float(row_at(p.y, r, p.hidden)[c]);
      for (std::int32_t k = 0; k < streams; ++k) {
        double sum = p.post[r * streams + k] * y;
        for (std::int32_t j = 0; j < streams; ++j) {
          sum += comb[j * streams + k] * old[j];
        }
        row_at(p.h, r * streams + k, p.hidden)[c] = round_bf16(sum);
      }
    }
  }
}

void ReferenceOps::mean_streams(Stream&, const MeanStreamsParams& p) {
  for (std::int64_t r = 0; r < p.num_rows; ++r) {
    for (std::int32_t c = 0; c < p.hidden; ++c) {
      double sum = 0;
      for (std::int64_t s = 0; s < p.streams; ++s) {
        sum += to_float(row_at(p.h, r * p.streams + s, p.hidden)[c]);
      }
      row_at(p.y, r, p.y_stride)[c] = round_bf16(sum / p.streams);
    }
  }
}

}  // namespace deepinfer::cpu
