// How weights lie for the kernels: units of sixteen rows of the weight (columns of the product), cut into blocks of 32 k values.
// A block holds what one step of a product reads, so that a unit is one stream of bytes. Quantised: the same bytes as the row layout, in
// another order:
//   FP8, 512 bytes: for 16 pairs of k: for 16 columns: codes of k = 2 i and 2 i + 1.
//   FP4, 256 bytes: for 4 groups of k: for 16 columns: a 32-bit word with the codes of k = 8 i .. 8 i + 7; then scales [unit, block, 16].
// Scales of FP8 stay as they are, one per 32 x 32 block.
//   bf16, 1024 bytes: for the 16 words of pairs.h, of values of k two apart: for 16 columns: the word; zeros fill up the last unit and
//   block. Behind all units lies a byte for each: the least exponent of its values (bf16_columns.h).
// Not here: what is done with them (units-inl.h, bf16_units-inl.h, pairs.cpp, amx.cpp).
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/ops.h"

namespace deepinfer::cpu {

inline constexpr std::int32_t kUnit = 16;      ///< columns of a unit
inline constexpr std::int32_t kUnitDepth = 32;  ///< k values of a block

[[nodiscard]] constexpr std::int32_t block_bytes(WeightFormat format) {
  return format == WeightFormat::fp8 ? kUnit * kUnitDepth : kUnit * kUnitDepth / 2;
}

/// Consecutive blocks of one unit. FP8: one scale per block; FP4: [blocks, 16].
struct UnitBlocks {
  WeightFormat format;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  std::int32_t count;
};

/// One block from `count` rows of codes, `stride` bytes apart; columns beyond them repeat the first. Both formats move whole words: the two
/// codes of a pair, or eight packed ones.
template <class Word>
inline void pack_block_words(const std::uint8_t* rows, std::int64_t stride, std::int32_t count, std::int32_t row_bytes, std::uint8_t* out) {
  for (std::int32_t column = 0; column < kUnit; ++column) {
    const std::uint8_t* from = rows + (column < count ? column : 0) * stride;
    for (std::int32_t word = 0; word < row_bytes / static_cast<std::int32_t>(sizeof(Word)); ++word) {
      std::memcpy(out + (word * kUnit + column) * sizeof(Word), from + word * sizeof(Word), sizeof(Word));
    }
  }
}

inline void pack_block(WeightFormat format, const std::uint8_t* rows, std::int64_t stride, std::int32_t count, std::uint8_t* out) {
  if (format == WeightFormat::fp8) {
    pack_block_words<std::uint16_t>(rows, stride, count, kUnitDepth, out);
  } else {
    pack_block_words<std::uint32_t>(rows, stride, count, kUnitDepth / 2, out);
  }
}

/// In the place of the format of a quantised weight.
struct Bf16Format {};
[[nodiscard]] constexpr std::int32_t block_bytes(Bf16Format) { return 2 * kUnit * kUnitDepth; }

/// A bf16 weight [n, k] in units.
struct PlacedBf16 {
  const std::uint32_t* words;
  const std::uint8_t* exponents;  // [units]
  std::int32_t num_blocks;        ///< of a unit

  PlacedBf16(const void* data, std::int32_t n, std::int32_t k)
      : words(static_cast<const std::uint32_t*>(data)), num_blocks((k + kUnitDepth - 1) / kUnitDepth) {
    exponents = reinterpret_cast<const std::uint8_t*>(words + (n + kUnit - 1) / kUnit * unit_words());
  }
  [[nodiscard]] std::int64_t unit_words() const { return std::int64_t{num_blocks} * (block_bytes(Bf16Format()) / 4); }
  /// Of sixteen columns from `column` on, a multiple of sixteen.
  [[nodiscard]] const std::uint32_t* block(std::int32_t column, std::int32_t index) const {
    return words + column / kUnit * unit_words() + std::int64_t{index} * (block_bytes(Bf16Format()) / 4);
  }
};

}  // namespace deepinfer::cpu
