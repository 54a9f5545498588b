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

// --- collapse, expand, mean ---------------------------------------------------------------------------------------

/// x = bf16(sum of pre[i] h[i]) as floats. kStreams 0: any number.
template <std::int32_t kStreams>
HWY_INLINE void collapse_row(const CollapseNormParams& p, std::int64_t r, float* x) {
  const std::int32_t streams = kStreams > 0 ? kStreams : p.streams;
  const bf16* h = row_at(p.h, r * streams, p.hidden);
  const float* pre = row_at(p.pre, r, streams);
  VD factors[kStreams > 0 ? kStreams : 1];
  for (std::int32_t s = 0; s < kStreams; ++s) {
    factors[s] = hn::Set(DD(), static_cast<double>(pre[s]));
  }
  for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
    DoubleLanes sum;
    HWY_UNROLL(2)
    for (std::int32_t half = 0; half < DoubleLanes::kHalves; ++half) {
      sum.half[half] = hn::Zero(DD());
      HWY_UNROLL(4)
      for (std::int32_t s = 0; s < streams; ++s) {
        const VD factor = kStreams > 0 ? factors[kStreams > 0 ? s : 0] : hn::Set(DD(), static_cast<double>(pre[s]));
        sum.half[half] = add_product(factor, load_double(row_at(h, s, p.hidden) + c + half * kDoubles), sum.half[half]);
      }
    }
    store(round_to_bf16(to_floats(sum)), x + c);
  }
}

void collapse_norm(const CollapseNormParams& p, Range rows, Scratch& scratch) {
  float* x = scratch.take<float>(p.hidden);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    if (p.streams == 4) {
      collapse_row<4>(p, r, x);
    } else {
      collapse_row<0>(p, r, x);
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

/// One row with four streams, in place: all streams of some columns are read before the first of them is written.
/// factors: [4, 5, kDoubles], post and then comb of each new stream.
HWY_INLINE void expand_four(const bf16* y, bf16* h, std::int32_t hidden, const double* factors) {
  for (std::int32_t c = 0; c < hidden; c += kLanes) {
    DoubleLanes in[5];
    HWY_UNROLL(2)
    for (std::int32_t half = 0; half < DoubleLanes::kHalves; ++half) {
      const std::int32_t at = c + half * kDoubles;
      in[0].half[half] = load_double(y + at);
      HWY_UNROLL(4)
      for (std::int32_t j = 0; j < 4; ++j) {
        in[j + 1].half[half] = load_double(row_at(h, j, hidden) + at);
      }
    }
    HWY_UNROLL(4)
    for (std::int32_t k = 0; k < 4; ++k) {
      const double* own = factors + k * 5 * kDoubles;
      DoubleLanes sum;
      HWY_UNROLL(2)
      for (std::int32_t half = 0; half < DoubleLanes::kHalves; ++half) {
        sum.half[half] = hn::Mul(load_double(own), in[0].half[half]);
        HWY_UNROLL(4)
        for (std::int32_t j = 1; j < 5; ++j) {
          sum.half[half] = add_product(load_double(own + j * kDoubles), in[j].half[half], sum.half[half]);
        }
      }
      store(to_floats(sum), row_at(h, k, hidden) + c);
    }
  }
}

/// One row with any number of streams; `old` is room for all of them.
HWY_INLINE void expand_any(const ExpandParams& p, std::int64_t r, bf16* old) {
  const float* comb = row_at(p.comb, r, p.streams * p.streams);
  const float* post = row_at(p.post, r, p.streams);
  const bf16* y = row_at(p.y, r, p.hidden);
  std::copy_n(row_at(p.h, r * p.streams, p.hidden), static_cast<std::int64_t>(p.streams) * p.hidden, old);
  for (std::int32_t k = 0; k < p.streams; ++k) {
    bf16* h = row_at(p.h, r * p.streams + k, p.hidden);
    for (std::int32_t c = 0; c < p.hidden; c += kLanes) {
      DoubleLanes sum;
      for (std::int32_t half = 0; half < DoubleLanes::kHalves; ++half) {
        const std::int32_t at = c + half * kDoubles;
        sum.half[half] = hn::Mul(hn::Set(DD(), static_cast<double>(post[k])), load_double(y + at));
        for (std::int32_t j = 0; j < p.streams; ++j) {
          const VD factor = hn::Set(DD(), static_cast<double>(comb[j * p.streams + k]));
          sum.half[half] = add_product(factor, load_double(row_at(old, j, p.hidden) + at), sum.half[half]);
        }
      }
      store(to_floats(sum), h + c);
    }
  }
}

void expand(const ExpandParams& p, Range rows, Scratch& scratch) {
  HWY_ALIGN double factors[4 * 5 * kDoubles];
  bf16* old = scratch.take<bf16>(static_cast<std::int64_t>(p.streams) * p.hidden);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    if (p.streams != 4) {
      expand_any(p, r, old);
      continue;
    }
    for (std::int32_t k = 0; k < 4; ++k) {
      double* own = factors + k * 5 * kDoubles;
      store(hn::Set(DD(), static_cast<double>(row_at(p.post, r, 4)[k])), own);
      for (std::int32_t j = 0; j < 4; ++j) {
        store(hn::Set(DD(), static_cast<double>(row_at(p.comb, r, 16)[j * 4 + k])), own + (j + 1) * kDoubles);
      }
    }
    expand_four(row_at(p.y, r, p.hidden), row_at(p.h, r * 4, p.hidden), p.hidden, factors);
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

StreamKernels make_stream_kernels() { return {collapse_norm, expand, mean_streams, engram_gate}; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_stream_kernels);
StreamKernels stream_kernels() { return HWY_DYNAMIC_DISPATCH(make_stream_kernels)(); }
}  // namespace deepinfer::cpu
#endif
