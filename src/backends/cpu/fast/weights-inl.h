// Packed weights as operands of gemm-inl.h: FP8, FP4 and bf16 rows decoded to pair order. Scales are powers of two, so it does not
// matter to which factor they are applied. Weight codes hold no NaN; scales stay where products are normal numbers (below 2^119).
#if defined(DEEPINFER_CPU_FAST_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_WEIGHTS_INL_H_
#undef DEEPINFER_CPU_FAST_WEIGHTS_INL_H_
#else
#define DEEPINFER_CPU_FAST_WEIGHTS_INL_H_
#endif

#include "backends/cpu/fast/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kPairGroup = 2 * kVirtualLanes;

/// Fills a panel from decode(column, k), which gives 32 values; columns beyond the range are zero.
template <class Decode>
HWY_INLINE Panel fill_panel(Range columns, std::int32_t padded, Range depth, float* buffer, const Decode& decode) {
  for (std::int32_t c = 0; c < padded; ++c) {
    float* row = buffer + static_cast<std::int64_t>(c) * depth.size();
    if (c >= columns.size()) {
      std::fill_n(row, depth.size(), 0.0F);
      continue;
    }
    for (std::int32_t k = depth.begin; k < depth.end; k += kPairGroup) {
      store_pairs(decode(columns.begin + c, k), row + (k - depth.begin));
    }
  }
  return {buffer, depth.size(), padded, depth.size()};
}

/// Rows of an FP8 weight, one scale per 32 x 32 block.
class Fp8Weights {
 public:
  Fp8Weights(const QuantWeight& weight, std::int32_t k) : codes_(weight.codes), scales_(weight.scales), k_(k) {}

  [[nodiscard]] HWY_INLINE float scale(std::int32_t row, std::int32_t k) const {
    return ue8m0_to_float(scales_[static_cast<std::int64_t>(row / kWeightBlock) * (k_ / kWeightBlock) + k / kWeightBlock]);
  }
  /// Without the scale and times 2^-8.
  [[nodiscard]] HWY_INLINE Pairs pairs(std::int32_t row, std::int32_t k) const {
    return e4m3_pairs(codes_ + static_cast<std::int64_t>(row) * k_ + k);
  }
  [[nodiscard]] HWY_INLINE Panel panel(Range rows, std::int32_t padded, Range depth, float* buffer) const {
    return fill_panel(rows, padded, depth, buffer,
                      [&](std::int32_t row, std::int32_t k) HWY_ATTR { return scale_pairs(pairs(row, k), scale(row, k) * kHalfFactor); });
  }

 private:
  const std::uint8_t* codes_;
  const std::uint8_t* scales_;
  std::int32_t k_;
};

/// Rows of an FP4 weight, one scale per 32 columns of a row.
class Fp4Weights {
 public:
  Fp4Weights(const QuantWeight& weight, std::int32_t k) : codes_(weight.codes), scales_(weight.scales), k_(k) {}

  [[nodiscard]] HWY_INLINE Pairs pairs(std::int32_t row, std::int32_t k) const {
    const std::int64_t first = static_cast<std::int64_t>(row) * k_ + k;
    return scale_pairs(e2m1_pairs(codes_ + first / 2), ue8m0_to_float(scales_[first / kWeightBlock]));
  }
  [[nodiscard]] HWY_INLINE Panel panel(Range rows, std::int32_t padded, Range depth, float* buffer) const {
    return fill_panel(rows, padded, depth, buffer, [&](std::int32_t row, std::int32_t k) HWY_ATTR { return pairs(row, k); });
  }

 private:
  const std::uint8_t* codes_;
  const std::uint8_t* scales_;
  std::int32_t k_;
};

/// 32 bf16 values from `p`, of which only `count` exist; the rest is zero.
HWY_INLINE Pairs bf16_pairs_tail(const bf16* p, std::int32_t count) {
  bf16 values[kPairGroup] = {};
  std::copy_n(p, count, values);
  return bf16_pairs(values);
}

HWY_INLINE Pairs bf16_pairs_within(const bf16* row, std::int32_t k, std::int32_t width) {
  return k + kPairGroup <= width ? bf16_pairs(row + k) : bf16_pairs_tail(row + k, width - k);
}

/// Rows of a bf16 weight of any width; sums run over the width padded with zeros to a multiple of 32.
class Bf16Weights {
 public:
  Bf16Weights(const bf16* data, std::int32_t k) : data_(data), k_(k) {}

  [[nodiscard]] HWY_INLINE Pairs pairs(std::int32_t row, std::int32_t k) const {
    return bf16_pairs_within(data_ + static_cast<std::int64_t>(row) * k_, k, k_);
  }
  [[nodiscard]] HWY_INLINE Panel panel(Range rows, std::int32_t padded, Range depth, float* buffer) const {
    return fill_panel(rows, padded, depth, buffer, [&](std::int32_t row, std::int32_t k) HWY_ATTR { return pairs(row, k); });
  }

 private:
  const bf16* data_;
  std::int32_t k_;
};

[[nodiscard]] constexpr std::int32_t padded_width(std::int32_t k) { return (k + kPairGroup - 1) / kPairGroup * kPairGroup; }

/// y = x . w^T for bf16 weights, x in pair order with k padded. y has room for the columns only.
inline void multiply_bf16(const Operand& x, const Bf16Weights& weights, Range columns, Output y, Scratch& scratch) {
  if (x.rows <= kFewRows) {
    multiply_few(x, weights, columns, y);
  } else {
    multiply_many<Products::exact>(x, weights, columns, y, scratch);
  }
}

/// Few rows of FP8: the scale of a 32 x 32 block goes to the activations, once for its 32 columns.
inline void multiply_fp8_few(const Operand& x, const Fp8Weights& weights, Range columns, Output y, Scratch& scratch) {
  float* scaled = scratch.take<float>(static_cast<std::int64_t>(x.rows) * x.k);
  for (std::int32_t c = columns.begin; c < columns.end;) {
    const std::int32_t end = std::min(columns.end, (c / kWeightBlock + 1) * kWeightBlock);
    for (std::int32_t row = 0; row < x.rows; ++row) {
      for (std::int32_t k = 0; k < x.k; k += kPairGroup) {
        const Pairs v = {load16(x.at(row) + k), load16(x.at(row) + k + kVirtualLanes)};
        store_pairs(scale_pairs(v, weights.scale(c, k) * kHalfFactor), scaled + static_cast<std::int64_t>(row) * x.k + k);
      }
    }
    multiply_few({scaled, x.k, x.rows, x.k}, weights, {c, end}, {y.at(0, c - columns.begin), y.stride});
    c = end;
  }
}

/// y = x . w^T for quantised weights, x in pair order. At most kRowBlock rows; y has room for the columns only.
inline void multiply_quantised(const Operand& x, const QuantWeight& weight, Range columns, Output y, Scratch& scratch) {
  if (weight.format == WeightFormat::fp8) {
    const Fp8Weights weights(weight, x.k);
    if (x.rows <= kFewRows) {
      multiply_fp8_few(x, weights, columns, y, scratch);
    } else {
      multiply_many<Products::exact>(x, weights, columns, y, scratch);
    }
  } else {
    const Fp4Weights weights(weight, x.k);
    if (x.rows <= kFewRows) {
      multiply_few(x, weights, columns, y);
    } else {
      multiply_many<Products::exact>(x, weights, columns, y, scratch);
    }
  }
}

/// Stores fp32 results as bf16; any count.
inline void store_row_bf16(const float* values, std::int32_t count, bf16* out) {
  std::int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(load(values + i), out + i);
  }
  for (; i < count; ++i) {
    out[i] = to_bf16(values[i]);
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
