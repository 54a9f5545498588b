// Products on the matrix unit of x86 processors (AMX, bf16). One instruction adds 32 products to an element of a 16 x 16 tile: the 16 with
// even k and the 16 with odd k are each summed from zero by fused multiply-adds, ascending; then the two are added, and their sum to the
// element (Intel SDM, TDPBF16PS; tests/backends/amx_test.cpp compares bit by bit). units-inl.h adds in this order on every instruction set.
// The unit takes numbers below 2^-126 for zero: callers keep away from them (ScaleRange). Not here: which product goes where.
#pragma once

#include <cstdint>

#include "backends/cpu/fast/packed_weights.h"
#include "backends/cpu/fast/scale_range.h"

namespace deepinfer::cpu::amx {

inline constexpr std::int32_t kTileRows = 16;
inline constexpr std::int32_t kTileDepth = 32;     ///< k values of a tile
inline constexpr std::int32_t kTileBytes = 1024;   ///< of 16 columns and 32 k values in bf16
inline constexpr std::int32_t kMostUnits = 4;      ///< units of 16 columns of one panel

/// True on a processor with the unit, once the operating system has allowed its use.
[[nodiscard]] bool is_usable();

/// A Q8 row as bf16 in plain order, `block_stride` values from 32 values to the next 32; NaN codes stay NaN. width: multiple of 32.
ScaleRange decode_q8_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::int64_t block_stride, std::uint16_t* out);

/// Range of scale bytes.
[[nodiscard]] ScaleRange range_of(const std::uint8_t* scales, std::int64_t count);

/// Blocks of one unit to tiles of kTileBytes: 16 pairs of k, each 16 columns of two values.
void decode(const UnitBlocks& w, std::uint16_t* tiles);

/// How rows are cut into tiles of equal size: `count` tiles of `rows` rows; activations and sums have room for all of them.
struct Tiling {
  std::int32_t rows;
  std::int32_t count;

  [[nodiscard]] std::int32_t padded() const { return rows * count; }
};
[[nodiscard]] constexpr Tiling tiling(std::int32_t rows) {
  const std::int32_t count = (rows + kTileRows - 1) / kTileRows;
  return {count == 0 ? 0 : (rows + count - 1) / count, count};
}

/// Sets the unit up for products of this thread; kept until the next call.
void configure(Tiling tiling);
void release();

/// A panel of weights: data[unit][block of 32 k] tiles.
struct Panel {
  const std::uint16_t* data;
  std::int32_t units;
  std::int32_t num_blocks;
};

/// Activations as tiles, so that they are read as one stream: data[tile][block of 32 k][row of the tile][32] bf16.
struct Tiles {
  const std::uint16_t* data;
  std::int32_t num_blocks;   ///< of a row
  std::int32_t first_block;  ///< where the panel begins
};
struct Sums {
  float* data;
  bool from_zero;  ///< else sums are carried on
};
/// sums[row, 16 unit + column] (+)= x . w for all rows; 16 panel.units floats from row to row.
void multiply(Tiling tiling, const Tiles& x, const Panel& panel, const Sums& sums);

/// For measuring the peak: products of tiles that stay in registers. Returns the FLOPs done.
double multiply_in_registers(std::int64_t rounds);

}  // namespace deepinfer::cpu::amx
