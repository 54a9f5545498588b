// Rows of bf16 matrices as operands of the units that multiply bf16 (pairs.h, amx.h), on processors with AVX512_BF16. Weights lie in units
// (packed_weights.h) or as in the checkpoint: then sixteen rows (columns of the product) are transposed on the way. Those units take
// numbers below 2^-126 for zero, so every function tells the least exponent it saw. Not here: which product goes where
// (bf16_products-inl.h).
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/fast/pairs.h"

namespace deepinfer::cpu::bf16_columns {

inline constexpr std::int32_t kNoExponent = 256;    ///< of nothing but zeros
inline constexpr std::int32_t kMostExponent = 255;  ///< of a number; stands for kNoExponent too where it must fit into a byte

/// True when all partial sums of products of values with these least exponents (biased; 0: subnormal) are zero or normal numbers: they are
/// multiples of the product of the values' last places, 2^(exponent - 134).
[[nodiscard]] constexpr bool is_exact(std::int32_t x, std::int32_t w) { return x > 0 && w > 0 && x + w >= 2 * 134 - 126; }

/// Part of a row, `count` values, as words of pairs.h, padded with zeros to a multiple of 32 values; `block_stride` words from 32 values to the
/// next 32.
std::int32_t pack_words(const std::uint16_t* row, std::int32_t count, std::int64_t block_stride, std::uint32_t* out);
/// A row in plain order, `block_stride` values from 32 values to the next 32.
std::int32_t pack_tile_row(const std::uint16_t* row, std::int32_t count, std::int64_t block_stride, std::uint16_t* out);

/// Sixteen rows of a weight, `stride` values apart, `count` values each; zeros follow up to a multiple of 32.
struct Columns {
  const std::uint16_t* first;
  std::int64_t stride;
  std::int32_t count;
  std::int32_t num_columns = kUnit;  ///< that exist; only place_unit takes fewer
};
/// Blocks of 32 values.
struct Blocks {
  std::int32_t first;
  std::int32_t count;
};

/// To a unit of packed_weights.h.
std::int32_t place_unit(const Columns& w, std::uint32_t* words);

/// To tiles of amx.h, one a block.
std::int32_t fill_tiles(const Columns& w, Blocks blocks, std::uint16_t* tiles);
/// The same from `num_blocks` blocks of a unit.
void fill_tiles(const std::uint32_t* words, std::int32_t num_blocks, std::uint16_t* tiles);

/// sums[row, 16 columns] = x . w, 16 floats from row to row, for rows of one tile. Words of columns are not stored.
std::int32_t multiply_few(const pairs::Rows& x, const Columns& w, float* sums);

/// The same for a unit that lies in words.
void multiply_few(const pairs::Rows& x, const std::uint32_t* words, std::int32_t num_blocks, float* sums);

/// Columns of a panel of pairs.h, and those that come next, which are asked for.
struct PanelColumns {
  std::array<Columns, pairs::kPanelColumns / kUnit> units;
  const std::uint16_t* next;
};
/// sums[row, kPanelColumns] += x . w for a panel of the rows. The first tile transposes the columns to `words`, the others use them.
std::int32_t multiply_panel(const pairs::Rows& x, pairs::Panel panel, const PanelColumns& w, std::uint32_t* words, float* sums);

}  // namespace deepinfer::cpu::bf16_columns
