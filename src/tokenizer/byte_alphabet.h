// The GPT-2 byte alphabet: every byte has one printable character, so that vocabulary files are text.
// Not UTF-8 repair: bytes are whatever the tokens say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::tokenizer {

/// The bytes that `spelling` stands for; nullopt when a character of it is outside the alphabet.
[[nodiscard]] std::optional<std::string> bytes_of_spelling(std::string_view spelling);

/// The spelling of `bytes` in the alphabet, UTF-8.
[[nodiscard]] std::string spelling_of_bytes(std::string_view bytes);

}  // namespace deepinfer::tokenizer
