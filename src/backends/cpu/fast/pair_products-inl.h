// Rows times quantised weights with the instruction for pairs of bf16 (pairs.h): few rows unit by unit, many by panels of two units.
#if defined(DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#undef DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#else
#define DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#endif

#include <array>

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

/// Where a panel of a weight begins.
struct PanelPlace {
  std::int32_t column;
  std::int32_t block;

  [[nodiscard]] std::int32_t index() const { return block / pairs::kPanelBlocks; }
};

/// Products of many rows, which share words of a panel. work(panel, next panel, sums) adds products to [rows, kPanelColumns] sums; finish(columns,
/// sums) takes them. Columns go in groups, so that a panel of rows is read from the second cache.
template <class Work, class Finish>
HWY_INLINE void multiply_panels(std::int32_t rows, std::int32_t num_blocks, Range columns, Scratch& scratch, const Work& work, const Finish& finish) {
  using pairs::kPanelColumns;
  constexpr std::int32_t kGroupPanels = 8;  // sums of 256 rows: a quarter of the second cache
  const std::int64_t num_sums = std::int64_t{rows} * kPanelColumns;
  float* sums = scratch.take<float>(num_sums * kGroupPanels);
  for (std::int32_t group = columns.begin; group < columns.end; group += kGroupPanels * kPanelColumns) {
    const std::int32_t end = std::min(group + kGroupPanels * kPanelColumns, columns.end);
    const auto sums_of = [&](std::int32_t column) { return sums + (column - group) / kPanelColumns * num_sums; };
    std::fill_n(sums, num_sums * ((end - group + kPanelColumns - 1) / kPanelColumns), 0.0F);
    for (std::int32_t block = 0; block < num_blocks; block += pairs::kPanelBlocks) {
      const std::int32_t next_block = block + pairs::kPanelBlocks;
      for (std::int32_t c = group; c < end; c += kPanelColumns) {
        PanelPlace next = {c + kPanelColumns, block};
        if (next.column >= end) {
          next = next_block < num_blocks ? PanelPlace{group, next_block} : PanelPlace{end, 0};
        }
        work(PanelPlace{c, block}, next, sums_of(c));
      }
    }
    for (std::int32_t c = group; c < end; c += kPanelColumns) {
      finish(Range{c, std::min(c + kPanelColumns, end)}, sums_of(c));
    }
  }
}

/// Many rows, whose scales and those of the weights allow products of scaled values.
template <class Units, class T>
HWY_NOINLINE void multiply_quantised_panels(const pairs::Rows& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const std::int32_t num_blocks = weights.num_blocks();
  const bool is_packed = weights.layout() == WeightLayout::units;
  const std::int64_t unit_bytes = is_packed ? 0 : packed_bytes(Units::kFormat, pairs::kPanelBlocks);
  auto* packed = scratch.take<std::uint8_t>(unit_bytes * (pairs::kPanelColumns / kUnit));
  auto* words = scratch.take<std::uint32_t>(pairs::kPanelWords);
  const auto units_of = [&](PanelPlace panel) HWY_ATTR {
    const Range blocks = {panel.block, std::min(panel.block + pairs::kPanelBlocks, num_blocks)};
    const std::int32_t middle = std::min(panel.column + kUnit, columns.end);
    const Range first = {panel.column, middle};
    const Range second = {middle, std::min(middle + kUnit, columns.end)};  // where there is none, the first again: sums that are not used
    return std::array{unit_blocks(weights, first, blocks, packed),
                      unit_blocks(weights, second.size() > 0 ? second : first, blocks, packed + unit_bytes)};
  };
  const auto work = [&](PanelPlace panel, PanelPlace next, float* sums) HWY_ATTR {
    const auto units = units_of(panel);
    pairs::multiply_panel(x, panel.index(), {units, is_packed && next.column < columns.end ? units_of(next) : units}, words, sums);
  };
  multiply_panels(x.tiling.rows, num_blocks, columns, scratch, work, [&](Range strip, const float* sums) HWY_ATTR {
    put_sums(sums, pairs::kPanelColumns, x.tiling.rows, strip.size(), Output<T>{y.at(0, strip.begin - columns.begin), y.stride});
  });
}

/// Few rows, or any number of them whose weights have scales that must not be applied before products are added.
template <class Units, class T>
HWY_NOINLINE void multiply_quantised_tiles(const pairs::Rows& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const std::int32_t num_blocks = weights.num_blocks();
  const bool is_packed = weights.layout() == WeightLayout::units;
  auto* packed = scratch.take<std::uint8_t>(is_packed ? 0 : packed_bytes(Units::kFormat, num_blocks));
  float* sums = scratch.take<float>(std::int64_t{x.tiling.rows} * kUnit);
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    const Range own = {c, std::min(c + kUnit, columns.end)};
    if (weights.next_codes() != nullptr) {
      fetch(weights.next_codes() + c * weights.row_bytes(), kUnit * weights.row_bytes());
    }
    pairs::multiply(x, unit_blocks(weights, own, {0, num_blocks}, packed), sums);
    put_sums(sums, kUnit, x.tiling.rows, own.size(), Output<T>{y.at(0, c - columns.begin), y.stride});
  }
}

#endif

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
