// UTF-8 at the byte level: validation and code points. Unicode properties live where ICU is used (tokenizer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::utf8 {

/// Length in bytes of the well-formed sequence at the start of `text` (1…4); 0 when there is none.
/// Overlong forms, surrogates and values above U+10FFFF are not well formed.
[[nodiscard]] std::size_t sequence_length(std::string_view text);

/// Bytes of the well-formed sequences of two to four bytes at the start of `text`: up to the first byte that is ASCII or ill formed.
[[nodiscard]] std::size_t multibyte_run(std::string_view text);

/// Offset of the first byte that starts no well-formed sequence; text.size() when the whole text is valid.
[[nodiscard]] std::size_t first_invalid(std::string_view text);

[[nodiscard]] inline bool is_valid(std::string_view text) { return first_invalid(text) == text.size(); }

/// Appends the UTF-8 form of `code_point`, which must be a Unicode scalar value.
void append(std::string& out, std::uint32_t code_point);

/// The code point at the start of `text`, which must start with a well-formed sequence.
[[nodiscard]] std::uint32_t decode(std::string_view text);

/// `bytes` with every maximal ill-formed part replaced by U+FFFD (Unicode's recommended practice, as Rust and Python do).
[[nodiscard]] std::string replace_invalid(std::string_view bytes);

}  // namespace deepinfer::utf8
