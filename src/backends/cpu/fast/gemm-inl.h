// Products of decoded rows with weights: y[row, column] = sum over k of x[row, k] w[column, k], in the sixteen lanes of lanes-inl.h.
// Many rows: weights are decoded once per strip of columns, lanes of a register are columns, and the sixteen partial sums of an output are
// formed one after the other. Few rows: decoding and multiplying are one pass, lanes of a register are the partial sums. Both add in the
// same order, so a row's result does not depend on its company.
#if defined(DEEPINFER_CPU_FAST_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_GEMM_INL_H_
#undef DEEPINFER_CPU_FAST_GEMM_INL_H_
#else
#define DEEPINFER_CPU_FAST_GEMM_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/fast/columns-inl.h"
#include "backends/cpu/fast/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kFewRows = 6;                           ///< up to here decoding and multiplying are one pass
inline constexpr std::int32_t kPairGroup = 2 * kVirtualLanes;         ///< k values that give every lane two products
inline constexpr std::int32_t kStripDepth = 256;                      ///< k values of one strip; longer sums are carried on
inline constexpr std::int32_t kTileColumns = kLanes == 16 ? 32 : 16;  ///< a strip of 256 k values: 16 or 32 KB, in the first cache
inline constexpr std::int32_t kTileVectors = kTileColumns / kLanes;   ///< registers of one row of a tile
inline constexpr std::int32_t kLanePairs = kVirtualLanes / 2;         ///< lanes i and i + 8, which the tree joins first
inline constexpr std::int32_t kTileSums = kLanes == 16 ? 24 : 12;     ///< registers for sums; the others hold operands
inline constexpr std::int32_t kTileRows = kTileSums / (2 * kTileVectors) > 0 ? kTileSums / (2 * kTileVectors) : 1;

/// Rows of fp32 operands in pair order, [rows, k] with `stride` floats from row to row.
struct Operand {
  const float* data;
  std::int64_t stride;
  std::int32_t rows;
  std::int32_t k;

  [[nodiscard]] const float* at(std::int32_t row) const { return data + row * stride; }
};

/// Where results go, [rows, columns] fp32 or bf16.
template <class T>
struct Output {
  T* data;
  std::int64_t stride;

  [[nodiscard]] T* at(std::int32_t row, std::int32_t column) const { return data + row * stride + column; }
};

HWY_INLINE void put(float value, float* out) { *out = value; }
HWY_INLINE void put(float value, bf16* out) { *out = to_bf16(value); }

// --- many rows ----------------------------------------------------------------------------------------------------

/// A piece of the weights as fp32: data[lane][k of the lane][kTileColumns], `groups` times 32 k values.
struct Strip {
  const float* data;
  std::int32_t groups;
};

/// Decodes columns [begin, end), at most kTileColumns, and `groups` * 32 k values from `k` on; columns beyond the end repeat others.
/// Weights::columns(range, k, write) calls write(place, F16) for 32 places of at most 16 columns.
template <class Weights>
HWY_INLINE Strip fill_strip(const Weights& weights, Range columns, std::int32_t k, std::int32_t groups, float* buffer) {
  for (std::int32_t unit = 0; unit < kTileColumns; unit += kUnitRows) {
    const std::int32_t first = std::min(columns.begin + unit, columns.end - 1);
    const Range present = {first, std::min(first + kUnitRows, columns.end)};
    for (std::int32_t group = 0; group < groups; ++group) {
      float* out = buffer + static_cast<std::int64_t>(2 * group) * kTileColumns + unit;
      const std::int64_t lane_size = static_cast<std::int64_t>(2 * groups) * kTileColumns;
      weights.columns(present, k + group * kPairGroup, [&](std::int32_t place, const F16& values) HWY_ATTR {
        store16(values, out + place / 2 * lane_size + place % 2 * kTileColumns);
      });
    }
  }
  return {buffer, groups};
}

/// One tile: kRows rows of x and the columns of a strip. Stores are dear beside multiplications, so lanes i and i + 8 are summed together:
/// at the end of the depth only their sum is kept.
enum class Begin : std::uint8_t { at_zero, at_carry };
enum class End : std::uint8_t { to_carry, joined };

/// Where a tile keeps sums: carry[16 lanes][kRows][kTileColumns] between strips, joined[8 pairs of lanes][kRows][kTileColumns] at the end.
struct TileSums {
  float* carry;
  float* joined;
};

/// Lanes `lane` and `lane` + 8; x and w point to the first value of the tile and of the strip.
template <std::int32_t kRows, Begin kBegin, End kEnd>
HWY_INLINE void sum_lane_pair(const float* x, std::int64_t stride, const Strip& w, std::int32_t lane, const TileSums& sums) {
  constexpr std::int32_t kSize = kRows * kTileColumns;
  const std::int64_t lane_size = static_cast<std::int64_t>(2 * w.groups) * kTileColumns;
  VF sum[2][kRows][kTileVectors];
  const auto for_sums = [&](const auto& visit) HWY_ATTR {
    HWY_UNROLL(2)
    for (std::int32_t l = 0; l < 2; ++l) {
      HWY_UNROLL(16)
      for (std::int32_t r = 0; r < kRows; ++r) {
        HWY_UNROLL(16)
        for (std::int32_t v = 0; v < kTileVectors; ++v) {
          visit(sum[l][r][v], l, r * kTileColumns + v * kLanes);
        }
      }
    }
  };
  float* const carry = sums.carry + lane * kSize;
  for_sums([&](VF& own, std::int32_t l, std::int32_t at)
               HWY_ATTR { own = kBegin == Begin::at_zero ? hn::Zero(DF()) : load(carry + l * kLanePairs * kSize + at); });
  const float* lower = w.data + lane * lane_size;
  const float* upper = lower + kLanePairs * lane_size;
  x += lane;
  for (std::int32_t k = 0; k < 2 * w.groups; ++k, x += kVirtualLanes, lower += kTileColumns, upper += kTileColumns) {
    VF column[2][kTileVectors];
    HWY_UNROLL(16)
    for (std::int32_t v = 0; v < kTileVectors; ++v) {
      column[0][v] = load(lower + v * kLanes);
      column[1][v] = load(upper + v * kLanes);
    }
    for_sums([&](VF& own, std::int32_t l, std::int32_t at) HWY_ATTR {
      const VF value = hn::Set(DF(), x[at / kTileColumns * stride + l * kLanePairs]);
      own = add_exact_product(column[l][at % kTileColumns / kLanes], value, own);
    });
  }
  if constexpr (kEnd == End::to_carry) {
    for_sums([&](VF& own, std::int32_t l, std::int32_t at) HWY_ATTR { store(own, carry + l * kLanePairs * kSize + at); });
  } else {
    HWY_UNROLL(16)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (std::int32_t v = 0; v < kTileVectors; ++v) {
        store(hn::Add(sum[0][r][v], sum[1][r][v]), sums.joined + lane * kSize + r * kTileColumns + v * kLanes);
      }
    }
  }
}

template <std::int32_t kRows, Begin kBegin, End kEnd>
HWY_NOINLINE void sum_tile(const float* x, std::int64_t stride, const Strip& w, const TileSums& sums) {
  for (std::int32_t lane = 0; lane < kLanePairs; ++lane) {
    sum_lane_pair<kRows, kBegin, kEnd>(x, stride, w, lane, sums);
  }
}

/// The sum of kCount parts, `step` floats apart, by the tree of lanes-inl.h: parts i and i + kCount / 2 are joined first.
template <std::int32_t kCount>
HWY_INLINE VF tree_sum(const float* parts, std::int32_t step) {
  if constexpr (kCount == 1) {
    return load(parts);
  } else {
    return hn::Add(tree_sum<kCount / 2>(parts, 2 * step), tree_sum<kCount / 2>(parts + step, 2 * step));
  }
}

/// Results of a tile; y gets `count` columns.
template <std::int32_t kRows, class T>
HWY_INLINE void finish_tile(const float* joined, Output<T> y, std::int32_t count) {
  HWY_UNROLL(16)
  for (std::int32_t r = 0; r < kRows; ++r) {
    HWY_ALIGN float out[kTileColumns];
    HWY_UNROLL(16)
    for (std::int32_t v = 0; v < kTileVectors; ++v) {
      const VF sum = tree_sum<kLanePairs>(joined + r * kTileColumns + v * kLanes, kRows * kTileColumns);
      if (count == kTileColumns) {
        store(sum, y.at(r, v * kLanes));
      } else {
        store(sum, out + v * kLanes);
      }
    }
    for (std::int32_t c = 0; count < kTileColumns && c < count; ++c) {
      put(out[c], y.at(r, c));
    }
  }
}

/// Which part of the depth a strip is. Only the last one gives results.
struct Depth {
  bool is_first;
  bool is_last;
  float* carry;   // [rows, 16, kTileColumns], tile by tile; unused when there is one strip only
  float* joined;  // [8, kTileRows, kTileColumns]
};

/// One tile of kMost rows, or fewer.
template <std::int32_t kMost, class T>
HWY_INLINE void multiply_tile(std::int32_t rows, const float* x, std::int64_t stride, const Strip& w, const Depth& depth, Output<T> y,
                              std::int32_t count) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return multiply_tile<kMost - 1>(rows, x, stride, w, depth, y, count);
    }
  }
  const TileSums sums = {depth.carry, depth.joined};
  if (!depth.is_last) {
    depth.is_first ? sum_tile<kMost, Begin::at_zero, End::to_carry>(x, stride, w, sums)
                   : sum_tile<kMost, Begin::at_carry, End::to_carry>(x, stride, w, sums);
    return;
  }
  depth.is_first ? sum_tile<kMost, Begin::at_zero, End::joined>(x, stride, w, sums)
                 : sum_tile<kMost, Begin::at_carry, End::joined>(x, stride, w, sums);
  finish_tile<kMost>(depth.joined, y, count);
}

/// All rows of x times one strip; rows are shared out evenly over the tiles.
template <class T>
inline void multiply_strip(const Operand& x, const Strip& w, const Depth& depth, Output<T> y, std::int32_t count) {
  const std::int32_t num_tiles = (x.rows + kTileRows - 1) / kTileRows;
  const bool is_only = depth.is_first && depth.is_last;
  std::int32_t row = 0;
  for (std::int32_t tile = 0; tile < num_tiles; ++tile) {
    const std::int32_t rows = (x.rows - row + num_tiles - tile - 1) / (num_tiles - tile);
    float* carry = depth.carry + (is_only ? 0 : static_cast<std::int64_t>(row) * kTileColumns * kVirtualLanes);
    multiply_tile<kTileRows>(rows, x.at(row), x.stride, w, {depth.is_first, depth.is_last, carry, depth.joined},
                             Output<T>{y.at(row, 0), y.stride}, count);
    row += rows;
  }
}

/// y[row, 0 .. columns.size()) for a range of columns of the weights.
template <class T, class Weights>
HWY_NOINLINE void multiply_many(const Operand& x, const Weights& weights, Range columns, Output<T> y, Scratch& scratch) {
  float* buffer = scratch.take<float>(static_cast<std::int64_t>(std::min(x.k, kStripDepth)) * kTileColumns);
  const std::int64_t carried = x.k > kStripDepth ? static_cast<std::int64_t>(x.rows) * kTileColumns * kVirtualLanes : 0;
  float* carry = scratch.take<float>(carried);
  float* joined = scratch.take<float>(kLanePairs * kTileRows * kTileColumns);
  for (std::int32_t c = columns.begin; c < columns.end; c += kTileColumns) {
    const Range strip = {c, std::min(c + kTileColumns, columns.end)};
    for (std::int32_t k = 0; k < x.k; k += kStripDepth) {
      const std::int32_t depth = std::min(kStripDepth, x.k - k);
      const Operand piece = {x.data + k, x.stride, x.rows, depth};
      const Depth place = {k == 0, k + depth == x.k, carry, joined};
      multiply_strip(piece, fill_strip(weights, strip, k, depth / kPairGroup, buffer), place,
                     Output<T>{y.at(0, c - columns.begin), y.stride}, strip.size());
    }
  }
}

// --- few rows -----------------------------------------------------------------------------------------------------

/// Sums that are formed together; a tree joins four at once.
template <std::int32_t kRows>
inline constexpr std::int32_t kFewSums = kRows <= 4 ? 4 : 8;

/// Sums of kRows rows with kColumns weight rows at once, decoded on the way; kRows * kColumns sums are written to out.
/// Weights::pairs(column, k) gives 32 decoded values.
template <std::int32_t kRows, std::int32_t kColumns, class Weights>
HWY_INLINE void multiply_few_step(const Operand& x, const Weights& weights, std::int32_t column, float* out) {
  F16 sum[kFewSums<kRows>];
  HWY_UNROLL(8)
  for (std::int32_t i = 0; i < kFewSums<kRows>; ++i) {
    sum[i] = zero16();
  }
  for (std::int32_t k = 0; k < x.k; k += kPairGroup) {
    HWY_UNROLL(4)
    for (std::int32_t c = 0; c < kColumns; ++c) {
      const Pairs w = weights.pairs(column + c, k);
      HWY_UNROLL(8)
      for (std::int32_t r = 0; r < kRows; ++r) {
        const float* row = x.at(r) + k;
        accumulate<Products::exact>(sum[r * kColumns + c], w.even, load16(row));
        accumulate<Products::exact>(sum[r * kColumns + c], w.odd, load16(row + kVirtualLanes));
      }
    }
  }
  HWY_UNROLL(2)
  for (std::int32_t i = 0; i < kFewSums<kRows>; i += 4) {
    sum_lanes4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3], out + i);
  }
}

template <std::int32_t kRows, class T, class Weights>
HWY_NOINLINE void multiply_few_rows(const Operand& x, const Weights& weights, Range columns, Output<T> y) {
  constexpr std::int32_t kColumns = kRows == 1 ? 4 : (kRows == 2 ? 2 : 1);
  float out[kFewSums<kRows>];
  std::int32_t column = columns.begin;
  for (; column + kColumns <= columns.end; column += kColumns) {
    multiply_few_step<kRows, kColumns>(x, weights, column, out);
    for (std::int32_t r = 0; r < kRows; ++r) {
      for (std::int32_t c = 0; c < kColumns; ++c) {
        put(out[r * kColumns + c], y.at(r, column - columns.begin + c));
      }
    }
  }
  for (; column < columns.end; ++column) {
    multiply_few_step<kRows, 1>(x, weights, column, out);
    for (std::int32_t r = 0; r < kRows; ++r) {
      put(out[r], y.at(r, column - columns.begin));
    }
  }
}

/// As multiply_many for at most kFewRows rows.
template <class T, class Weights>
inline void multiply_few(const Operand& x, const Weights& weights, Range columns, Output<T> y) {
  switch (x.rows) {
    case 1:
      return multiply_few_rows<1>(x, weights, columns, y);
    case 2:
      return multiply_few_rows<2>(x, weights, columns, y);
    case 3:
      return multiply_few_rows<3>(x, weights, columns, y);
    case 4:
      return multiply_few_rows<4>(x, weights, columns, y);
    case 5:
      return multiply_few_rows<5>(x, weights, columns, y);
    default:
      return multiply_few_rows<6>(x, weights, columns, y);
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
