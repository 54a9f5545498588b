// The decoders behind decode_image(), one for each format. All take the bytes of a whole file that begins like one of theirs.
#pragma once

#include <cstdint>
#include <expected>
#include <string_view>

#include "recipe/image/pixels.h"

namespace deepinfer::recipe {

using DecodedImage = std::expected<RgbImage, ImageError::Kind>;

[[nodiscard]] DecodedImage decode_png(std::string_view bytes, std::int32_t max_side);
[[nodiscard]] DecodedImage decode_jpeg(std::string_view bytes, std::int32_t max_side);
[[nodiscard]] DecodedImage decode_webp(std::string_view bytes, std::int32_t max_side);
[[nodiscard]] DecodedImage decode_gif(std::string_view bytes, std::int32_t max_side);

/// Whether both sides are in [1, max_side]. Unsigned: sizes come from files.
[[nodiscard]] constexpr bool fits(std::uint32_t width, std::uint32_t height, std::int32_t max_side) {
  const auto limit = static_cast<std::uint32_t>(max_side);
  return width >= 1 && width <= limit && height >= 1 && height <= limit;
}

/// RGBA to RGB over white, in the same memory. `pixels`: [height, width, 4].
[[nodiscard]] RgbImage over_white(PixelSize size, std::vector<std::uint8_t> pixels);

}  // namespace deepinfer::recipe
