// Products of Q8 rows with quantised weights: y[row, column] = sum over k of x[row, k] w[column, k], added in the order of units-inl.h by
// each way of computing them, so that a row's result does not depend on its company: few rows decode and multiply in one pass; many rows
// share a strip of decoded columns; where there is a matrix unit, it takes any number of rows.
#if defined(DEEPINFER_CPU_FAST_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_QUANTISED_INL_H_
#undef DEEPINFER_CPU_FAST_QUANTISED_INL_H_
#else
#define DEEPINFER_CPU_FAST_QUANTISED_INL_H_
#endif

#include "backends/cpu/fast/amx.h"
#include "backends/cpu/fast/gemm-inl.h"
#include "backends/cpu/fast/units-inl.h"
#include "backends/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// Rows of a Q8 matrix of width k: those listed, or every `stride`th from `first` on.
struct Q8Selection {
  Q8Rows x;
  std::int32_t rows;
  std::int32_t k;
  std::int64_t first = 0;
  std::int64_t stride = 1;
  const std::int32_t* list = nullptr;

  [[nodiscard]] HWY_INLINE std::int64_t source(std::int32_t row) const { return list != nullptr ? list[row] : first + row * stride; }
  [[nodiscard]] HWY_INLINE const std::uint8_t* codes(std::int32_t row) const { return row_at(x.codes, source(row), k); }
  [[nodiscard]] HWY_INLINE const std::uint8_t* scales(std::int32_t row) const { return row_at(x.scales, source(row), k / kQ8Group); }
};

/// Activations of one or several products, decoded once to what multiplies them.
template <ProductUnit kProductUnit>
class Activations {
 public:
  Activations(const Q8Selection& source, Scratch& scratch) : source_(source), scratch_(scratch) {}

  [[nodiscard]] std::int32_t rows() const { return source_.rows; }
  [[nodiscard]] std::int32_t k() const { return source_.k; }

#if HWY_TARGET == HWY_AVX3
  /// The tiles of the matrix unit, bf16.
  [[nodiscard]] const std::uint16_t* tiles() {
    if (tiles_ == nullptr) {
      const amx::Tiling tiling = amx::tiling(source_.rows);
      const std::int64_t block_size = std::int64_t{tiling.rows} * amx::kTileDepth;
      const std::int64_t tile_size = source_.k / amx::kTileDepth * block_size;
      tiles_ = scratch_.take<std::uint16_t>(tiling.count * tile_size);
      for (std::int32_t r = 0; r < source_.rows; ++r) {
        std::uint16_t* out = tiles_ + r / tiling.rows * tile_size + std::int64_t{r % tiling.rows} * amx::kTileDepth;
        const amx::ScaleRange range = amx::decode_q8_row(source_.codes(r), source_.scales(r), source_.k, block_size, out);
        range_ = {std::min(range_.least, range.least), std::max(range_.most, range.most)};
      }
    }
    return tiles_;
  }
  /// Of the scales of the tiles.
  [[nodiscard]] const amx::ScaleRange& range() {
    static_cast<void>(tiles());
    return range_;
  }
#endif

  /// [rows, k] fp32 in pair order.
  [[nodiscard]] Operand floats() {
    if (floats_ == nullptr) {
      floats_ = scratch_.take<float>(static_cast<std::int64_t>(source_.rows) * source_.k);
      for (std::int32_t r = 0; r < source_.rows; ++r) {
        decode_q8_pairs(source_.codes(r), source_.scales(r), source_.k, row_at(floats_, r, source_.k));
      }
    }
    return {floats_, source_.k, source_.rows, source_.k};
  }

 private:
  Q8Selection source_;
  Scratch& scratch_;
  float* floats_ = nullptr;
  std::uint16_t* tiles_ = nullptr;
  amx::ScaleRange range_;
};

/// Sixteen columns of results, the first `count` of them.
template <class T>
HWY_INLINE void put_unit(const F16& sums, std::int32_t count, T* y) {
  if (count == kUnit) {
    store16(sums, y);
    return;
  }
  HWY_ALIGN float values[kUnit];
  store16(sums, values);
  for (std::int32_t i = 0; i < count; ++i) {
    put(values[i], y + i);
  }
}

// --- few rows -----------------------------------------------------------------------------------------------------

/// Whether the even and the odd values of a block are added side by side, so that fewer sums wait for each other, or one after the other,
/// so that registers hold the sums of more rows.
enum class Halves : std::uint8_t { together, in_turn };

inline constexpr std::int32_t kRowsTogether = kLanes == 16 ? 6 : 2;  ///< most rows of Halves::together
/// Up to here registers hold the sums of a unit for all rows, and what decoding needs beside them.
template <class Units>
inline constexpr std::int32_t kFewUnitRows = kLanes == 16 ? 6 : (Units::kFormat == WeightFormat::fp8 ? 5 : 4);

/// Adds kRows values times the values of sixteen columns.
template <std::int32_t kRows>
HWY_INLINE void add_unit_products(const float* x, std::int64_t stride, const F16& w, F16 (&sums)[kRows]) {
  HWY_UNROLL(8)
  for (std::int32_t r = 0; r < kRows; ++r) {
    const VF value = hn::Set(DF(), x[r * stride]);
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      sums[r].part[part] = add_exact_product(w.part[part], value, sums[r].part[part]);
    }
  }
}

template <std::int32_t kRows>
HWY_INLINE void clear_sums(F16 (&sums)[kRows]) {
  HWY_UNROLL(8)
  for (std::int32_t r = 0; r < kRows; ++r) {
    sums[r] = zero16();
  }
}

/// Even and odd sums of kRows rows, x in pair order, with one block of a unit: visit(row, even + odd).
template <Halves kHalves, class Units, std::int32_t kRows, class Visit>
HWY_INLINE void sum_unit_block(const float* x, std::int64_t stride, const std::uint8_t* block, const Visit& visit) {
  constexpr std::int32_t kSteps = kBlockPairs / Units::kStepPairs;
  F16 odd[kRows];
  F16 even[kRows];
  const auto add_even = [&](std::int32_t pair, const F16& w) HWY_ATTR { add_unit_products(x + pair, stride, w, even); };
  const auto add_odd = [&](std::int32_t pair, const F16& w) HWY_ATTR { add_unit_products(x + kVirtualLanes + pair, stride, w, odd); };
  clear_sums(even);
  if constexpr (kHalves == Halves::together) {
    clear_sums(odd);
    HWY_UNROLL(4)
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Units::template decode<0>(block, step, add_even);
      Units::template decode<1>(block, step, add_odd);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        even[r].part[part] = hn::Add(even[r].part[part], odd[r].part[part]);
      }
      visit(r, even[r]);
    }
  } else {
    HWY_ALIGN float kept[kRows * kUnit];
    HWY_UNROLL(4)
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Units::template decode<0>(block, step, add_even);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      store16(even[r], kept + r * kUnit);
    }
    clear_sums(odd);
    HWY_UNROLL(4)
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Units::template decode<1>(block, step, add_odd);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        odd[r].part[part] = hn::Add(load(kept + r * kUnit + part * kLanes), odd[r].part[part]);
      }
      visit(r, odd[r]);
    }
  }
}

template <std::int32_t kRows, class T, class Units>
HWY_NOINLINE void multiply_few_units(const Operand& x, const Units& weights, Range columns, Output<T> y) {
  constexpr Halves kHalves = kRows <= kRowsTogether ? Halves::together : Halves::in_turn;
  HWY_ALIGN std::uint8_t buffer[block_bytes(Units::kFormat)];
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    const Range own = {c, std::min(c + kUnit, columns.end)};
    F16 total[kRows];
    clear_sums(total);
    for (std::int32_t block = 0; block < x.k / kUnitDepth; ++block) {
      const F16 scale = weights.scales(own, block);
      const auto add_to_total = [&](std::int32_t r, const F16& sum) HWY_ATTR {
        HWY_UNROLL(16)
        for (std::int32_t part = 0; part < kParts; ++part) {
          total[r].part[part] = add_exact_product(sum.part[part], scale.part[part], total[r].part[part]);
        }
      };
      const std::uint8_t* codes = unit_block(weights, own, block, buffer);
      sum_unit_block<kHalves, Units, kRows>(x.data + block * kUnitDepth, x.stride, codes, add_to_total);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      put_unit(total[r], own.size(), y.at(r, c - columns.begin));
    }
  }
}

template <std::int32_t kMost, class T, class Units>
inline void multiply_few_units_of(const Operand& x, const Units& weights, Range columns, Output<T> y) {
  if constexpr (kMost > 1) {
    if (x.rows < kMost) {
      return multiply_few_units_of<kMost - 1>(x, weights, columns, y);
    }
  }
  multiply_few_units<kMost>(x, weights, columns, y);
}

// --- many rows ----------------------------------------------------------------------------------------------------

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

/// sums [rows, columns padded to units] to y.
template <class T>
HWY_INLINE void put_sums(const float* sums, std::int64_t stride, std::int32_t rows, std::int32_t columns, Output<T> y) {
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::int32_t c = 0; c < columns; c += kUnit) {
      put_unit(load16(sums + r * stride + c), std::min(kUnit, columns - c), y.at(r, c));
    }
  }
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

// --- the matrix unit ----------------------------------------------------------------------------------------------

#if HWY_TARGET == HWY_AVX3

inline constexpr std::int32_t kFewFp4Rows = 4;  ///< up to here the vector units are faster
inline constexpr std::int32_t kPanelTiles = 32;  ///< of a panel: 32 KB, in the first cache

/// One unit of a panel: blocks of sixteen columns, or fewer, as tiles.
template <class Units>
HWY_INLINE void fill_panel_unit(const QuantWeight& weight, const Units& weights, Range own, Range blocks, std::uint8_t* packed,
                                std::uint16_t* tiles) {
  constexpr std::int32_t kBytes = block_bytes(Units::kFormat);
  const std::int64_t row_blocks = weights.row_bytes() * kUnit / kBytes;
  const bool is_packed = weight.layout == WeightLayout::units;
  const std::uint8_t* codes = packed;
  if (is_packed) {
    codes = unit_block(weights, own, blocks.begin, packed);
  } else {
    for (std::int32_t block = 0; block < blocks.size(); ++block) {
      static_cast<void>(unit_block(weights, own, blocks.begin + block, packed + block * kBytes));
    }
  }
  if constexpr (Units::kFormat == WeightFormat::fp8) {
    amx::decode_fp8(codes, weight.scales + own.begin / kWeightBlock * row_blocks + blocks.begin, blocks.size(), tiles);
  } else if (is_packed) {
    amx::decode_fp4(codes, weight.scales + (own.begin / kUnit * row_blocks + blocks.begin) * kUnit, blocks.size(), tiles);
  } else {
    std::uint8_t* scales = packed + blocks.size() * kBytes;
    for (std::int32_t block = 0; block < blocks.size(); ++block) {
      for (std::int32_t i = 0; i < kUnit; ++i) {
        scales[block * kUnit + i] = weight.scales[std::min(own.begin + i, own.end - 1) * row_blocks + blocks.begin + block];
      }
    }
    amx::decode_fp4(codes, scales, blocks.size(), tiles);
  }
}

template <class Units, class T>
HWY_NOINLINE void multiply_matrix(Activations<ProductUnit::matrix>& x, const QuantWeight& weight, Range columns, Output<T> y,
                                  Scratch& scratch) {
  const Units weights(weight, x.k());
  const amx::Tiling tiling = amx::tiling(x.rows());
  const std::int32_t most_units = tiling.count == 1 ? amx::kMostUnits : amx::kMostUnits / 2;  // few rows: more sums that do not wait
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const std::int32_t panel_blocks = kPanelTiles / most_units;
  auto* tiles = scratch.take<std::uint16_t>(std::int64_t{kPanelTiles} * amx::kTileBytes / 2);
  auto* packed = scratch.take<std::uint8_t>(std::int64_t{panel_blocks} * (block_bytes(Units::kFormat) + kUnit));
  float* sums = scratch.take<float>(std::int64_t{tiling.padded()} * kUnit * most_units);
  amx::configure(tiling);
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit * most_units) {
    const std::int32_t width = std::min(kUnit * most_units, columns.end - c);
    const std::int32_t units = (width + kUnit - 1) / kUnit;
    for (std::int32_t block = 0; block < num_blocks; block += panel_blocks) {
      const Range blocks = {block, std::min(block + panel_blocks, num_blocks)};
      for (std::int32_t unit = 0; unit < units; ++unit) {
        const Range own = {c + unit * kUnit, std::min(c + (unit + 1) * kUnit, columns.end)};
        fill_panel_unit(weight, weights, own, blocks, packed, tiles + static_cast<std::int64_t>(unit) * blocks.size() * (amx::kTileBytes / 2));
      }
      amx::multiply(tiling, {x.tiles(), num_blocks, block}, {tiles, units, blocks.size()}, {sums, block == 0});
    }
    put_sums(sums, std::int64_t{kUnit} * units, x.rows(), width, Output<T>{y.at(0, c - columns.begin), y.stride});
  }
  amx::release();
}

/// At most amx::kFewRows rows of FP8 in units.
template <class T>
HWY_NOINLINE void multiply_few_fp8(const Operand& x, const QuantWeight& weight, Range columns, Output<T> y) {
  const std::int32_t num_blocks = x.k / kUnitDepth;
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    HWY_ALIGN float sums[amx::kFewRows * kUnit];
    amx::multiply_few_fp8({x.data, x.stride, x.rows, num_blocks}, weight.codes + static_cast<std::int64_t>(c) * x.k,
                          weight.scales + static_cast<std::int64_t>(c / kWeightBlock) * num_blocks, sums, kUnit);
    for (std::int32_t r = 0; r < x.rows; ++r) {
      put_unit(load16(sums + r * kUnit), std::min(kUnit, columns.end - c), y.at(r, c - columns.begin));
    }
  }
}

/// Range of the scales of some columns.
HWY_INLINE amx::ScaleRange scale_range(const QuantWeight& weight, std::int32_t k, Range columns) {
  const std::int64_t row_blocks = k / kWeightBlock;
  const std::int64_t columns_per_scale = weight.format == WeightFormat::fp8 ? kWeightBlock : 1;
  const std::int64_t begin = columns.begin / columns_per_scale;
  const std::int64_t end = (columns.end + columns_per_scale - 1) / columns_per_scale;
  return amx::range_of(weight.scales + begin * row_blocks, (end - begin) * row_blocks);
}

#endif

template <ProductUnit kProductUnit, class T>
inline void multiply_quantised(Activations<kProductUnit>& x, const QuantWeight& weight, Range columns, Output<T> y, Scratch& scratch) {
  const bool is_fp8 = weight.format == WeightFormat::fp8;
#if HWY_TARGET == HWY_AVX3
  if constexpr (kProductUnit == ProductUnit::matrix) {
    const bool is_few = x.rows() <= (is_fp8 ? amx::kFewRows : kFewFp4Rows);
    if (is_few && is_fp8 && weight.layout == WeightLayout::units) {
      multiply_few_fp8(x.floats(), weight, columns, y);
      return;
    }
    const bool one_scale = !is_fp8 || columns.begin % kUnit == 0;  // of a unit
    if (!is_few && one_scale && amx::is_exact(x.range(), scale_range(weight, x.k(), columns))) {
      is_fp8 ? multiply_matrix<Fp8Units>(x, weight, columns, y, scratch) : multiply_matrix<Fp4Units>(x, weight, columns, y, scratch);
      return;
    }
  }
#endif
  const Operand values = x.floats();
  const auto multiply = [&]<class Units>(const Units& weights) HWY_ATTR {
    if (values.rows <= kFewUnitRows<Units>) {
      multiply_few_units_of<kFewUnitRows<Units>>(values, weights, columns, y);
    } else {
      multiply_many_units(values, weights, columns, y, scratch);
    }
  };
  is_fp8 ? multiply(Fp8Units(weight, x.k())) : multiply(Fp4Units(weight, x.k()));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
