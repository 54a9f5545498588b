// From the images of a request to the pixels that the model sees: reads links and data URLs, keeps the limits, decodes, resizes.
// Fetching is the caller's: this room knows no network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/image/pixels.h"

namespace deepinfer::recipe {

struct PrepareOptions {
  ImageDetail detail = ImageDetail::high;
  std::int32_t max_side_pixels = 8192;
  std::int32_t low_detail_pixels = 512;  ///< longer side at most, with detail low
  ImageSizing sizing = {};
};

struct PreparedImage {
  RgbImage pixels;
  std::int64_t num_tokens = 0;  ///< positions it takes in the prompt, its placeholder included
};

/// The pixels that the model sees of an image that was prepared: another resizing for extreme shapes only. Their size takes num_tokens.
[[nodiscard]] RgbImage shown_pixels(PreparedImage&& image, const ImageSizing& sizing);

/// One image file. `path` is how errors name its place; may be empty.
[[nodiscard]] std::expected<PreparedImage, ImageError> prepare_image(std::string_view bytes, const PrepareOptions& options,
                                                                     std::string_view path);

struct ImageLimits {
  std::int32_t max_images = 600;
  std::size_t max_image_bytes = std::size_t{32} << 20;
  std::size_t max_total_bytes = std::size_t{64} << 20;
  std::int32_t max_side_pixels = 8192;
  ImageSizing sizing = {};
};

/// What the images of one request have used so far.
struct ImageQuota {
  std::int32_t num_images = 0;
  std::size_t num_bytes = 0;
};

/// The body behind an http or https link; a longer one than `max_bytes` need not be read to its end. Errors: fetch, image_too_large.
using FetchImage = std::function<std::expected<std::string, ImageError::Kind>(const std::string& url, std::size_t max_bytes)>;

/// All images or the first error; the quota counts only a call that succeeds. An empty `fetch` refuses every link.
/// Order of checks: number, then each source with its size and the total, then each image's pixels.
[[nodiscard]] std::expected<std::vector<PreparedImage>, ImageError> prepare_images(std::span<const ImageSource* const> sources,
                                                                                   const ImageLimits& limits, const FetchImage& fetch,
                                                                                   ImageQuota& quota);

}  // namespace deepinfer::recipe
