#include "grammar/char_classes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "base/utf8.h"

namespace deepinfer::grammar {

namespace {

struct ClassRange {
  char32_t low = 0;
  char32_t high = 0;
  int bit = 0;
};

enum Bit : int {
  low_a,  // 26 letters one by one: patterns are full of words
  low_z = low_a + 25,
  control,
  line_feed,
  tab,
  carriage_return,
  space,
  quote,
  backslash,
  digit,
  high_hex_letter,
  high_letter,
  underscore,
  minus,
  dot,
  slash,
  colon,
  comma,
  semicolon,
  at_sign,
  hash,
  dollar,
  apostrophe,
  round,
  square,
  curly,
  other_ascii,
  wide_blank,
  latin,
  cyrillic,
  kana,
  han,
  hangul,
  set_apart,  // private use, noncharacters, controls: what names and addresses leave out
  other_wide,
};
constexpr int kNumBits = Bit::other_wide + 1;
static_assert(kNumBits <= 62);

/// All scalar values but the lower-case letters, ascending.
constexpr std::array kRanges{
    ClassRange{0x0, 0x8, control},           ClassRange{0x9, 0x9, tab},
    ClassRange{0xA, 0xA, line_feed},         ClassRange{0xB, 0xC, control},
    ClassRange{0xD, 0xD, carriage_return},   ClassRange{0xE, 0x1F, control},
    ClassRange{0x20, 0x20, space},           ClassRange{0x21, 0x21, other_ascii},
    ClassRange{0x22, 0x22, quote},           ClassRange{0x23, 0x23, hash},
    ClassRange{0x24, 0x24, dollar},          ClassRange{0x25, 0x26, other_ascii},
    ClassRange{0x27, 0x27, apostrophe},      ClassRange{0x28, 0x29, round},
    ClassRange{0x2A, 0x2B, other_ascii},     ClassRange{0x2C, 0x2C, comma},
    ClassRange{0x2D, 0x2D, minus},           ClassRange{0x2E, 0x2E, dot},
    ClassRange{0x2F, 0x2F, slash},           ClassRange{0x30, 0x39, digit},
    ClassRange{0x3A, 0x3A, colon},           ClassRange{0x3B, 0x3B, semicolon},
    ClassRange{0x3C, 0x3F, other_ascii},     ClassRange{0x40, 0x40, at_sign},
    ClassRange{0x41, 0x46, high_hex_letter}, ClassRange{0x47, 0x5A, high_letter},
    ClassRange{0x5B, 0x5B, square},          ClassRange{0x5C, 0x5C, backslash},
    ClassRange{0x5D, 0x5D, square},          ClassRange{0x5E, 0x5E, other_ascii},
    ClassRange{0x5F, 0x5F, underscore},      ClassRange{0x60, 0x60, other_ascii},
    ClassRange{0x7B, 0x7B, curly},           ClassRange{0x7C, 0x7C, other_ascii},
    ClassRange{0x7D, 0x7D, curly},           ClassRange{0x7E, 0x7F, other_ascii},
    ClassRange{0x80, 0x84, set_apart},       ClassRange{0x85, 0x85, wide_blank},
    ClassRange{0x86, 0x9F, set_apart},       ClassRange{0xA0, 0xA0, wide_blank},
    ClassRange{0xA1, 0xBF, other_wide},      ClassRange{0xC0, 0xD6, latin},
    ClassRange{0xD7, 0xD7, other_wide},      ClassRange{0xD8, 0xF6, latin},
    ClassRange{0xF7, 0xF7, other_wide},      ClassRange{0xF8, 0x24F, latin},
    ClassRange{0x250, 0x3FF, other_wide},    ClassRange{0x400, 0x481, cyrillic},
    ClassRange{0x482, 0x489, other_wide},    ClassRange{0x48A, 0x52F, cyrillic},
    ClassRange{0x530, 0x167F, other_wide},   ClassRange{0x1680, 0x1680, wide_blank},
    ClassRange{0x1681, 0x1FFF, other_wide},  ClassRange{0x2000, 0x200A, wide_blank},
    ClassRange{0x200B, 0x2027, other_wide},  ClassRange{0x2028, 0x2029, wide_blank},
    ClassRange{0x202A, 0x202E, other_wide},  ClassRange{0x202F, 0x202F, wide_blank},
    ClassRange{0x2030, 0x205E, other_wide},  ClassRange{0x205F, 0x205F, wide_blank},
    ClassRange{0x2060, 0x2FFF, other_wide},  ClassRange{0x3000, 0x3000, wide_blank},
    ClassRange{0x3001, 0x3040, other_wide},  ClassRange{0x3041, 0x3096, kana},
    ClassRange{0x3097, 0x30A0, other_wide},  ClassRange{0x30A1, 0x30FA, kana},
    ClassRange{0x30FB, 0x4DFF, other_wide},  ClassRange{0x4E00, 0x9FA5, han},
    ClassRange{0x9FA6, 0xABFF, other_wide},  ClassRange{0xAC00, 0xD7A3, hangul},
    ClassRange{0xD7A4, 0xD7FF, other_wide},  ClassRange{0xE000, 0xF8FF, set_apart},
    ClassRange{0xF900, 0xFDCF, other_wide},  ClassRange{0xFDD0, 0xFDEF, set_apart},
    ClassRange{0xFDF0, 0xFEFE, other_wide},  ClassRange{0xFEFF, 0xFEFF, wide_blank},
    ClassRange{0xFF00, 0xFFEF, other_wide},  ClassRange{0xFFF0, 0xFFFF, set_apart},
    ClassRange{0x10000, 0x1FFFD, other_wide}, ClassRange{0x1FFFE, 0x1FFFF, set_apart},
    ClassRange{0x20000, 0x2FFFD, other_wide}, ClassRange{0x2FFFE, 0x10FFFF, set_apart},
};

constexpr CharClasses bit_of(int bit) { return CharClasses{1} << bit; }
constexpr CharClasses kWide =
    bit_of(wide_blank) | bit_of(latin) | bit_of(cyrillic) | bit_of(kana) | bit_of(han) | bit_of(hangul) | bit_of(set_apart) | bit_of(other_wide);

CharClasses class_of(char32_t code_point) {
  if (code_point >= U'a' && code_point <= U'z') {
    return bit_of(low_a + static_cast<int>(code_point - U'a'));
  }
  return bit_of(std::ranges::lower_bound(kRanges, code_point, {}, &ClassRange::high)->bit);
}

/// `rest` is the beginning of a longer character.
bool is_cut_char(std::string_view rest) {
  constexpr std::size_t kMaxMissing = 3;
  for (std::size_t missing = 1; missing <= kMaxMissing; ++missing) {
    for (const char filler : {'\x80', '\xBF'}) {
      if (utf8::sequence_length(std::string(rest).append(missing, filler)) == rest.size() + missing) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

CharClasses classes_within(const CodeSet& set) {
  CharClasses out = bit_of(kNumBits) - 1;
  const auto drop_unless_within = [&](char32_t low, char32_t high, int bit) {
    const auto place = std::ranges::lower_bound(set, low, {}, &CodeRange::high);
    if (place == set.end() || place->low > low || place->high < high) {
      out &= ~bit_of(bit);
    }
  };
  for (const ClassRange& range : kRanges) {
    drop_unless_within(range.low, range.high, range.bit);
  }
  for (int letter = 0; letter < 26; ++letter) {
    const char32_t code_point = U'a' + static_cast<char32_t>(letter);
    drop_unless_within(code_point, code_point, low_a + letter);
  }
  return (out & kWide) == kWide ? out | kCutChar : out;
}

CharClasses classes_touching(const CodeSet& set) {
  CharClasses out = 0;
  const auto add_if_touched = [&](char32_t low, char32_t high, int bit) {
    const auto place = std::ranges::lower_bound(set, low, {}, &CodeRange::high);
    if (place != set.end() && place->low <= high) {
      out |= bit_of(bit);
    }
  };
  for (const ClassRange& range : kRanges) {
    add_if_touched(range.low, range.high, range.bit);
  }
  for (int letter = 0; letter < 26; ++letter) {
    const char32_t code_point = U'a' + static_cast<char32_t>(letter);
    add_if_touched(code_point, code_point, low_a + letter);
  }
  return (out & kWide) != 0 ? out | kCutChar : out;
}

CharClasses classes_of_first_byte(std::uint8_t byte) { return byte < 0x80 ? class_of(byte) : kWide | kCutChar | kNoChar; }

CharClasses classes_of_json_marks() { return bit_of(quote) | bit_of(backslash); }

CharClasses classes_of_json_strings() {
  constexpr CharClasses kEscaped =
      bit_of(control) | bit_of(line_feed) | bit_of(tab) | bit_of(carriage_return) | bit_of(quote) | bit_of(backslash);
  return ~(kEscaped | kNoChar);
}

std::vector<CharClasses> classes_from_each_byte(std::string_view bytes) {
  std::vector<CharClasses> out(bytes.size() + 1, kNoChar);
  out.back() = 0;
  struct Place {
    std::size_t at = 0;
    CharClasses classes = 0;
  };
  std::vector<Place> places;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string_view rest = bytes.substr(at);
    const std::size_t length = utf8::sequence_length(rest);
    if (length == 0) {
      places.push_back({at, is_cut_char(rest) ? kCutChar : kNoChar});
      break;
    }
    places.push_back({at, class_of(utf8::decode(rest))});
    at += length;
  }
  CharClasses below = 0;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    below |= place->classes;
    out[place->at] = below;
  }
  return out;
}

std::vector<std::uint8_t> class_bits_of_ends(std::string_view bytes) {
  constexpr std::uint8_t kNone = 64;
  std::vector<std::uint8_t> out(bytes.size() + 1, kNone);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = utf8::sequence_length(bytes.substr(at));
    if (length == 0) {
      break;
    }
    const CharClasses of_char = class_of(utf8::decode(bytes.substr(at)));
    at += length;
    out[at] = static_cast<std::uint8_t>(std::countr_zero(of_char));
  }
  return out;
}

}  // namespace deepinfer::grammar
