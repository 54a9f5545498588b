// How large an image is when the model sees it, and how many tokens it takes: arithmetic on sizes, no pixels.
// Source: spec/recipe.md section 5.
#pragma once

#include <cstdint>

namespace deepinfer::recipe {

inline constexpr std::int32_t kPatchPixels = 14;       ///< side of a vision patch
inline constexpr std::int32_t kCellPixels = 42;        ///< side of what one image token covers: 3 x 3 patches
inline constexpr std::int32_t kMaxImageTokens = 1024;  ///< of one image

struct PixelSize {
  std::int32_t width = 0;   ///< positive
  std::int32_t height = 0;  ///< positive

  friend bool operator==(const PixelSize&, const PixelSize&) = default;
};

/// Tokens of an image of exactly this size: a row of cells with a line break each, and the two ends.
[[nodiscard]] std::int64_t image_tokens(PixelSize size);

/// Tokens of an image that is stored with this size: of the size that the rule makes of it.
[[nodiscard]] std::int64_t image_tokens_of_stored(PixelSize size);

/// The size with a longer side of at most `max_side`, in the same shape.
[[nodiscard]] PixelSize bounded_size(PixelSize size, std::int32_t max_side);

/// The size in which an image of `size` is shown to the model.
[[nodiscard]] PixelSize preprocessed_size(PixelSize size);

}  // namespace deepinfer::recipe
