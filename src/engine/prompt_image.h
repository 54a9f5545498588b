// Images of a prompt as plain values: pixels in the size in which the model sees them, and the positions that stand for them.
// Not here: where pixels come from (recipe), what becomes of them (request_images.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kvcache/block_hash.h"
#include "model/deepseek_v41/config.h"

namespace deepinfer::engine {

struct ImageContent {
  std::int32_t width = 0;         ///< a multiple of the patch size
  std::int32_t height = 0;        ///< likewise
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
  kvcache::BlockHash hash;        ///< of all three
};
/// With its hash.
[[nodiscard]] std::shared_ptr<const ImageContent> make_image_content(std::int32_t width, std::int32_t height,
                                                                     std::vector<std::uint8_t> rgb);

struct PromptImage {
  std::int32_t first_position = 0;
  std::int32_t num_tokens = 0;  ///< delimiters included; the prompt has the image token at each of these positions
  std::shared_ptr<const ImageContent> content;
};

/// What an engine takes of images.
struct ImageRules {
  std::optional<model::VisionConfig> vision;  ///< absent: no images
  std::int32_t max_span = 0;                  ///< positions of one image at most: it is computed in one step
};

/// `images` in a prompt of `num_prompt` tokens. Errors: unsupported for a model without vision; invalid_argument.
[[nodiscard]] Result<void> check_images(std::span<const PromptImage> images, std::size_t num_prompt, const ImageRules& rules);

}  // namespace deepinfer::engine
