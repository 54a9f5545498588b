// Whether a pattern of a JSON Schema is a regular expression that the official package accepts: ECMAScript syntax without
// \k, \0 and surrogate pairs, with inline flags, possessive quantifiers and Unicode properties. Checks only; no matching.
#pragma once

#include <string_view>

namespace deepinfer::recipe {

/// `pattern` is valid UTF-8.
[[nodiscard]] bool is_valid_regex(std::string_view pattern);

}  // namespace deepinfer::recipe
