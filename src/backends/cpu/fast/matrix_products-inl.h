// Rows times quantised weights on the matrix unit: panels of decoded weights as tiles.
#if defined(DEEPINFER_CPU_FAST_MATRIX_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_MATRIX_PRODUCTS_INL_H_
#undef DEEPINFER_CPU_FAST_MATRIX_PRODUCTS_INL_H_
#else
#define DEEPINFER_CPU_FAST_MATRIX_PRODUCTS_INL_H_
#endif

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

inline constexpr std::int32_t kPanelTiles = 32;  ///< of a panel: 32 KB, in the first cache

template <class Units, class T>
HWY_NOINLINE void multiply_matrix(Activations& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const amx::Tiling tiling = amx::tiling(x.rows());
  const std::int32_t most_units = tiling.count == 1 ? amx::kMostUnits : amx::kMostUnits / 2;  // few rows: more sums that do not wait
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const std::int32_t panel_blocks = kPanelTiles / most_units;
  auto* tiles = scratch.take<std::uint16_t>(std::int64_t{kPanelTiles} * amx::kTileBytes / 2);
  auto* packed = scratch.take<std::uint8_t>(packed_bytes(Units::kFormat, panel_blocks));
  float* sums = scratch.take<float>(std::int64_t{tiling.padded()} * kUnit * most_units);
  amx::configure(tiling);
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit * most_units) {
    const std::int32_t width = std::min(kUnit * most_units, columns.end - c);
    const std::int32_t units = (width + kUnit - 1) / kUnit;
    for (std::int32_t block = 0; block < num_blocks; block += panel_blocks) {
      const Range blocks = {block, std::min(block + panel_blocks, num_blocks)};
      for (std::int32_t unit = 0; unit < units; ++unit) {
        const Range own = {c + unit * kUnit, std::min(c + (unit + 1) * kUnit, columns.end)};
        const UnitBlocks source = unit_blocks(weights, own, blocks, packed);
        amx::decode(source, tiles + static_cast<std::int64_t>(unit) * blocks.size() * (amx::kTileBytes / 2));
      }
      amx::multiply(tiling, {x.tiles(), num_blocks, block}, {tiles, units, blocks.size()}, {sums, block == 0});
    }
    put_sums(sums, std::int64_t{kUnit} * units, x.rows(), width, Output<T>{y.at(0, c - columns.begin), y.stride});
  }
  amx::release();
}

/// Range of the scales of some columns.
HWY_INLINE ScaleRange scale_range(const QuantWeight& weight, std::int32_t k, Range columns) {
  const std::int64_t row_blocks = k / kWeightBlock;
  const std::int64_t columns_per_scale = weight.format == WeightFormat::fp8 ? kWeightBlock : 1;
  const std::int64_t begin = columns.begin / columns_per_scale;
  const std::int64_t end = (columns.end + columns_per_scale - 1) / columns_per_scale;
  return amx::range_of(weight.scales + begin * row_blocks, (end - begin) * row_blocks);
}

#endif

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
