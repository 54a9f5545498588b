// Many rows times quantised weights on the vector units of any instruction set: they share a strip of decoded columns.
#if defined(DEEPINFER_CPU_FAST_MANY_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_MANY_UNITS_INL_H_
#undef DEEPINFER_CPU_FAST_MANY_UNITS_INL_H_
#else
#define DEEPINFER_CPU_FAST_MANY_UNITS_INL_H_
#endif

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// Decoded columns: data[block][pair][even, odd][kTileColumns], scales[block][kTileColumns].
struct UnitStrip {
  float* data;
  float* scales;
  std::int32_t num_blocks;
};

template <class Units>
HWY_INLINE void fill_unit_strip(const Units& weights, Range columns, std::int32_t first_block, const UnitStrip& strip) {
  HWY_ALIGN std::uint8_t buffer[block_bytes(Units::kFormat)];
  for (std::int32_t unit = 0; unit < kTileColumns; unit += kUnit) {
    const std::int32_t first = std::min(columns.begin + unit, columns.end - 1);
    const Range own = {first, std::min(first + kUnit, columns.end)};
    if (unit > 0 && columns.begin + unit >= columns.end) {
      break;  // its results are not used
    }
    for (std::int32_t block = 0; block < strip.num_blocks; ++block) {
      float* out = strip.data + static_cast<std::int64_t>(block) * kUnitDepth * kTileColumns + unit;
      const std::uint8_t* codes = unit_block(weights, own, first_block + block, buffer);
      HWY_UNROLL(4)
      for (std::int32_t step = 0; step < kBlockPairs / Units::kStepPairs; ++step) {
        Units::template decode<0>(codes, step, [&](std::int32_t pair, const F16& w) HWY_ATTR { store16(w, out + 2 * pair * kTileColumns); });
        Units::template decode<1>(codes, step, [&](std::int32_t pair, const F16& w) HWY_ATTR { store16(w, out + (2 * pair + 1) * kTileColumns); });
      }
      store16(weights.scales(own, first_block + block), strip.scales + block * kTileColumns + unit);
    }
  }
}

/// kRows rows times a strip, added to sums [kRows, kTileColumns].
template <std::int32_t kRows>
HWY_NOINLINE void add_unit_tile(const float* x, std::int64_t stride, const UnitStrip& w, float* sums) {
  const float* column = w.data;
  for (std::int32_t block = 0; block < w.num_blocks; ++block, x += kUnitDepth) {
    VF sum[2][kRows][kTileVectors];
    HWY_UNROLL(16)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (std::int32_t v = 0; v < kTileVectors; ++v) {
        sum[0][r][v] = hn::Zero(DF());
        sum[1][r][v] = hn::Zero(DF());
      }
    }
    for (std::int32_t pair = 0; pair < kBlockPairs; ++pair, column += 2 * kTileColumns) {
      HWY_UNROLL(2)
      for (std::int32_t odd = 0; odd < 2; ++odd) {
        VF w_values[kTileVectors];
        HWY_UNROLL(16)
        for (std::int32_t v = 0; v < kTileVectors; ++v) {
          w_values[v] = load(column + odd * kTileColumns + v * kLanes);
        }
        HWY_UNROLL(16)
        for (std::int32_t r = 0; r < kRows; ++r) {
          const VF value = hn::Set(DF(), x[r * stride + odd * kVirtualLanes + pair]);
          HWY_UNROLL(16)
          for (std::int32_t v = 0; v < kTileVectors; ++v) {
            sum[odd][r][v] = add_exact_product(w_values[v], value, sum[odd][r][v]);
          }
        }
      }
    }
    HWY_UNROLL(16)
    for (std::int32_t v = 0; v < kTileVectors; ++v) {
      const VF scale = load(w.scales + block * kTileColumns + v * kLanes);
      HWY_UNROLL(16)
      for (std::int32_t r = 0; r < kRows; ++r) {
        float* total = sums + r * kTileColumns + v * kLanes;
        store(add_exact_product(hn::Add(sum[0][r][v], sum[1][r][v]), scale, load(total)), total);
      }
    }
  }
}

template <std::int32_t kMost>
HWY_INLINE void add_unit_tile_of(std::int32_t rows, const float* x, std::int64_t stride, const UnitStrip& w, float* sums) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return add_unit_tile_of<kMost - 1>(rows, x, stride, w, sums);
    }
  }
  add_unit_tile<kMost>(x, stride, w, sums);
}

template <class T, class Units>
HWY_NOINLINE void multiply_many_units(const Operand& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  constexpr std::int32_t kBlocks = kStripDepth / kUnitDepth;
  UnitStrip strip = {scratch.take<float>(static_cast<std::int64_t>(kStripDepth) * kTileColumns), scratch.take<float>(kBlocks * kTileColumns), 0};
  const std::int64_t num_sums = static_cast<std::int64_t>(x.rows) * kTileColumns;
  float* sums = scratch.take<float>(num_sums);
  const std::int32_t num_tiles = (x.rows + kTileRows - 1) / kTileRows;
  for (std::int32_t c = columns.begin; c < columns.end; c += kTileColumns) {
    const Range own = {c, std::min(c + kTileColumns, columns.end)};
    std::fill_n(sums, num_sums, 0.0F);
    for (std::int32_t block = 0; block < x.k / kUnitDepth; block += kBlocks) {
      strip.num_blocks = std::min(kBlocks, x.k / kUnitDepth - block);
      fill_unit_strip(weights, own, block, strip);
      std::int32_t row = 0;
      for (std::int32_t tile = 0; tile < num_tiles; ++tile) {  // of even size
        const std::int32_t rows = (x.rows - row + num_tiles - tile - 1) / (num_tiles - tile);
        add_unit_tile_of<kTileRows>(rows, x.at(row) + block * kUnitDepth, x.stride, strip, sums + static_cast<std::int64_t>(row) * kTileColumns);
        row += rows;
      }
    }
    put_sums(sums, kTileColumns, x.rows, own.size(), Output<T>{y.at(0, c - columns.begin), y.stride});
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
