// Base64 (RFC 4648, standard alphabet): the forgiving form of data URLs, the strict form of the Messages API, and encoding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::recipe {

/// WHATWG "forgiving-base64 decode": blanks anywhere, padding right or missing. nullopt: malformed. Reuses the memory of `text`.
[[nodiscard]] std::optional<std::string> decode_forgiving_base64(std::string text);

/// Right padding, no blanks, no stray bits in the last digit.
[[nodiscard]] bool is_strict_base64(std::string_view text);

[[nodiscard]] std::string encode_base64(std::string_view bytes);

}  // namespace deepinfer::recipe
