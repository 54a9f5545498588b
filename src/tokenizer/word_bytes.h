// Eight bytes of text at a time in a 64-bit word, byte i of the text in bits 8i … 8i+7. Portable stand-in for SIMD.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deepinfer::tokenizer::word_bytes {

static_assert(std::endian::native == std::endian::little, "the first byte of a text is the low byte of its word");

constexpr std::uint64_t kOnes = 0x0101010101010101U;
constexpr std::uint64_t kHighBits = 0x8080808080808080U;

inline std::uint64_t load(const char* text) {
  std::uint64_t word = 0;
  std::memcpy(&word, text, sizeof(word));
  return word;
}

/// Index of the first byte whose high bit is set in `flags`, which has such a byte.
inline std::size_t first_flag(std::uint64_t flags) { return static_cast<std::size_t>(std::countr_zero(flags)) / 8; }

/// Flags the zero bytes of `word`; bytes behind the first zero byte may be flagged wrongly.
constexpr std::uint64_t flag_zero(std::uint64_t word) { return (word - kOnes) & ~word & kHighBits; }

/// Flags the bytes that are no ASCII letters.
constexpr std::uint64_t flag_non_letters(std::uint64_t word) {
  const std::uint64_t lower = (word | kOnes * 0x20) & ~kHighBits;
  const std::uint64_t from_a = lower + kOnes * (0x80 - 'a');
  const std::uint64_t beyond_z = lower + kOnes * (0x80 - 'z' - 1);
  return (~from_a | beyond_z | word) & kHighBits;
}

}  // namespace deepinfer::tokenizer::word_bytes
