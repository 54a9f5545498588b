// URI references (RFC 3986) as JSON Schema needs them: well-formedness, resolution against a base, normal form.
// Not for fetching anything.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer::recipe {

struct UriReference {
  std::string_view scheme;     ///< without ':'; empty: relative
  std::string_view authority;  ///< without '//'
  std::string_view path;
  std::string_view query;     ///< without '?'
  std::string_view fragment;  ///< without '#'
  bool has_authority = false;
  bool has_query = false;
};

[[nodiscard]] UriReference split_uri(std::string_view text);

/// Only permitted characters, whole percent escapes, brackets only around a host, no colon in the first segment of a relative path.
[[nodiscard]] bool is_uri_reference(std::string_view text);

/// `reference` resolved against `base` (empty: none), without its fragment, in normal form: lower-case scheme and host, no dot
/// segments, no needless percent escapes. Both must be well formed.
[[nodiscard]] std::string resolve_uri(std::string_view base, std::string_view reference);

/// Percent escapes decoded.
[[nodiscard]] std::string percent_decode(std::string_view text);

}  // namespace deepinfer::recipe
