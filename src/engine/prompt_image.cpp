#include "engine/prompt_image.h"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "model/deepseek_v41/vision.h"

namespace deepinfer::engine {
namespace {

/// What is wrong with one image, as the end of a sentence; empty when nothing is.
std::string problem_of(const PromptImage& image, std::int64_t first_free, std::size_t num_prompt, const ImageRules& rules) {
  const std::int64_t end = std::int64_t{image.first_position} + image.num_tokens;
  if (image.first_position < first_free || image.num_tokens < 1 || end > static_cast<std::int64_t>(num_prompt)) {
    return "takes positions from " + std::to_string(image.first_position) + " to " + std::to_string(end - 1) +
           "; images follow each other inside the prompt";
  }
  if (image.content == nullptr) {
    return "has no pixels";
  }
  const ImageContent& content = *image.content;
  const std::string size = std::to_string(content.width) + "x" + std::to_string(content.height) + " pixels";
  const std::int32_t side = rules.vision->patch_size;
  if (content.width < 1 || content.height < 1 || content.width % side != 0 || content.height % side != 0) {
    return "has " + size + "; the model sees multiples of " + std::to_string(side);
  }
  if (content.rgb.size() != static_cast<std::size_t>(content.width) * static_cast<std::size_t>(content.height) * 3) {
    return "has " + std::to_string(content.rgb.size()) + " values for " + size;
  }
  const std::int32_t num_tokens = model::image_tokens(*rules.vision, content.width, content.height);
  if (num_tokens > rules.vision->max_image_tokens) {
    return "has " + size + " and takes " + std::to_string(num_tokens) + " tokens; the model sees at most " +
           std::to_string(rules.vision->max_image_tokens);
  }
  if (num_tokens != image.num_tokens) {
    return "has " + size + " and takes " + std::to_string(num_tokens) + " tokens, not " + std::to_string(image.num_tokens);
  }
  if (num_tokens > rules.max_span) {
    return "takes " + std::to_string(num_tokens) + " tokens, but a step of this engine has room for images of " +
           std::to_string(rules.max_span) + "; start it with a larger --max-batched-tokens or send a smaller image";
  }
  return {};
}

}  // namespace

std::shared_ptr<const ImageContent> make_image_content(std::int32_t width, std::int32_t height,
                                                       std::vector<std::uint8_t> rgb) {
  const std::array<std::int32_t, 2> size = {width, height};
  const std::array<kvcache::BlockHash, 2> parts = {kvcache::content_hash(std::as_bytes(std::span(size))),
                                                   kvcache::content_hash(std::as_bytes(std::span(rgb)))};
  const kvcache::BlockHash hash = kvcache::content_hash(std::as_bytes(std::span(parts)));
  return std::make_shared<const ImageContent>(ImageContent{.width = width, .height = height, .rgb = std::move(rgb), .hash = hash});
}

Result<void> check_images(std::span<const PromptImage> images, std::size_t num_prompt, const ImageRules& rules) {
  if (!images.empty() && !rules.vision) {
    return fail(ErrorKind::unsupported, "this model takes no images: its configuration has no vision_config");
  }
  std::int64_t first_free = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (const std::string problem = problem_of(images[i], first_free, num_prompt, rules); !problem.empty()) {
      return fail(ErrorKind::invalid_argument, "image " + std::to_string(i) + " of the prompt " + problem);
    }
    first_free = std::int64_t{images[i].first_position} + images[i].num_tokens;
  }
  return {};
}

}  // namespace deepinfer::engine
