// Products with the instruction that adds two bf16 products to each lane of a register (AVX512_BF16, VDPBF16PS). It adds them one after the
// other, each by a fused multiply-add, that of the upper halves first (Intel SDM; tests/backends/pairs_test.cpp compares bit by bit), so that two
// steps of the sums of units-inl.h are one instruction when words hold values of k that are two apart: k + 2 in the lower half, k in the upper.
// For 32 values of k there are 16 words: even and odd ones in turn, ascending.
// The instruction takes numbers below 2^-126 for zero: callers keep away from them (is_exact with kUnscaled, for codes of weights are multiplied
// without their scale). Not here: which product goes where (quantised-inl.h).
#pragma once

#include <cstdint>

#include "backends/cpu/fast/packed_weights.h"
#include "backends/cpu/fast/scale_range.h"

namespace deepinfer::cpu::pairs {

inline constexpr std::int32_t kMostRowsBesideMatrix = 3;  ///< up to here pairs are faster than the matrix unit, where there is one

/// True on a processor with the instruction and with the look-ups that decoding needs.
[[nodiscard]] bool is_usable();

/// A Q8 row as `width` / 2 words; NaN codes stay NaN. width: multiple of 32.
ScaleRange decode_q8_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::uint32_t* out);

/// Rows of words, from the first block of a product on.
struct Rows {
  const std::uint32_t* words;
  std::int64_t stride;
  std::int32_t count;
};

/// sums[row, 16 columns] = x . w, 16 floats from row to row. Eight rows at a time share what is decoded, which is not stored: decoding it again for
/// the next eight costs less than a panel of decoded weights.
void multiply(const Rows& x, const UnitBlocks& w, float* sums);

/// One instruction: acc[i] + upper halves of a[i] and b[i] + lower halves of them, for 16 lanes; for tests.
void add_pair_products(const std::uint32_t* a, const std::uint32_t* b, float* acc);
/// For measuring the peak: products of registers. Returns the FLOPs done.
double multiply_in_registers(std::int64_t rounds);

}  // namespace deepinfer::cpu::pairs
