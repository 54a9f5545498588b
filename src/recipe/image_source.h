// What conversion checks about an image without loading it: the form of links and data URLs (spec/recipe.md 4.1 and 5).
// Not here: fetching, decoding, sizes, quotas.
#pragma once

#include <cstddef>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "recipe/conversation.h"
#include "recipe/request_error.h"

namespace deepinfer::recipe {

inline constexpr std::size_t kMaxLinkBytes = 8192;

/// Text that replaces an image for a model without vision.
inline constexpr std::string_view kUnsupportedImage = "[Unsupported Image]";

/// Starts with "http" in any case; the official check looks no further.
[[nodiscard]] bool is_link(std::string_view url);

/// Media type of an image that can be decoded: png, jpeg (or jpg), gif, webp.
[[nodiscard]] bool is_image_media_type(std::string_view media_type);

/// "external link length N too long, …" for a link over the limit.
[[nodiscard]] std::optional<std::string> link_length_problem(std::string_view url);

/// A link or a base64 data URL of a supported type. Errors begin with `path`.
[[nodiscard]] std::expected<ImageSource, RequestError> image_from_url(std::string url, ImageDetail detail, std::string path);

[[nodiscard]] std::unexpected<RequestError> reject_file_id(std::string_view path);

}  // namespace deepinfer::recipe
