// Unicode classes of characters, as the pre-tokenisation patterns need them, one table look-up per character.
// Not ICU: the classes are those of the Unicode version of the official encoder (make_char_classes.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace deepinfer::tokenizer {

/// Bits of a character. Exactly one of letter, mark, symbol, number, space and other is set; newline and cjk come on top.
struct CharClass {
  static constexpr std::uint8_t kLetter = 1;    ///< \p{L}
  static constexpr std::uint8_t kMark = 2;      ///< \p{M}
  static constexpr std::uint8_t kSymbol = 4;    ///< \p{P} or \p{S}
  static constexpr std::uint8_t kNumber = 8;    ///< \p{N}
  static constexpr std::uint8_t kSpace = 16;    ///< \s, the property White_Space
  static constexpr std::uint8_t kNewline = 32;  ///< carriage return and line feed
  static constexpr std::uint8_t kCjk = 64;      ///< U+4E00–9FA5, U+3040–309F, U+30A0–30FF
  static constexpr std::uint8_t kOther = 128;   ///< none of the above, and bytes that are no well-formed UTF-8
};

/// One character of a text: its class bits and its length in bytes. At the end of the text both are 0.
struct ClassifiedChar {
  std::uint8_t bits = 0;
  std::uint8_t length_bytes = 0;
};

/// Immutable once built; shared by all pre-tokenisers of the process that were copied from one another.
class CharClasses {
 public:
  CharClasses();

  [[nodiscard]] std::uint8_t of(std::uint32_t code_point) const { return table_[code_point]; }

  /// The character that starts at `at`. A byte that starts no UTF-8 sequence is a character of class other by itself.
  [[nodiscard]] ClassifiedChar read(std::string_view text, std::size_t at) const {
    if (at >= text.size()) {
      return {};
    }
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      return {table_[lead], 1};
    }
    return read_multibyte(text.substr(at));
  }

 private:
  [[nodiscard]] ClassifiedChar read_multibyte(std::string_view text) const;

  std::vector<std::uint8_t> table_;  // [0x110000] class bits by code point
};

}  // namespace deepinfer::tokenizer
