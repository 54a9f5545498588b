// A fixed partition of the Unicode characters into few classes. Loops of grammars ("any letters", "all but a quote") take or leave
// nearly all classes whole, so that one word says which tokens stay inside a loop.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/code_set.h"

namespace deepinfer::grammar {

/// One bit a class.
using CharClasses = std::uint64_t;

/// The end of a text inside a character; taken by loops over everything beyond ASCII.
inline constexpr CharClasses kCutChar = CharClasses{1} << 62;
/// Bytes that are no UTF-8; never inside a loop.
inline constexpr CharClasses kNoChar = CharClasses{1} << 63;

/// Texts over `classes` of up to `length` characters.
struct FreeText {
  CharClasses classes = 0;
  std::uint32_t length = 0xFFFFFFFF;  ///< that: without end
};

/// Every beginning of more than `length` characters has one of `classes` among its first `length` + 1.
struct Gate {
  CharClasses classes = ~CharClasses{0};
  std::uint32_t length = 0;
};

/// The classes whose characters are all in `set`.
[[nodiscard]] CharClasses classes_within(const CodeSet& set);
/// The classes that have a character in `set`, kCutChar with those beyond ASCII.
[[nodiscard]] CharClasses classes_touching(const CodeSet& set);
/// The classes of the characters that a byte can begin.
[[nodiscard]] CharClasses classes_of_first_byte(std::uint8_t byte);
/// The classes that a JSON string can hold as they are.
[[nodiscard]] CharClasses classes_of_json_strings();
/// What ends a JSON string or begins an escape.
[[nodiscard]] CharClasses classes_of_json_marks();
/// For each place in `bytes` and for its end, in order: the classes of what comes from there on; kNoChar inside a character.
[[nodiscard]] std::vector<CharClasses> classes_from_each_byte(std::string_view bytes);
/// For each length up to that of `bytes`: the number of the class of the character that ends there; 64 where none does.
[[nodiscard]] std::vector<std::uint8_t> class_bits_of_ends(std::string_view bytes);

}  // namespace deepinfer::grammar
