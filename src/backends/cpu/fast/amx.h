// Products on the matrix unit of x86 processors (AMX, bf16). One instruction adds 32 products to an element of a 16 x 16 tile: the 16 with
// even k and the 16 with odd k are each summed from zero by fused multiply-adds, ascending; then the two are added, and their sum to the
// element (Intel SDM, TDPBF16PS; tests/backends/amx_test.cpp compares bit by bit). units-inl.h adds in this order on every instruction set.
// The unit takes numbers below 2^-126 for zero: callers keep away from them (ScaleRange). Not here: which product goes where.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer::cpu::amx {

inline constexpr std::int32_t kTileRows = 16;
inline constexpr std::int32_t kTileDepth = 32;     ///< k values of a tile
inline constexpr std::int32_t kTileBytes = 1024;   ///< of 16 columns and 32 k values in bf16
inline constexpr std::int32_t kMostUnits = 4;      ///< units of 16 columns of one panel
inline constexpr std::int32_t kRowPadding = 32;    ///< bf16 values between rows of activations, so that rows fall on different cache sets

/// True on a processor with the unit, once the operating system has allowed its use.
[[nodiscard]] bool is_usable();

/// Exponents of the scales of codes other than zero, as UE8M0 bytes.
struct ScaleRange {
  std::int32_t least = 255;
  std::int32_t most = 0;

  void add(std::int32_t scale) {
    least = std::min(least, scale);
    most = std::max(most, scale);
  }
};

/// True when decoded values of both factors, their products and all partial sums of up to 2^16 products are zero or normal numbers: values
/// are between 2^-9 and 448 times their scale, and sums are multiples of the least product.
[[nodiscard]] constexpr bool is_exact(const ScaleRange& x, const ScaleRange& w) {
  constexpr std::int32_t kBias = 127;
  const bool normal_values = std::min(x.least, w.least) >= kBias - 117 && std::max(x.most, w.most) <= kBias + 117;
  return x.most == 0 || (normal_values && x.least + w.least >= 2 * kBias - 108 && x.most + w.most <= 2 * kBias + 93);
}

/// A Q8 row as bf16 in plain order; NaN codes stay NaN. width: multiple of 32.
ScaleRange decode_q8_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::uint16_t* out);

/// Range of scale bytes.
[[nodiscard]] ScaleRange range_of(const std::uint8_t* scales, std::int64_t count);

/// Blocks of one unit (packed_weights.h) to tiles of kTileBytes: 16 pairs of k, each 16 columns of two values. scales: one per block.
void decode_fp8(const std::uint8_t* blocks, const std::uint8_t* scales, std::int32_t num_blocks, std::uint16_t* tiles);
/// scales: [blocks, 16].
void decode_fp4(const std::uint8_t* blocks, const std::uint8_t* scales, std::int32_t num_blocks, std::uint16_t* tiles);

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

/// sums[row, 16 unit + column] (+)= x . w for all rows. x: bf16, `x_stride` values from row to row; sums: 16 units floats from row to row.
struct Sums {
  float* data;
  bool from_zero;  ///< else sums are carried on
};
void multiply(Tiling tiling, const std::uint16_t* x, std::int64_t x_stride, const Panel& panel, const Sums& sums);

/// One or two rows are cheaper without the unit, for decoded weights need not be stored: FP8 with the byte permutations that such
/// processors have. x: [rows, 32 num_blocks] fp32 in pair order (codecs-inl.h).
struct FewRows {
  const float* x;
  std::int64_t x_stride;
  std::int32_t rows;
  std::int32_t num_blocks;
};
inline constexpr std::int32_t kFewRows = 2;
/// sums[row, 16 columns] of one unit; scales: one per block.
void multiply_few_fp8(const FewRows& x, const std::uint8_t* blocks, const std::uint8_t* scales, float* sums, std::int64_t sums_stride);

/// For measuring the peak: products of tiles that stay in registers. Returns the FLOPs done.
double multiply_in_registers(std::int64_t rounds);

}  // namespace deepinfer::cpu::amx
