// Shrinks an image and puts it on the canvas that the model sees. Not the choice of these sizes (size.h).
#pragma once

#include "recipe/image/pixels.h"

namespace deepinfer::recipe {

/// The image made smaller: every pixel is the mean of the area that it covers. `size`: no side longer than that of the image.
[[nodiscard]] RgbImage shrink(const RgbImage& image, PixelSize size);

/// The image in the middle of a grey (127) canvas of size `canvas`, stretched until it fits with its shape kept. Bicubic with
/// a = -0.75 and edges repeated, without smoothing when it shrinks; in the 11-bit fixed point of the official component's library.
[[nodiscard]] RgbImage fit_on_canvas(const RgbImage& image, PixelSize canvas);

}  // namespace deepinfer::recipe
