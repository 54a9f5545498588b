#include "recipe/image/size.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::recipe {

namespace {

constexpr std::int64_t kMinPixels = 544 * 544;
/// Sides above this cannot be stored as WebP (16,383 at most), which the official component does.
constexpr std::int32_t kMaxStoredPixels = 16380;

constexpr std::int32_t round_up_to_patches(std::int32_t side) { return (side + kPatchPixels - 1) / kPatchPixels * kPatchPixels; }

PixelSize with_min_pixels(PixelSize size) {
  const std::int64_t pixels = std::int64_t{size.width} * size.height;
  if (pixels >= kMinPixels) {
    return size;
  }
  const double scale = std::sqrt(static_cast<double>(kMinPixels) / static_cast<double>(pixels));
  return {.width = static_cast<std::int32_t>(size.width * scale), .height = static_cast<std::int32_t>(size.height * scale)};
}

/// The largest size of about the same shape whose tokens are at most kMaxImageTokens.
PixelSize with_max_tokens(PixelSize size) {
  constexpr double kCells = kMaxImageTokens - 2;  // rows * (cols + 1)
  const double ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
  const double rows = (-1.0 + std::sqrt(1.0 + 4.0 * ratio * kCells)) / (2.0 * ratio);
  const auto num_rows = static_cast<std::int32_t>(rows);
  const auto num_cols = static_cast<std::int32_t>(ratio * rows);
  if (num_rows == 0) {
    return {.width = (kMaxImageTokens - 3) * kCellPixels, .height = kCellPixels};
  }
  if (num_cols == 0) {
    return {.width = kCellPixels, .height = (kMaxImageTokens - 2) / 2 * kCellPixels};
  }
  const double scale =
      std::min(static_cast<double>(kCellPixels * num_rows) / size.height, static_cast<double>(kCellPixels * num_cols) / size.width);
  const auto fit = [scale](std::int32_t side) { return static_cast<std::int32_t>(side * scale / kPatchPixels) * kPatchPixels; };
  return {.width = fit(size.width), .height = fit(size.height)};
}

/// One round of the rule: at least kMinPixels, multiples of a patch, at most kMaxImageTokens.
PixelSize fit_to_patches(PixelSize size) {
  size = with_min_pixels(size);
  const PixelSize rounded{.width = round_up_to_patches(size.width), .height = round_up_to_patches(size.height)};
  return image_tokens(rounded) <= kMaxImageTokens ? rounded : with_max_tokens(size);
}

PixelSize fit_repeatedly(PixelSize size) {
  for (;;) {
    const PixelSize next = fit_to_patches(size);
    if (next == size) {
      return size;
    }
    size = next;
  }
}

}  // namespace

std::int64_t image_tokens(PixelSize size) {
  const std::int64_t rows = (size.height + kCellPixels - 1) / kCellPixels;
  const std::int64_t cols = (size.width + kCellPixels - 1) / kCellPixels;
  return rows * (cols + 1) + 2;
}

std::int64_t image_tokens_of_stored(PixelSize size) { return image_tokens(fit_repeatedly(size)); }

PixelSize bounded_size(PixelSize size, std::int32_t max_side) {
  const std::int32_t longer = std::max(size.width, size.height);
  if (longer <= max_side) {
    return size;
  }
  const double scale = static_cast<double>(max_side) / longer;
  const auto fit = [scale](std::int32_t side) { return std::max(1, static_cast<std::int32_t>(std::lround(side * scale))); };
  return {.width = fit(size.width), .height = fit(size.height)};
}

PixelSize preprocessed_size(PixelSize size) {
  const auto capped = [](PixelSize of) {
    return PixelSize{.width = std::min(of.width, kMaxStoredPixels), .height = std::min(of.height, kMaxStoredPixels)};
  };
  const PixelSize out = fit_repeatedly(size);
  return capped(out) == out ? out : capped(fit_repeatedly(capped(out)));  // the other side grows instead
}

}  // namespace deepinfer::recipe
