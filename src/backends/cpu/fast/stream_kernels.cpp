// Residual streams and the Engram gate (docs/spec/model.md 5.3, 5.6.4).
#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/stream_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/doubles-inl.h"
#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

// --- mixing coefficients ------------------------------------------------------------------------------------------

/// The Sinkhorn iteration on kDoubles matrices at once: entry (i, j) of all of them at comb[(i * streams + j) * kDoubles].
class Sinkhorn {
 public:
  Sinkhorn(double* comb, std::int32_t streams, double eps) : comb_(comb), streams_(streams), eps_(eps) {}

  void run(std::int32_t iterations) {
    for (std::int32_t i = 0; i < streams_; ++i) {
      softmax_row(i);
    }
    for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
      for (std::int32_t i = 0; i < streams_ && iteration > 0; ++i) {
        normalise(at(i, 0), kDoubles);
      }
      for (std::int32_t j = 0; j < streams_; ++j) {
        normalise(at(0, j), streams_ * kDoubles);
      }
    }
  }

 private:
  [[nodiscard]] HWY_INLINE double* at(std::int32_t i, std::int32_t j) const { return comb_ + (i * streams_ + j) * kDoubles; }

  HWY_INLINE void softmax_row(std::int32_t i) {
    for (std::int32_t lane = 0; lane < kDoubles; ++lane) {
      double peak = at(i, 0)[lane];
      for (std::int32_t j = 1; j < streams_; ++j) {
        peak = std::fmax(peak, at(i, j)[lane]);
      }
      double sum = 0;
      for (std::int32_t j = 0; j < streams_; ++j) {
        at(i, j)[lane] = std::exp(at(i, j)[lane] - peak);
        sum += at(i, j)[lane];
      }
      for (std::int32_t j = 0; j < streams_; ++j) {
        at(i, j)[lane] = at(i, j)[lane] / sum + eps_;
      }
    }
  }

  /// Divides a row or a column, entries `stride` doubles apart, by its sum + eps.
  HWY_INLINE void normalise(double* first, std::int32_t stride) const {
    VD sum = hn::Set(DD(), eps_);
    for (std::int32_t i = 0; i < streams_; ++i) {
      sum = hn::Add(sum, load_double(first + i * stride));
    }
    const VD inverse = hn::Div(hn::Set(DD(), 1.0), sum);
    for (std::int32_t i = 0; i < streams_; ++i) {
      store(hn::Mul(load_double(first + i * stride), inverse), first + i * stride);
    }
  }

  double* comb_;
  std::int32_t streams_;
  double eps_;
};

/// Coefficients of kDoubles rows from their logits: m[n * kDoubles + lane], overwritten by the coefficients.
inline void mixing_coefficients(const MixParams& p, double* m) {
  const std::int32_t streams = p.streams;
  const double eps = static_cast<double>(p.mix_eps);
  for (std::int32_t n = 0; n < (2 + streams) * streams; ++n) {
    const std::int32_t kind = std::min(n / streams, 2);
    for (std::int32_t lane = 0; lane < kDoubles; ++lane) {
      double& value = m[n * kDoubles + lane];
      value = value * static_cast<double>(p.scale[kind]) + static_cast<double>(p.base[n]);
      if (kind < 2) {
        const double sigmoid = 1.0 / (1.0 + std::exp(-value));
        value = kind == 0 ? sigmoid + eps : 2.0 * sigmoid;
      }
    }
  }
  Sinkhorn(m + 2 * streams * kDoubles, streams, eps).run(p.sinkhorn_iterations);
}

/// logits[r][n] = (fn[n] . z[r]) / rms(z[r]) for the rows of z; two rows share the conversion of fn.
HWY_INLINE void mixing_logits(const MixParams& p, const double* z, std::int32_t num_rows, double* logits) {
  const std::int32_t k = p.streams * p.hidden;
  const std::int32_t count = (2 + p.streams) * p.streams;
  for (std::int32_t r = 0; r < num_rows; r += 2) {
    const double* first = row_at(z, r, k);
    const bool is_pair = r + 1 < num_rows;
    for (std::int32_t n = 0; n < count; n += 2) {
      const std::int32_t next = std::min(n + 1, count - 1);
      const float* const columns[2] = {row_at(p.fn, n, k), row_at(p.fn, next, k)};
      if (is_pair) {
        double out[2][2];
        dot_products<2, 2>({first, row_at(z, r + 1, k)}, columns, k, out);
        row_at(logits, r + 1, count)[n] = out[1][0];
        row_at(logits, r + 1, count)[next] = out[1][1];
        row_at(logits, r, count)[n] = out[0][0];
        row_at(logits, r, count)[next] = out[0][1];
      } else {
        double out[1][2];
        dot_products<1, 2>({first}, columns, k, out);
        row_at(logits, r, count)[n] = out[0][0];
        row_at(logits, r, count)[next] = out[0][1];
      }
    }
  }
  for (std::int32_t r = 0; r < num_rows; ++r) {
    D8Sum squares;
    squares.clear();
    for (std::int32_t i = 0; i < k; i += kVirtualDoubles) {
      for (std::int32_t part = 0; part < kDoubleParts; ++part) {
        const VD value = load_double(row_at(z, r, k) + i + part * kDoubles);
        squares.part[part] = add_product(value, value, squares.part[part]);
      }
    }
    const double inverse = 1.0 / std::sqrt(squares.fold() / k + static_cast<double>(p.norm_eps));
    for (std::int32_t n = 0; n < count; ++n) {
      row_at(logits, r, count)[n] *= inverse;
    }
  }
}

void mix(const MixParams& p, Range rows, Scratch& scratch) {
  const std::int32_t k = p.streams * p.hidden;
  const std::int32_t count = (2 + p.streams) * p.streams;
  double* z = scratch.take<double>(static_cast<std::int64_t>(kDoubles) * k);
  double* logits = scratch.take<double>(static_cast<std::int64_t>(kDoubles) * count);
  double* m = scratch.take<double>(static_cast<std::int64_t>(count) * kDoubles);
  for (std::int32_t first = rows.begin; first < rows.end; first += kDoubles) {
    const std::int32_t num_rows = std::min(kDoubles, rows.end - first);
    for (std::int32_t r = 0; r < num_rows; ++r) {
      const bf16* h = row_at(p.h, first + r, k);
      for (std::int32_t i = 0; i < k; i += kDoubles) {
        store(load_double(h + i), row_at(z, r, k) + i);
      }
    }
    mixing_logits(p, z, num_rows, logits);
    for (std::int32_t n = 0; n < count; ++n) {
      for (std::int32_t lane = 0; lane < kDoubles; ++lane) {  // lanes without a row repeat the last one
        m[n * kDoubles + lane] = row_at(logits, std::min(lane, num_rows - 1), count)[n];
      }
    }
    mixing_coefficients(p, m);
    for (std::int32_t lane = 0; lane < num_rows; ++lane) {
      const auto coefficient = [m, lane](std::int32_t n) { return static_cast<float>(m[n * kDoubles + lane]); };
      for (std::int32_t n = 0; n < p.streams; ++n) {
        row_at(p.pre, first + lane, p.streams)[n] = coefficient(n);
        row_at(p.post, first + lane, p.streams)[n] = coefficient(p.streams + n);
      }
      for (std::int32_t n = 0; n < p.streams * p.streams; ++n) {
        row_at(p.comb, first + lane, p.streams * p.streams)[n] = coefficient(2 * p.streams + n);
      }
    }
  }
}

// --- collapse, expand, mean ---------------------------------------------------------------------------------------

void collapse_norm(const CollapseNormParams& p, Range rows, Scratch& scratch) {
  float* x = scratch.take<float>(p.hidden);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const bf16* h = row_at(p.h, r * p.streams, p.hidden);
    const float* pre = row_at(p.pre, r, p.streams);
    for (std::int32_t c = 0; c < p.hidden; c += kDoubles) {
      VD sum = hn::Zero(DD());
      for (std::int32_t s = 0; s < p.streams; ++s) {
        sum = add_product(hn::Set(DD(), static_cast<double>(pre[s])), load_double(row_at(h, s, p.hidden) + c), sum);
      }
      store(sum, x + c);
    }
    for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
      store(round_to_bf16(load(x + c)), x + c);
    }
    if (p.x != nullptr) {
      store_values(x, p.hidden, row_at(p.x, r, p.hidden));
    }
    rms_norm_values(x, p.weight, p.hidden, p.norm_eps, x);
    store_values(x, p.hidden, row_at(p.y, r, p.hidden));
    if (p.q8.codes != nullptr) {
      quantise_q8_row(x, p.hidden, row_at(p.q8.codes, r, p.hidden), row_at(p.q8.scales, r, p.hidden / kQ8Group));
    }
  }
}

/// One row; `old` holds the streams before, `sums` one stream. kStreams 0: any number.
template <std::int32_t kStreams>
HWY_INLINE void expand_row(const ExpandParams& p, std::int64_t r, const bf16* old, float* sums) {
  const std::int32_t streams = kStreams > 0 ? kStreams : p.streams;
  const float* comb = row_at(p.comb, r, streams * streams);
  const float* post = row_at(p.post, r, streams);
  const bf16* y = row_at(p.y, r, p.hidden);
  for (std::int32_t k = 0; k < streams; ++k) {
    for (std::int32_t c = 0; c < p.hidden; c += kDoubles) {
      VD sum = hn::Mul(hn::Set(DD(), static_cast<double>(post[k])), load_double(y + c));
      for (std::int32_t j = 0; j < streams; ++j) {
        sum = add_product(hn::Set(DD(), static_cast<double>(comb[j * streams + k])), load_double(row_at(old, j, p.hidden) + c), sum);
      }
      store(sum, sums + c);
    }
    bf16* h = row_at(p.h, r * streams + k, p.hidden);
    for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
      store(load(sums + c), h + c);
    }
  }
}

void expand(const ExpandParams& p, Range rows, Scratch& scratch) {
  const std::int64_t width = static_cast<std::int64_t>(p.streams) * p.hidden;
  bf16* old = scratch.take<bf16>(width);
  float* sums = scratch.take<float>(p.hidden);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    std::copy_n(row_at(p.h, r, width), width, old);
    if (p.streams == 4) {
      expand_row<4>(p, r, old, sums);
    } else {
      expand_row<0>(p, r, old, sums);
    }
  }
}

void mean_streams(const MeanStreamsParams& p, Range rows, Scratch&) {
  const VF count = hn::Set(DF(), static_cast<float>(p.streams));
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const bf16* h = row_at(p.h, r * p.streams, p.hidden);
    for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
      VF sum = load(h + c);
      for (std::int32_t s = 1; s < p.streams; ++s) {
        sum = hn::Add(sum, load(row_at(h, s, p.hidden) + c));
      }
      store(hn::Div(sum, count), row_at(p.y, r, p.y_stride) + c);
    }
  }
}

// --- Engram gate --------------------------------------------------------------------------------------------------

inline constexpr float kGateFloor = 1e-6F;  // docs/spec/model.md 5.6.4

/// The dot product of one stream and its key, normalised, then signed root: the argument of the sigmoid.
HWY_INLINE float gate_argument(const EngramGateParams& p, const bf16* h, const bf16* key, std::int32_t stream) {
  const bf16* q_weight = row_at(p.q_weight, stream, p.hidden);
  const bf16* k_weight = row_at(p.k_weight, stream, p.hidden);
  F16 dot = zero16();
  for (std::int32_t c = 0; c < p.hidden; c += kVirtualLanes) {
    const F16 a = load16(h + c);
    const F16 b = load16(key + c);
    const F16 q = load16(q_weight + c);
    const F16 k = load16(k_weight + c);
    HWY_UNROLL(16)
    for (std::int32_t i = 0; i < kParts; ++i) {
      const VF weighted = hn::Mul(a.part[i], hn::Mul(q.part[i], k.part[i]));  // both products are exact
      dot.part[i] = fma(weighted, b.part[i], dot.part[i]);
    }
  }
  const float norms =
      inverse_rms(sum_of_squares(h, p.hidden), p.hidden, p.norm_eps) * inverse_rms(sum_of_squares(key, p.hidden), p.hidden, p.norm_eps);
  const float value = sum_lanes(dot) * norms / std::sqrt(static_cast<float>(p.hidden));
  const float magnitude = std::fabs(value) < kGateFloor ? kGateFloor : std::fabs(value);
  return std::copysign(std::sqrt(magnitude), value);
}

void engram_gate(const EngramGateParams& p, Range rows, Scratch& scratch) {
  const std::int32_t padded = (p.streams + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  float* gate = scratch.take<float>(padded);
  std::fill_n(gate, padded, 0.0F);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    if (p.is_image != nullptr && p.is_image[r] != 0) {
      continue;
    }
    const bf16* keys = row_at(p.kv, r * (p.streams + 1), p.hidden);
    const bf16* value = row_at(keys, p.streams, p.hidden);
    bf16* h = row_at(p.h, r * p.streams, p.hidden);
    for (std::int32_t s = 0; s < p.streams; ++s) {
      gate[s] = gate_argument(p, row_at(h, s, p.hidden), row_at(keys, s, p.hidden), s);
    }
    for (std::int32_t s = 0; s < padded; s += kLanes) {
      store(sigmoid(load(gate + s)), gate + s);
    }
    for (std::int32_t s = 0; s < p.streams; ++s) {
      bf16* stream = row_at(h, s, p.hidden);
      for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
        store(fma(hn::Set(DF(), gate[s]), load(value + c), load(stream + c)), stream + c);
      }
    }
  }
}

StreamKernels make_stream_kernels() { return {mix, collapse_norm, expand, mean_streams, engram_gate}; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_stream_kernels);
StreamKernels stream_kernels() { return HWY_DYNAMIC_DISPATCH(make_stream_kernels)(); }
}  // namespace deepinfer::cpu
#endif
