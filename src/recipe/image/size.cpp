#include "recipe/image/size.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::recipe {

namespace {

/// Sides above this cannot be stored as WebP, which the official component does.
constexpr std::int32_t kMaxWebpPixels = 16383;

std::int32_t round_up(std::int32_t side, std::int32_t step) { return (side + step - 1) / step * step; }

PixelSize with_min_pixels(PixelSize size, const ImageSizing& sizing) {
  const std::int64_t pixels = std::int64_t{size.width} * size.height;
  if (pixels >= sizing.min_pixels) {
    return size;
  }
  const double scale = std::sqrt(static_cast<double>(sizing.min_pixels) / static_cast<double>(pixels));
  return {.width = static_cast<std::int32_t>(size.width * scale), .height = static_cast<std::int32_t>(size.height * scale)};
}

/// The largest size of about the same shape whose tokens are at most max_tokens.
PixelSize with_max_tokens(PixelSize size, const ImageSizing& sizing) {
  const std::int32_t cell = sizing.cell_pixels;
  const double cells = sizing.max_tokens - 2;  // rows * (cols + 1)
  const double ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
  const double rows = (-1.0 + std::sqrt(1.0 + 4.0 * ratio * cells)) / (2.0 * ratio);
  const auto num_rows = static_cast<std::int32_t>(rows);
  const auto num_cols = static_cast<std::int32_t>(ratio * rows);
  if (num_rows == 0) {
    return {.width = (sizing.max_tokens - 3) * cell, .height = cell};
  }
  if (num_cols == 0) {
    return {.width = cell, .height = (sizing.max_tokens - 2) / 2 * cell};
  }
  const double scale = std::min(static_cast<double>(cell * num_rows) / size.height, static_cast<double>(cell * num_cols) / size.width);
  const std::int32_t patch = sizing.patch_pixels;
  const auto fit = [scale, patch](std::int32_t side) { return std::max(patch, static_cast<std::int32_t>(side * scale / patch) * patch); };
  return {.width = fit(size.width), .height = fit(size.height)};
}

/// One round of the rule: at least min_pixels, multiples of a patch, at most max_tokens.
PixelSize fit_to_patches(PixelSize size, const ImageSizing& sizing) {
  size = with_min_pixels(size, sizing);
  const PixelSize rounded{.width = round_up(size.width, sizing.patch_pixels), .height = round_up(size.height, sizing.patch_pixels)};
  return image_tokens(rounded, sizing) <= sizing.max_tokens ? rounded : with_max_tokens(size, sizing);
}

/// Rounds until nothing changes; a model whose limits contradict each other has the size of the last one.
PixelSize fit_repeatedly(PixelSize size, const ImageSizing& sizing) {
  constexpr int kMostRounds = 100;  // the released limits take a few
  for (int round = 0; round < kMostRounds; ++round) {
    const PixelSize next = fit_to_patches(size, sizing);
    if (next == size) {
      break;
    }
    size = next;
  }
  return size;
}

}  // namespace

PixelSize shown_size(PixelSize stored, const ImageSizing& sizing) { return fit_repeatedly(stored, sizing); }

std::int64_t image_tokens(PixelSize size, const ImageSizing& sizing) {
  const std::int64_t rows = round_up(size.height, sizing.cell_pixels) / sizing.cell_pixels;
  const std::int64_t cols = round_up(size.width, sizing.cell_pixels) / sizing.cell_pixels;
  return rows * (cols + 1) + 2;
}

std::int64_t image_tokens_of_stored(PixelSize size, const ImageSizing& sizing) {
  return image_tokens(fit_repeatedly(size, sizing), sizing);
}

PixelSize bounded_size(PixelSize size, std::int32_t max_side) {
  const std::int32_t longer = std::max(size.width, size.height);
  if (longer <= max_side) {
    return size;
  }
  const double scale = static_cast<double>(max_side) / longer;
  const auto fit = [scale](std::int32_t side) { return std::max(1, static_cast<std::int32_t>(std::lround(side * scale))); };
  return {.width = fit(size.width), .height = fit(size.height)};
}

PixelSize preprocessed_size(PixelSize size, const ImageSizing& sizing) {
  const auto capped = [&sizing](PixelSize of) {
    const std::int32_t most = kMaxWebpPixels / sizing.patch_pixels * sizing.patch_pixels;
    return PixelSize{.width = std::min(of.width, most), .height = std::min(of.height, most)};
  };
  const PixelSize out = fit_repeatedly(size, sizing);
  return capped(out) == out ? out : capped(fit_repeatedly(capped(out), sizing));  // the other side grows instead
}

}  // namespace deepinfer::recipe
