#include "recipe/image/decode.h"

#include <utility>

#include "recipe/image/formats.h"

namespace deepinfer::recipe {

RgbImage over_white(PixelSize size, std::vector<std::uint8_t> pixels) {
  constexpr std::uint32_t kWhite = 255;
  const std::size_t num_pixels = pixels.size() / 4;
  for (std::size_t i = 0; i < num_pixels; ++i) {
    const std::uint32_t alpha = pixels[4 * i + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const std::uint32_t sum = pixels[4 * i + channel] * alpha + kWhite * (kWhite - alpha);
      pixels[3 * i + channel] = static_cast<std::uint8_t>((sum + kWhite / 2) / kWhite);
    }
  }
  pixels.resize(num_pixels * 3);
  return {.size = size, .rgb = std::move(pixels)};
}

std::expected<RgbImage, ImageError::Kind> decode_image(std::string_view bytes, std::int32_t max_side) {
  if (bytes.empty()) {
    return std::unexpected(ImageError::Kind::empty_image);
  }
  if (bytes.starts_with("\x89PNG")) {
    return decode_png(bytes, max_side);
  }
  if (bytes.starts_with("\xFF\xD8\xFF")) {
    return decode_jpeg(bytes, max_side);
  }
  if (bytes.starts_with("GIF8")) {
    return decode_gif(bytes, max_side);
  }
  if (bytes.starts_with("GIF")) {  // meant as one
    return std::unexpected(ImageError::Kind::decode);
  }
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) {
    return decode_webp(bytes, max_side);
  }
  return std::unexpected(ImageError::Kind::unsupported_media_type);
}

}  // namespace deepinfer::recipe
