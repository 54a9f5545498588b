// Rows times quantised weights with the instruction for pairs of bf16 (pairs.h): few rows decode and multiply in one pass, many share a panel.
#if defined(DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#undef DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#else
#define DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#endif

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

template <class Units, class T>
HWY_NOINLINE void multiply_few_pairs(Activations& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const bool is_packed = weights.layout() == WeightLayout::units;
  auto* packed = scratch.take<std::uint8_t>(is_packed ? 0 : packed_bytes(Units::kFormat, num_blocks));
  HWY_ALIGN float sums[pairs::kFewRows * kUnit];
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    const Range own = {c, std::min(c + kUnit, columns.end)};
    pairs::multiply_few(x.pair_words(), unit_blocks(weights, own, {0, num_blocks}, packed), sums);
    put_sums(sums, kUnit, x.rows(), own.size(), Output<T>{y.at(0, c - columns.begin), y.stride});
  }
}

inline constexpr std::int32_t kPanelBlocks = 8;  ///< 16 KB of words: half of the first cache

/// Codes of the panel after the one of columns from `column` on that ends before `block`: below it or, at the end, beside it.
template <class Units>
HWY_INLINE pairs::Ahead next_panel(const Units& weights, std::int32_t column, std::int32_t block) {
  if (weights.layout() != WeightLayout::units) {
    return {};
  }
  constexpr std::int32_t kBytes = block_bytes(Units::kFormat);
  const std::int64_t unit_bytes = weights.row_bytes() * kUnit;
  const std::int64_t at = std::int64_t{block} * kBytes;
  const std::uint8_t* first = weights.codes() + column * weights.row_bytes() + (at < unit_bytes ? at : pairs::kPanelUnits * unit_bytes);
  return {{first, first + unit_bytes}, kPanelBlocks * kBytes};
}

template <class Units, class T>
HWY_NOINLINE void multiply_many_pairs(Activations& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const pairs::Panel panel = {scratch.take<std::uint32_t>(std::int64_t{kPanelBlocks} * kBlockPairs * pairs::kPanelColumns),
                              scratch.take<float>(kPanelBlocks * pairs::kPanelColumns)};
  auto* packed = scratch.take<std::uint8_t>(packed_bytes(Units::kFormat, kPanelBlocks));
  const std::int64_t num_sums = std::int64_t{x.rows()} * pairs::kPanelColumns;
  float* sums = scratch.take<float>(num_sums);
  for (std::int32_t c = columns.begin; c < columns.end; c += pairs::kPanelColumns) {
    const std::int32_t width = std::min(pairs::kPanelColumns, columns.end - c);
    std::fill_n(sums, num_sums, 0.0F);
    for (std::int32_t block = 0; block < num_blocks; block += kPanelBlocks) {
      const Range blocks = {block, std::min(block + kPanelBlocks, num_blocks)};
      for (std::int32_t first = 0; first < width; first += kUnit) {  // a second unit that is not there leaves sums that are not used
        const Range own = {c + first, std::min(c + first + kUnit, columns.end)};
        pairs::fill_panel(unit_blocks(weights, own, blocks, packed), first / kUnit, panel);
      }
      pairs::Rows rows = x.pair_words();
      rows.words += std::int64_t{block} * kBlockPairs;
      pairs::multiply_panel(rows, panel, blocks.size(), next_panel(weights, c, blocks.end), sums);
    }
    put_sums(sums, pairs::kPanelColumns, x.rows(), width, Output<T>{y.at(0, c - columns.begin), y.stride});
  }
}

template <class Units, class T>
inline void multiply_pairs(Activations& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  x.rows() <= pairs::kFewRows ? multiply_few_pairs(x, weights, columns, y, scratch) : multiply_many_pairs(x, weights, columns, y, scratch);
}

#endif

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
