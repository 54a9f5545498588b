// Products of Q8 rows with quantised weights: y[row, column] = sum over k of x[row, k] w[column, k], added in the order of units-inl.h by
// each way of computing them, so that a row's result does not depend on its company. Here: which way is taken.
#if defined(DEEPINFER_CPU_FAST_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_QUANTISED_INL_H_
#undef DEEPINFER_CPU_FAST_QUANTISED_INL_H_
#else
#define DEEPINFER_CPU_FAST_QUANTISED_INL_H_
#endif

#include "backends/cpu/fast/few_units-inl.h"
#include "backends/cpu/fast/many_units-inl.h"
#include "backends/cpu/fast/matrix_products-inl.h"
#include "backends/cpu/fast/pair_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
/// Up to here every tile of rows decodes codes for itself: measured.
inline constexpr std::int32_t kMostTiledRows = 24;

/// False when the operands cannot go to units that take small numbers for zero: nothing is done.
template <ProductUnit kProductUnit, class Units, class T>
inline bool multiply_on_unit(Activations& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  if (Units::kFormat == WeightFormat::fp8 && columns.begin % kUnit != 0) {
    return false;  // columns of a unit have two scales
  }
  if (kProductUnit == ProductUnit::matrix && x.rows() > pairs::kMostRowsBesideMatrix) {
    static_cast<void>(x.tiles());
    const bool is_exact_here = is_exact(x.range(), scale_range(weights.weight(), x.k(), columns));
    if (is_exact_here) {
      multiply_matrix(x, weights, columns, y, scratch);
    }
    return is_exact_here;
  }
  const bool are_few = x.rows() <= kMostTiledRows;
  const pairs::Rows rows = x.pair_rows(pairs::tiling(x.rows(), are_few ? pairs::kFewTileRows : pairs::kPanelTileRows));
  if (!are_few && is_exact(x.range(), scale_range(weights.weight(), x.k(), columns))) {
    multiply_quantised_panels(rows, weights, columns, y, scratch);
    return true;
  }
  const bool is_exact_here = is_exact(x.range(), kUnscaled);
  if (is_exact_here) {
    multiply_quantised_tiles(rows, weights, columns, y, scratch);
  }
  return is_exact_here;
}
#endif

/// Whether products of some rows ask for QuantFactor::next_codes, unit by unit.
template <ProductUnit kProductUnit>
[[nodiscard]] constexpr bool fetches_next([[maybe_unused]] std::int32_t rows) {
#if HWY_TARGET == HWY_AVX3
  return kProductUnit != ProductUnit::vector && rows > 1 &&
         rows <= (kProductUnit == ProductUnit::matrix ? pairs::kMostRowsBesideMatrix : kMostTiledRows);
#else
  return false;
#endif
}

template <ProductUnit kProductUnit, class T>
inline void multiply_quantised(Activations& x, const QuantFactor& factor, Range columns, Output<T> y, Scratch& scratch) {
  const auto multiply = [&]<class Units>(const Units& weights) HWY_ATTR {
#if HWY_TARGET == HWY_AVX3
    if constexpr (kProductUnit != ProductUnit::vector) {
      if (multiply_on_unit<kProductUnit>(x, weights, columns, y, scratch)) {
        return;
      }
    }
#endif
    const Operand values = x.floats();
    if (values.rows <= kFewUnitRows<Units>) {
      multiply_few_units(values, weights, columns, y);
    } else {
      multiply_many_units(values, weights, columns, y, scratch);
    }
  };
  factor.weight.format == WeightFormat::fp8 ? multiply(Fp8Units(factor, x.k())) : multiply(Fp4Units(factor, x.k()));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
