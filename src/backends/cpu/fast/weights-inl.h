// bf16 weights as operands of gemm-inl.h: rows decoded to pair order. Not here: quantised weights (quantised-inl.h).
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

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
