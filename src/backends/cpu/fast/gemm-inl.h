// Products of decoded rows with weights: y[row, column] = sum over k of x[row, k] w[column, k], in the sixteen lanes of lanes-inl.h.
// Many rows: weights are decoded once per panel that fits the first cache and multiplied by register tiles. Few rows: decoding and
// multiplying are one pass. Both add in the same order, so a row's result does not depend on its company.
#if defined(DEEPINFER_CPU_FAST_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_GEMM_INL_H_
#undef DEEPINFER_CPU_FAST_GEMM_INL_H_
#else
#define DEEPINFER_CPU_FAST_GEMM_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/fast/codecs-inl.h"
#include "backends/cpu/fast/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kFewRows = 4;         ///< up to here decoding and multiplying are one pass
inline constexpr std::int32_t kPanelFloats = 6144;  ///< 24 KB: a panel and two rows stay in a first cache of 32 KB
inline constexpr std::int32_t kPanelDepth = 512;    ///< k values of one panel; longer sums are carried from panel to panel
inline constexpr std::int32_t kTileColumns = 3;
inline constexpr std::int32_t kTileRows = kLanes == 16 ? 4 : (kLanes == 8 ? 2 : 1);  ///< fills the registers with sums

/// Rows of fp32 operands, [rows, k] with `stride` floats from row to row.
struct Operand {
  const float* data;
  std::int64_t stride;
  std::int32_t rows;
  std::int32_t k;

  [[nodiscard]] const float* at(std::int32_t row) const { return data + row * stride; }
};

/// Where results go, [rows, columns].
struct Output {
  float* data;
  std::int64_t stride;

  [[nodiscard]] float* at(std::int32_t row, std::int32_t column) const { return data + row * stride + column; }
};

// --- register tiles -----------------------------------------------------------------------------------------------

template <std::int32_t kRows>
struct Tile {
  F16 sum[kRows][kTileColumns];
};

template <std::int32_t kRows, Products kProducts>
HWY_INLINE void multiply_tile(const float* x, std::int64_t x_stride, const float* w, std::int64_t w_stride, std::int32_t k,
                              Tile<kRows>& tile) {
  for (std::int32_t i = 0; i < k; i += kVirtualLanes) {
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      VF rows[kRows];
      HWY_UNROLL(4)
      for (std::int32_t r = 0; r < kRows; ++r) {
        rows[r] = load(x + r * x_stride + i + part * kLanes);
      }
      HWY_UNROLL(4)
      for (std::int32_t c = 0; c < kTileColumns; ++c) {
        const VF weight = load(w + c * w_stride + i + part * kLanes);
        HWY_UNROLL(4)
        for (std::int32_t r = 0; r < kRows; ++r) {
          VF& sum = tile.sum[r][c].part[part];
          sum = kProducts == Products::exact ? add_exact_product(weight, rows[r], sum) : fma(weight, rows[r], sum);
        }
      }
    }
  }
}

/// Writes the sums of one row of a tile; the fourth float after them is overwritten with rubbish.
HWY_INLINE void finish_row(const F16 (&sum)[kTileColumns], float* y) { sum_lanes4(sum[0], sum[1], sum[2], sum[2], y); }

template <std::int32_t kRows>
HWY_INLINE void finish_tile(const Tile<kRows>& tile, Output y, std::int32_t row, std::int32_t column) {
#if HWY_MAX_BYTES >= 32
  if constexpr (kRows % 2 == 0) {
    // Two rows at once: the lower half of each vector belongs to the first, the upper half to the second.
    const D8 d8;
    HWY_UNROLL(4)
    for (std::int32_t r = 0; r < kRows; r += 2) {
      hn::Vec<D8> half[kTileColumns];
      HWY_UNROLL(4)
      for (std::int32_t c = 0; c < kTileColumns; ++c) {
        const auto first = fold_to_octet(tile.sum[r][c]);
        const auto second = fold_to_octet(tile.sum[r + 1][c]);
        half[c] = hn::Add(hn::ConcatLowerLower(d8, second, first), hn::ConcatUpperUpper(d8, second, first));
      }
      const hn::Repartition<std::uint64_t, decltype(d8)> pairs;
      const auto ab = hn::Add(hn::InterleaveLower(d8, half[0], half[1]), hn::InterleaveUpper(d8, half[0], half[1]));
      const auto cc = hn::Add(hn::InterleaveLower(d8, half[2], half[2]), hn::InterleaveUpper(d8, half[2], half[2]));
      const auto low = hn::BitCast(d8, hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cc)));
      const auto high = hn::BitCast(d8, hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cc)));
      const auto sums = hn::Add(low, high);
      hn::StoreU(hn::LowerHalf(D4(), sums), D4(), y.at(row + r, column));
      hn::StoreU(hn::UpperHalf(D4(), sums), D4(), y.at(row + r + 1, column));
    }
    return;
  }
#endif
  HWY_UNROLL(4)
  for (std::int32_t r = 0; r < kRows; ++r) {
    finish_row(tile.sum[r], y.at(row + r, column));
  }
}

template <std::int32_t kRows>
HWY_INLINE Tile<kRows> zero_tile() {
  Tile<kRows> tile;
  HWY_UNROLL(4)
  for (std::int32_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (std::int32_t c = 0; c < kTileColumns; ++c) {
      tile.sum[r][c] = zero16();
    }
  }
  return tile;
}

// --- panels -------------------------------------------------------------------------------------------------------

/// A piece of the weights as fp32, [columns, depth]; columns is a multiple of kTileColumns.
struct Panel {
  const float* data;
  std::int64_t stride;
  std::int32_t columns;
  std::int32_t depth;
};

template <std::int32_t kRows, Products kProducts>
HWY_INLINE void multiply_rows(const Operand& x, std::int32_t row, const Panel& w, Output y) {
  for (std::int32_t c = 0; c < w.columns; c += kTileColumns) {
    Tile<kRows> tile = zero_tile<kRows>();
    multiply_tile<kRows, kProducts>(x.at(row), x.stride, w.data + c * w.stride, w.stride, w.depth, tile);
    finish_tile<kRows>(tile, y, row, c);
  }
}

/// y = x . panel^T for whole sums. y has room for one float beyond its last column.
template <Products kProducts>
HWY_NOINLINE void multiply_panel(const Operand& x, const Panel& w, Output y) {
  std::int32_t row = 0;
  for (; row + kTileRows <= x.rows; row += kTileRows) {
    multiply_rows<kTileRows, kProducts>(x, row, w, y);
  }
  for (; row < x.rows; ++row) {
    multiply_rows<1, kProducts>(x, row, w, y);
  }
}

template <std::int32_t kRows, Products kProducts>
HWY_INLINE void carry_rows(const Operand& x, std::int32_t row, const Panel& w, float* carry) {
  for (std::int32_t c = 0; c < w.columns; c += kTileColumns) {
    Tile<kRows> tile;
    const auto place = [&](std::int32_t r, std::int32_t i)
                           HWY_ATTR { return carry + (static_cast<std::int64_t>(row + r) * w.columns + c + i) * kVirtualLanes; };
    HWY_UNROLL(4)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (std::int32_t i = 0; i < kTileColumns; ++i) {
        tile.sum[r][i] = load16(place(r, i));
      }
    }
    multiply_tile<kRows, kProducts>(x.at(row), x.stride, w.data + c * w.stride, w.stride, w.depth, tile);
    HWY_UNROLL(4)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (std::int32_t i = 0; i < kTileColumns; ++i) {
        store16(tile.sum[r][i], place(r, i));
      }
    }
  }
}

/// carry[row, column, 16 lanes] += x . panel^T for a piece of the depth.
template <Products kProducts>
HWY_NOINLINE void carry_panel(const Operand& x, const Panel& w, float* carry) {
  std::int32_t row = 0;
  for (; row + kTileRows <= x.rows; row += kTileRows) {
    carry_rows<kTileRows, kProducts>(x, row, w, carry);
  }
  for (; row < x.rows; ++row) {
    carry_rows<1, kProducts>(x, row, w, carry);
  }
}

inline void finish_carry(const float* carry, std::int32_t rows, std::int32_t columns, Output y) {
  for (std::int32_t row = 0; row < rows; ++row) {
    for (std::int32_t c = 0; c < columns; c += kTileColumns) {
      const float* lanes = carry + (static_cast<std::int64_t>(row) * columns + c) * kVirtualLanes;
      const F16 sum[kTileColumns] = {load16(lanes), load16(lanes + kVirtualLanes), load16(lanes + 2 * kVirtualLanes)};
      finish_row(sum, y.at(row, c));
    }
  }
}

[[nodiscard]] constexpr std::int32_t panel_columns(std::int32_t depth) {
  const std::int32_t columns = kPanelFloats / std::min(depth, kPanelDepth) / kTileColumns * kTileColumns;
  return std::clamp(columns, kTileColumns, 48);
}

/// y[row, 0 .. columns) for columns [first, first + columns) of the weights. Weights::panel(first, count, k0, depth, buffer) gives a Panel;
/// columns beyond the last are its business (any finite numbers). x.rows <= kRowBlock.
template <Products kProducts, class Weights>
HWY_NOINLINE void multiply_many(const Operand& x, const Weights& weights, Range columns, Output y, Scratch& scratch) {
  const std::int32_t step = panel_columns(x.k);
  float* buffer = scratch.take<float>(static_cast<std::int64_t>(step) * std::min(x.k, kPanelDepth));
  float* carry = x.k > kPanelDepth ? scratch.take<float>(static_cast<std::int64_t>(kRowBlock) * step * kVirtualLanes) : nullptr;
  const Output tile = {scratch.take<float>(kRowBlock * (step + 1)), step + 1};
  for (std::int32_t c = columns.begin; c < columns.end; c += step) {
    const std::int32_t count = std::min(step, columns.end - c);
    const std::int32_t padded = (count + kTileColumns - 1) / kTileColumns * kTileColumns;
    if (carry == nullptr) {
      multiply_panel<kProducts>(x, weights.panel({c, c + count}, padded, {0, x.k}, buffer), tile);
    } else {
      std::fill_n(carry, static_cast<std::int64_t>(x.rows) * padded * kVirtualLanes, 0.0F);
      for (std::int32_t k = 0; k < x.k; k += kPanelDepth) {
        const Range depth = {k, std::min(k + kPanelDepth, x.k)};
        const Operand piece = {x.data + k, x.stride, x.rows, depth.size()};
        carry_panel<kProducts>(piece, weights.panel({c, c + count}, padded, depth, buffer), carry);
      }
      finish_carry(carry, x.rows, padded, tile);
    }
    for (std::int32_t row = 0; row < x.rows; ++row) {
      std::copy_n(tile.at(row, 0), count, y.at(row, c - columns.begin));
    }
  }
}

// --- few rows -----------------------------------------------------------------------------------------------------

/// Sums of kRows rows with kColumns weight rows at once, decoded on the way; kRows * kColumns <= 4 sums are written to out.
/// Weights::pairs(column, k) gives 32 decoded values.
template <std::int32_t kRows, std::int32_t kColumns, class Weights>
HWY_INLINE void multiply_few_step(const Operand& x, const Weights& weights, std::int32_t column, float* out) {
  F16 sum[4];
  HWY_UNROLL(4)
  for (std::int32_t i = 0; i < 4; ++i) {
    sum[i] = zero16();
  }
  for (std::int32_t k = 0; k < x.k; k += 2 * kVirtualLanes) {
    HWY_UNROLL(4)
    for (std::int32_t c = 0; c < kColumns; ++c) {
      const Pairs w = weights.pairs(column + c, k);
      HWY_UNROLL(4)
      for (std::int32_t r = 0; r < kRows; ++r) {
        const float* row = x.at(r) + k;
        accumulate<Products::exact>(sum[r * kColumns + c], w.even, load16(row));
        accumulate<Products::exact>(sum[r * kColumns + c], w.odd, load16(row + kVirtualLanes));
      }
    }
  }
  sum_lanes4(sum[0], sum[1], sum[2], sum[3], out);
}

template <std::int32_t kRows, class Weights>
HWY_NOINLINE void multiply_few_rows(const Operand& x, const Weights& weights, Range columns, Output y) {
  constexpr std::int32_t kColumns = kRows == 1 ? 4 : (kRows == 2 ? 2 : 1);
  float out[4];
  std::int32_t column = columns.begin;
  for (; column + kColumns <= columns.end; column += kColumns) {
    multiply_few_step<kRows, kColumns>(x, weights, column, out);
    for (std::int32_t r = 0; r < kRows; ++r) {
      std::copy_n(out + r * kColumns, kColumns, y.at(r, column - columns.begin));
    }
  }
  for (; column < columns.end; ++column) {
    multiply_few_step<kRows, 1>(x, weights, column, out);
    for (std::int32_t r = 0; r < kRows; ++r) {
      *y.at(r, column - columns.begin) = out[r];
    }
  }
}

/// As multiply_many for at most kFewRows rows.
template <class Weights>
inline void multiply_few(const Operand& x, const Weights& weights, Range columns, Output y) {
  switch (x.rows) {
    case 1:
      return multiply_few_rows<1>(x, weights, columns, y);
    case 2:
      return multiply_few_rows<2>(x, weights, columns, y);
    case 3:
      return multiply_few_rows<3>(x, weights, columns, y);
    default:
      return multiply_few_rows<4>(x, weights, columns, y);
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
