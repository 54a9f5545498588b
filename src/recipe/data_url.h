// data: URLs as browsers read them (WHATWG Fetch, MIME Sniffing and forgiving base64), which is what the official recipe accepts.
// Only the parts that images need: the media type without parameters and the body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::recipe {

struct DataUrl {
  std::string media_type;  ///< lower case "type/subtype"; "text/plain" when missing or malformed
  bool is_base64 = false;
  std::string_view body;  ///< into the URL: after the comma, still encoded, a fragment included
};

/// nullopt: no data URL, or no comma before a fragment.
[[nodiscard]] std::optional<DataUrl> parse_data_url(std::string_view url);

/// The bytes of the body; nullopt when its base64 is malformed.
[[nodiscard]] std::optional<std::string> decode_body(const DataUrl& url);

}  // namespace deepinfer::recipe
