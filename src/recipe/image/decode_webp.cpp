// WebP through libwebp; of an animation the first frame.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <utility>

#include "recipe/image/formats.h"

namespace deepinfer::recipe {

namespace {

const std::uint8_t* data_of(std::string_view bytes) { return reinterpret_cast<const std::uint8_t*>(bytes.data()); }

/// The first frame on its canvas, RGBA; nullopt when it cannot be decoded.
std::vector<std::uint8_t> first_frame(std::string_view bytes, std::size_t num_bytes) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) {
    return {};
  }
  options.color_mode = MODE_RGBA;
  const WebPData data{.bytes = data_of(bytes), .size = bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  std::uint8_t* frame = nullptr;
  int timestamp = 0;
  if (!decoder || WebPAnimDecoderGetNext(decoder.get(), &frame, &timestamp) == 0) {
    return {};
  }
  return {frame, frame + num_bytes};
}

}  // namespace

DecodedImage decode_webp(std::string_view bytes, std::int32_t max_side) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data_of(bytes), bytes.size(), &features) != VP8_STATUS_OK) {
    return std::unexpected(ImageError::Kind::decode);
  }
  if (!fits(static_cast<std::uint32_t>(features.width), static_cast<std::uint32_t>(features.height), max_side)) {
    return std::unexpected(ImageError::Kind::dimensions_too_large);
  }
  const PixelSize size{.width = features.width, .height = features.height};
  const std::size_t num_bytes = std::size_t{4} * static_cast<std::size_t>(size.width) * static_cast<std::size_t>(size.height);
  std::vector<std::uint8_t> pixels;
  if (features.has_animation != 0) {
    pixels = first_frame(bytes, num_bytes);
  } else {
    pixels.resize(num_bytes);
    if (WebPDecodeRGBAInto(data_of(bytes), bytes.size(), pixels.data(), num_bytes, 4 * size.width) == nullptr) {
      pixels.clear();
    }
  }
  if (pixels.empty()) {
    return std::unexpected(ImageError::Kind::empty_image);
  }
  return over_white(size, std::move(pixels));
}

}  // namespace deepinfer::recipe
