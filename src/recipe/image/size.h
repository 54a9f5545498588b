// How large an image is when the model sees it, and how many tokens it takes: arithmetic on sizes, no pixels.
// Source: spec/recipe.md section 5.
#pragma once

#include <cstdint>

namespace deepinfer::recipe {

/// How a model cuts images; the values are those of the released one.
struct ImageSizing {
  std::int32_t patch_pixels = 14;        ///< side of a vision patch
  std::int32_t cell_pixels = 42;         ///< side of what one image token covers: a multiple of patch_pixels
  std::int32_t max_tokens = 1024;        ///< of one image, at least 4
  std::int64_t min_pixels = 544 * 544;  ///< smaller images are enlarged
};

struct PixelSize {
  std::int32_t width = 0;   ///< positive
  std::int32_t height = 0;  ///< positive

  friend bool operator==(const PixelSize&, const PixelSize&) = default;
};

/// Tokens of an image of exactly this size: a row of cells with a line break each, and the two ends.
[[nodiscard]] std::int64_t image_tokens(PixelSize size, const ImageSizing& sizing = {});

/// Tokens of an image that is stored with this size: of the size that the rule makes of it.
[[nodiscard]] std::int64_t image_tokens_of_stored(PixelSize size, const ImageSizing& sizing = {});

/// The size with a longer side of at most `max_side`, in the same shape.
[[nodiscard]] PixelSize bounded_size(PixelSize size, std::int32_t max_side);

/// The size in which a stored image is shown to the model: its own, but for extreme shapes.
[[nodiscard]] PixelSize shown_size(PixelSize stored, const ImageSizing& sizing = {});

/// The size in which an image of `size` is stored for the model.
[[nodiscard]] PixelSize preprocessed_size(PixelSize size, const ImageSizing& sizing = {});

}  // namespace deepinfer::recipe
