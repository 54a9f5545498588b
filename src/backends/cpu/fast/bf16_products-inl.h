// Products of bf16 rows with bf16 weights: y[row, column] = sum over k of x[row, k] w[column, k], added in the order of units-inl.h by each
// way of computing them, so that a row's result does not depend on its company. Units that multiply bf16 take the columns whose values cannot
// give numbers below 2^-126; the others, and columns that do not fill a unit, go where quantised weights go without such units.
#if defined(DEEPINFER_CPU_FAST_BF16_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_BF16_PRODUCTS_INL_H_
#undef DEEPINFER_CPU_FAST_BF16_PRODUCTS_INL_H_
#else
#define DEEPINFER_CPU_FAST_BF16_PRODUCTS_INL_H_
#endif

#include "backends/cpu/fast/bf16_units-inl.h"
#include "backends/cpu/fast/few_units-inl.h"
#include "backends/cpu/fast/many_units-inl.h"
#include "backends/cpu/fast/pair_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

template <>
inline constexpr std::int32_t kFewUnitRows<Bf16Units> = kLanes == 16 ? 6 : 4;

/// On the vector units of any instruction set.
template <class T>
inline void multiply_bf16_units(Bf16Activations& x, const Bf16Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  if (x.rows() <= kFewUnitRows<Bf16Units>) {
    multiply_few_units(x.floats(), weights, columns, y);
  } else {
    multiply_many_units(x.floats(), weights, columns, y, scratch);
  }
}

#if HWY_TARGET == HWY_AVX3

/// Sixteen columns, of which `begin` is the first.
HWY_INLINE bf16_columns::Columns unit_columns(const Bf16Units& weights, std::int32_t begin) {
  return {reinterpret_cast<const std::uint16_t*>(weights.column(begin)), weights.k(), weights.k()};
}

/// Sums [rows, stride] of some columns to y when the least exponent of their weights says that they are right; else they are formed anew.
struct UnitSums {
  const float* data;
  std::int64_t stride;
  std::int32_t exponent;
};
template <class T>
HWY_INLINE void finish_bf16(Bf16Activations& x, const Bf16Units& weights, Range columns, const UnitSums& sums, Output<T> y, Scratch& scratch) {
  if (bf16_columns::is_exact(x.least_exponent(), sums.exponent)) {
    put_sums(sums.data, sums.stride, x.rows(), columns.size(), y);
  } else {
    multiply_bf16_units(x, weights, columns, y, scratch);
  }
}

/// Units by pairs of bf16, few rows.
template <class T>
HWY_NOINLINE void multiply_few_bf16(Bf16Activations& x, const Bf16Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const pairs::Rows words = x.pair_rows(pairs::tiling(x.rows(), pairs::kFewTileRows));
  HWY_ALIGN float sums[pairs::kFewTileRows * kUnit];
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    std::int32_t exponent = 0;
    if (weights.is_placed()) {
      const PlacedBf16& placed = weights.placed();
      exponent = placed.exponents[c / kUnit];
      bf16_columns::multiply_few(words, placed.block(c, 0), placed.num_blocks, sums);
    } else {
      exponent = bf16_columns::multiply_few(words, unit_columns(weights, c), sums);
    }
    const Range own = {c, std::min(c + kUnit, columns.end)};
    finish_bf16(x, weights, own, {sums, kUnit, exponent}, Output<T>{y.at(0, c - columns.begin), y.stride}, scratch);
  }
}

/// A weight in units by pairs of bf16: panels are read where they lie.
template <class T>
HWY_NOINLINE void multiply_placed_bf16(Bf16Activations& x, const Bf16Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const PlacedBf16& placed = weights.placed();
  const pairs::Rows words = x.pair_rows(pairs::tiling(x.rows(), pairs::kPanelTileRows));
  // Where there is none, the first again: sums that are not used.
  const auto second_unit = [&](std::int32_t column) { return column + kUnit < columns.end ? column + kUnit : column; };
  const auto units_of = [&](PanelPlace panel) {
    return std::array{placed.block(panel.column, panel.block), placed.block(second_unit(panel.column), panel.block)};
  };
  const auto work = [&](PanelPlace panel, PanelPlace next, float* sums) {
    const std::int32_t count = std::min(pairs::kPanelBlocks, placed.num_blocks - panel.block);
    pairs::multiply_panel(words, {panel.index(), count}, {units_of(panel), units_of(next)}, sums);
  };
  multiply_panels(x.rows(), placed.num_blocks, columns, scratch, work, [&](Range strip, const float* sums) {
    const std::int32_t exponent = std::min(placed.exponents[strip.begin / kUnit], placed.exponents[second_unit(strip.begin) / kUnit]);
    finish_bf16(x, weights, strip, {sums, pairs::kPanelColumns, exponent}, Output<T>{y.at(0, strip.begin - columns.begin), y.stride},
                scratch);
  });
}

/// Whole units by pairs of bf16.
template <class T>
HWY_NOINLINE void multiply_many_bf16(Bf16Activations& x, const Bf16Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const pairs::Rows words = x.pair_rows(pairs::tiling(x.rows(), pairs::kPanelTileRows));
  auto* exponents = scratch.take<std::int32_t>(columns.size() / pairs::kPanelColumns + 1);
  const auto exponent_of = [&](std::int32_t column) -> std::int32_t& { return exponents[(column - columns.begin) / pairs::kPanelColumns]; };
  std::fill_n(exponents, columns.size() / pairs::kPanelColumns + 1, bf16_columns::kNoExponent);
  auto* panel_words = scratch.take<std::uint32_t>(pairs::kPanelWords);
  const auto work = [&](PanelPlace panel, PanelPlace next, float* sums) {
    const bf16_columns::Columns first = unit_columns(weights, panel.column);
    const bool is_whole = panel.column + kUnit < columns.end;  // else the first unit again: sums that are not used
    const auto* after = reinterpret_cast<const std::uint16_t*>(weights.column(next.column)) + next.block * kUnitDepth;
    const bf16_columns::PanelColumns own = {{first, is_whole ? unit_columns(weights, panel.column + kUnit) : first}, after};
    const std::int32_t count = std::min(pairs::kPanelBlocks, num_blocks - panel.block);
    exponent_of(panel.column) =
        std::min(exponent_of(panel.column), bf16_columns::multiply_panel(words, {panel.index(), count}, own, panel_words, sums));
  };
  multiply_panels(x.rows(), num_blocks, columns, scratch, work, [&](Range strip, const float* sums) {
    const Output<T> own = {y.at(0, strip.begin - columns.begin), y.stride};
    finish_bf16(x, weights, strip, {sums, pairs::kPanelColumns, exponent_of(strip.begin)}, own, scratch);
  });
}

/// Blocks of sixteen columns as tiles of the matrix unit.
HWY_INLINE std::int32_t fill_unit_tiles(const Bf16Units& weights, std::int32_t column, bf16_columns::Blocks blocks, std::uint16_t* tiles) {
  if (!weights.is_placed()) {
    return bf16_columns::fill_tiles(unit_columns(weights, column), blocks, tiles);
  }
  bf16_columns::fill_tiles(weights.placed().block(column, blocks.first), blocks.count, tiles);
  return weights.placed().exponents[column / kUnit];
}

/// Units on the matrix unit.
template <class T>
HWY_NOINLINE void multiply_matrix_bf16(Bf16Activations& x, const Bf16Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  constexpr std::int32_t kTiles = 32;  // of a panel: 32 KB, in the first cache
  const amx::Tiling tiling = amx::tiling(x.rows());
  const std::int32_t most_units = tiling.count == 1 ? amx::kMostUnits : amx::kMostUnits / 2;  // few rows: more sums that do not wait
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const std::int32_t panel_blocks = kTiles / most_units;
  const std::uint16_t* rows = x.tiles();
  auto* tiles = scratch.take<std::uint16_t>(std::int64_t{kTiles} * amx::kTileBytes / 2);
  float* sums = scratch.take<float>(std::int64_t{tiling.padded()} * kUnit * most_units);
  amx::configure(tiling);
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit * most_units) {
    const Range strip = {c, std::min(c + kUnit * most_units, columns.end)};
    const std::int32_t units = (strip.size() + kUnit - 1) / kUnit;
    std::int32_t exponent = bf16_columns::kNoExponent;
    for (std::int32_t block = 0; block < num_blocks; block += panel_blocks) {
      const bf16_columns::Blocks blocks = {block, std::min(panel_blocks, num_blocks - block)};
      for (std::int32_t unit = 0; unit < units; ++unit) {
        std::uint16_t* out = tiles + static_cast<std::int64_t>(unit) * blocks.count * (amx::kTileBytes / 2);
        exponent = std::min(exponent, fill_unit_tiles(weights, c + unit * kUnit, blocks, out));
      }
      amx::multiply(tiling, {rows, num_blocks, block}, {tiles, units, blocks.count}, {sums, block == 0});
    }
    finish_bf16(x, weights, strip, {sums, std::int64_t{kUnit} * units, exponent}, Output<T>{y.at(0, c - columns.begin), y.stride}, scratch);
  }
  amx::release();
}

#endif

/// y = x . w^T.
template <ProductUnit kProductUnit, class T>
inline void multiply_bf16(Bf16Activations& x, const Bf16Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  std::int32_t begin = columns.begin;
#if HWY_TARGET == HWY_AVX3
  if constexpr (kProductUnit != ProductUnit::vector) {
    const Range whole = {columns.begin, columns.end - (weights.is_placed() ? 0 : columns.size() % kUnit)};
    begin = whole.end;
    if (x.rows() <= (kProductUnit == ProductUnit::matrix ? pairs::kMostRowsBesideMatrix : pairs::kFewTileRows)) {
      multiply_few_bf16(x, weights, whole, y, scratch);
    } else if (kProductUnit == ProductUnit::matrix) {
      multiply_matrix_bf16(x, weights, whole, y, scratch);
    } else if (weights.is_placed()) {
      multiply_placed_bf16(x, weights, whole, y, scratch);
    } else {
      multiply_many_bf16(x, weights, whole, y, scratch);
    }
  }
#endif
  if (begin < columns.end) {
    multiply_bf16_units(x, weights, {begin, columns.end}, Output<T>{y.at(0, begin - columns.begin), y.stride}, scratch);
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
