// Image files to RGB pixels: WebP, PNG, JPEG and GIF, told apart by their first bytes. Not resizing, not links.
// Colours as in spec/recipe.md section 5: alpha over white, 16 bit by the high byte, the first frame, EXIF ignored.
#pragma once

#include <cstdint>
#include <expected>
#include <string_view>

#include "recipe/image/pixels.h"

namespace deepinfer::recipe {

/// A side longer than `max_side` is refused before any pixel is decoded. Memory: at most about 4 bytes for each pixel beyond the
/// result, 8 for progressive JPEG.
[[nodiscard]] std::expected<RgbImage, ImageError::Kind> decode_image(std::string_view bytes, std::int32_t max_side);

}  // namespace deepinfer::recipe
