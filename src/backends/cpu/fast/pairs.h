// Products with the instruction that adds two bf16 products to each lane of a register (AVX512_BF16, VDPBF16PS). It adds them one after the
// other, each by a fused multiply-add, that of the upper halves first (Intel SDM; tests/backends/pairs_test.cpp compares bit by bit), so that two
// steps of the sums of units-inl.h are one instruction when words hold values of k that are two apart: k + 2 in the lower half, k in the upper.
// For 32 values of k there are 16 words: even and odd ones in turn, ascending.
// The instruction takes numbers below 2^-126 for zero: callers keep away from them (is_exact with kUnscaled, for codes of weights are multiplied
// without their scale). Not here: which product goes where (quantised-inl.h).
#pragma once

#include <array>
#include <cstdint>

#include "backends/cpu/fast/packed_weights.h"
#include "backends/cpu/fast/scale_range.h"

namespace deepinfer::cpu::pairs {

inline constexpr std::int32_t kMostRowsBesideMatrix = 3;  ///< up to here pairs are faster than the matrix unit, where there is one

/// True on a processor with the instruction and with the look-ups that decoding needs.
[[nodiscard]] bool is_usable();

inline constexpr std::int32_t kBlockWords = kUnitDepth / 2;  ///< of a row and a block
inline constexpr std::int32_t kPanelBlocks = 8;
inline constexpr std::int32_t kFewTileRows = 8;    ///< registers hold their sums of one unit, and what decodes it
inline constexpr std::int32_t kPanelTileRows = 6;  ///< 24 registers of sums, four of columns, and the rows' words on their way

/// How rows of words lie, so that a product reads one stream of them whatever their width: cut into tiles of nearly equal size,
/// [panel of kPanelBlocks][tile][block of the panel][row of the tile][kBlockWords].
struct Tiling {
  std::int32_t rows;
  std::int32_t count;

  /// The larger tiles come first: sizes that alternate are foreseen wrongly.
  [[nodiscard]] constexpr std::int32_t first_row(std::int32_t tile) const {
    return tile * (rows / count) + (tile < rows % count ? tile : rows % count);
  }
  [[nodiscard]] constexpr std::int32_t size(std::int32_t tile) const { return first_row(tile + 1) - first_row(tile); }
  /// Of the words of a tile.
  [[nodiscard]] constexpr std::int64_t offset(std::int32_t panel, std::int32_t tile) const {
    return (std::int64_t{panel} * rows + first_row(tile)) * kPanelBlocks * kBlockWords;
  }
  [[nodiscard]] constexpr std::int64_t num_words(std::int32_t num_blocks) const {
    return std::int64_t{(num_blocks + kPanelBlocks - 1) / kPanelBlocks} * rows * kPanelBlocks * kBlockWords;
  }
};
[[nodiscard]] constexpr Tiling tiling(std::int32_t rows, std::int32_t most) { return {rows, (rows + most - 1) / most}; }

struct Rows {
  const std::uint32_t* words;
  Tiling tiling;
};

/// Part of a Q8 row as words, `block_stride` words from 32 values to the next 32; NaN codes stay NaN. width: multiple of 32.
ScaleRange decode_q8_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::int64_t block_stride, std::uint32_t* out);

/// sums[row, 16 columns] = x . w, 16 floats from row to row. Every tile decodes the codes again and stores nothing of that.
void multiply(const Rows& x, const UnitBlocks& w, float* sums);

/// Words of two units that many rows share, [block][kBlockWords][kPanelColumns]: 16 KB, half of the first cache.
inline constexpr std::int32_t kPanelColumns = 2 * kUnit;
inline constexpr std::int32_t kPanelWords = kPanelBlocks * kBlockWords * kPanelColumns;

/// A panel of a product.
struct Panel {
  std::int32_t index;
  std::int32_t num_blocks;
};

/// Codes of a panel, of both units, and those that come next, which are asked for.
struct PanelCodes {
  std::array<UnitBlocks, kPanelColumns / kUnit> units;
  std::array<UnitBlocks, kPanelColumns / kUnit> next;
};
/// sums[row, kPanelColumns] += x . w for panel `panel` of the rows. The first tile decodes to `words`, where look-ups hide behind products; the
/// others use them. They are times their scales: is_exact must hold for both factors.
void multiply_panel(const Rows& x, std::int32_t panel, const PanelCodes& w, std::uint32_t* words, float* sums);

/// The same with words of both units that lie ready, [block][kBlockWords][kUnit], and those that come next, which are asked for.
struct PanelUnits {
  std::array<const std::uint32_t*, kPanelColumns / kUnit> units;
  std::array<const std::uint32_t*, kPanelColumns / kUnit> next;
};
void multiply_panel(const Rows& x, Panel panel, const PanelUnits& w, float* sums);

/// The same for all tiles but the first, with words of a panel.
void multiply_other_tiles(const Rows& x, Panel panel, const std::uint32_t* words, float* sums);

/// One instruction: acc[i] + upper halves of a[i] and b[i] + lower halves of them, for 16 lanes; for tests.
void add_pair_products(const std::uint32_t* a, const std::uint32_t* b, float* acc);
/// For measuring the peak: products of registers. Returns the FLOPs done.
double multiply_in_registers(std::int64_t rounds);

}  // namespace deepinfer::cpu::pairs
