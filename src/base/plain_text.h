// Where a JSON string needs care: finds the next byte that is not plain, eight bytes at a time. For json.cpp and json_parser.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace deepinfer::json {

/// Bytes beside quotes, backslashes and controls that end a plain run.
enum class PlainText { ascii, any };

/// Bytes before the first quote, backslash, control character below U+0020 and, with PlainText::ascii, byte above 0x7F.
template <PlainText kind>
[[nodiscard]] inline std::size_t plain_bytes(std::string_view text) {
  static_assert(std::endian::native == std::endian::little, "the lowest byte of a word is the first of the text");
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kHighBits = 0x80 * kOnes;
  const auto below = [](std::uint64_t word, std::uint64_t limit) { return (word - limit * kOnes) & ~word & kHighBits; };
  // In each of the three tests a borrow can mark only bytes above one that is marked rightly: the lowest mark is always right.
  const auto marks = [below](std::uint64_t word) {
    const std::uint64_t special = below(word, 0x20) | below(word ^ '"' * kOnes, 1) | below(word ^ '\\' * kOnes, 1);
    return kind == PlainText::ascii ? special | (word & kHighBits) : special;
  };
  std::size_t at = 0;
  while (text.size() - at >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof(word));
    if (const std::uint64_t found = marks(word)) {
      return at + static_cast<std::size_t>(std::countr_zero(found)) / 8;
    }
    at += sizeof(word);
  }
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == '"' || byte == '\\' || (kind == PlainText::ascii && byte >= 0x80)) {
      break;
    }
  }
  return at;
}

}  // namespace deepinfer::json
