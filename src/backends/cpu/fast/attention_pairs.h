// Scores and value sums of attention with the instruction that adds two bf16 products to each lane (pairs.h), the earlier one first: two keys'
// columns, or two keys, of the order that attention_kernels.cpp adds in. Words hold an even place in the upper half and the next one in the lower.
// The instruction takes numbers below 2^-126 for zero: callers keep away from them. Not here: softmax and what is done with the results.
#pragma once

#include <cstdint>

namespace deepinfer::cpu::attention_pairs {

inline constexpr std::int32_t kHeads = 16;      ///< of a query
inline constexpr std::int32_t kFewHeads = 8;    ///< up to here two keys share a register
inline constexpr std::int32_t kKeyStep = 16;    ///< keys that are scored together; so many pointers may be read
inline constexpr std::int32_t kColumnStep = 32;  ///< columns of a key come in such steps

/// Keys as words of two columns, [width / 2] each.
struct Keys {
  const std::uint32_t* const* rows;
  std::int32_t count;
  std::int32_t width;  ///< columns, a multiple of kColumnStep
};

/// scores[key, 16 heads]; query: [width / 2, 16 heads] words of two columns.
void score_all_heads(const std::uint32_t* query, const Keys& keys, float* scores);
/// scores[key, 8 heads]; query: the eight heads twice.
void score_few_heads(const std::uint32_t* query, const Keys& keys, float* scores);

/// out[8 heads, width] = sum over keys of probability * key; an even number of keys. probabilities: words of two keys, `stride` from one to the next
/// two keys.
void sum_values(const Keys& keys, const std::uint32_t* probabilities, std::int64_t stride, float* out);

}  // namespace deepinfer::cpu::attention_pairs
