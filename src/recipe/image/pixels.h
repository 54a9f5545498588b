// Decoded images and what can be wrong with an image. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/image/size.h"

namespace deepinfer::recipe {

struct RgbImage {
  PixelSize size;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3] row-major
};

/// Why an image was refused. The kinds and messages are those of the official component.
struct ImageError {
  enum class Kind {
    empty_image,  ///< no bytes, or pixels that cannot be decoded
    decode,       ///< a header that cannot be read
    unsupported_media_type,
    dimensions_too_large,
    image_too_large,
    total_size_too_large,
    too_many_images,
    invalid_data_url,
    invalid_url,
    url_too_long,
    fetch,
  };
  Kind kind = Kind::decode;
  bool retryable = false;  ///< the same request may succeed later
  std::string message;     ///< sentence for the client, with the place of the image
};

}  // namespace deepinfer::recipe
