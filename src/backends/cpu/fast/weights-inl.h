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

/// Starts of the rows of a unit, `stride` elements apart; rows beyond the range repeat the first one.
template <class T>
HWY_INLINE UnitRows<T> unit_rows(const T* first, std::int64_t stride, std::int32_t count) {
  UnitRows<T> out;
  for (std::int32_t row = 0; row < kUnitRows; ++row) {
    out.at[row] = first + (row < count ? row : 0) * stride;
  }
  return out;
}

/// Calls write(place, values) with the values times one factor per row.
template <class Write>
HWY_INLINE auto scaled(const F16& factor, const Write& write) {
  return [&factor, &write](std::int32_t place, F16 values) HWY_ATTR {
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      values.part[part] = hn::Mul(values.part[part], factor.part[part]);
    }
    write(place, values);
  };
}

/// One number per row of a unit.
template <class Value>
HWY_INLINE F16 unit_values(std::int32_t count, const Value& value) {
  HWY_ALIGN float out[kUnitRows];
  for (std::int32_t row = 0; row < kUnitRows; ++row) {
    out[row] = value(row < count ? row : 0);
  }
  return load16(out);
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
  /// 32 values of at most sixteen rows from k on, with the scale.
  template <class Write>
  HWY_INLINE void columns(Range rows, std::int32_t k, const Write& write) const {
    const F16 factor = unit_values(rows.size(), [&](std::int32_t row) { return scale(rows.begin + row, k) * kHalfFactor; });
    e4m3_columns(unit_rows(codes_ + static_cast<std::int64_t>(rows.begin) * k_ + k, k_, rows.size()), scaled(factor, write));
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
  template <class Write>
  HWY_INLINE void columns(Range rows, std::int32_t k, const Write& write) const {
    const std::int64_t first = static_cast<std::int64_t>(rows.begin) * k_ + k;
    const std::uint8_t* scales = scales_ + first / kWeightBlock;
    const F16 factor = unit_values(rows.size(), [&](std::int32_t row) { return ue8m0_to_float(scales[row * (k_ / kWeightBlock)]); });
    e2m1_columns(unit_rows(codes_ + first / 2, k_ / 2, rows.size()), scaled(factor, write));
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
  template <class Write>
  HWY_INLINE void columns(Range rows, std::int32_t k, const Write& write) const {
    const UnitRows<bf16> unit = unit_rows(data_ + static_cast<std::int64_t>(rows.begin) * k_ + k, k_, rows.size());
    if (k + kPairGroup <= k_) {
      bf16_columns(unit, write);
      return;
    }
    bf16 padded[kUnitRows * kPairGroup] = {};
    for (std::int32_t row = 0; row < kUnitRows; ++row) {
      std::copy_n(unit.at[row], k_ - k, padded + row * kPairGroup);
    }
    bf16_columns(unit_rows(padded, kPairGroup, kUnitRows), write);
  }

 private:
  const bf16* data_;
  std::int32_t k_;
};

[[nodiscard]] constexpr std::int32_t padded_width(std::int32_t k) { return (k + kPairGroup - 1) / kPairGroup * kPairGroup; }

/// y = x . w^T for bf16 weights, x in pair order with k padded.
template <class T>
inline void multiply_bf16(const Operand& x, const Bf16Weights& weights, Range columns, Output<T> y, Scratch& scratch) {
  if (x.rows <= kFewRows) {
    multiply_few(x, weights, columns, y);
  } else {
    multiply_many(x, weights, columns, y, scratch);
  }
}

/// Few rows of FP8: the scale of a 32 x 32 block goes to the activations, once for its 32 columns.
template <class T>
inline void multiply_fp8_few(const Operand& x, const Fp8Weights& weights, Range columns, Output<T> y, Scratch& scratch) {
  float* scaled = scratch.take<float>(static_cast<std::int64_t>(x.rows) * x.k);
  for (std::int32_t c = columns.begin; c < columns.end;) {
    const std::int32_t end = std::min(columns.end, (c / kWeightBlock + 1) * kWeightBlock);
    for (std::int32_t row = 0; row < x.rows; ++row) {
      for (std::int32_t k = 0; k < x.k; k += kPairGroup) {
        const Pairs v = {load16(x.at(row) + k), load16(x.at(row) + k + kVirtualLanes)};
        store_pairs(scale_pairs(v, weights.scale(c, k) * kHalfFactor), scaled + static_cast<std::int64_t>(row) * x.k + k);
      }
    }
    multiply_few({scaled, x.k, x.rows, x.k}, weights, {c, end}, Output<T>{y.at(0, c - columns.begin), y.stride});
    c = end;
  }
}

/// y = x . w^T for quantised weights, x in pair order.
template <class T>
inline void multiply_quantised(const Operand& x, const QuantWeight& weight, Range columns, Output<T> y, Scratch& scratch) {
  if (weight.format == WeightFormat::fp8) {
    const Fp8Weights weights(weight, x.k);
    if (x.rows <= kFewRows) {
      multiply_fp8_few(x, weights, columns, y, scratch);
    } else {
      multiply_many(x, weights, columns, y, scratch);
    }
  } else {
    const Fp4Weights weights(weight, x.k);
    if (x.rows <= kFewRows) {
      multiply_few(x, weights, columns, y);
    } else {
      multiply_many(x, weights, columns, y, scratch);
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
