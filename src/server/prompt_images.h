// The images of a prompt: prepared one after the other, placed where their placeholders stand, and counted while a request has them.
// Not here: decoding (recipe), encoding (engine, model).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/prompt_image.h"
#include "recipe/image/prepare.h"

namespace deepinfer::server {

/// Bytes of pixels that the requests of a server have at a time, waiting ones included.
class ImageMemory {
 public:
  explicit ImageMemory(std::size_t max_bytes) : max_bytes_(max_bytes), used_bytes_(std::make_shared<std::atomic<std::size_t>>(0)) {}

  /// The same content, counted until nobody has it any more; nullptr when there is no room.
  [[nodiscard]] std::shared_ptr<const engine::ImageContent> hold(std::shared_ptr<const engine::ImageContent> content) const;
  [[nodiscard]] std::size_t used_bytes() const { return *used_bytes_; }

 private:
  std::size_t max_bytes_;
  std::shared_ptr<std::atomic<std::size_t>> used_bytes_;
};

/// What a served model takes of images.
struct ImageSettings {
  recipe::ImageLimits limits;  ///< of one request, with the sizing of the model
  ImageMemory memory{std::size_t{1} << 30};
};
/// Or why there are none: the end of "the model does not take images: ".
using MaybeImages = std::expected<ImageSettings, std::string>;
/// The limits of docs/server.md for a model with this vision configuration.
[[nodiscard]] MaybeImages image_settings(const std::optional<model::VisionConfig>& vision);

/// Ids of a prompt with the spans of its images.
struct IllustratedIds {
  std::vector<TokenId> ids;
  std::vector<engine::PromptImage> images;  ///< `content` absent when only places are asked for
};

struct ImageRefusal {
  int status = 400;
  std::string message;
};

enum class Pixels : std::uint8_t {
  kept,     ///< for the engine; images behind the end of the context are not prepared any more
  counted,  ///< images are decoded and judged, and let go
};

/// `ids` with every placeholder, at the places `placeholders`, widened to the span of its image; `sources` in the same order.
struct PlaceRequest {
  std::vector<TokenId> ids;
  std::vector<std::size_t> placeholders;
  std::vector<const recipe::ImageSource*> sources;
  std::size_t context_length = 0;
  Pixels pixels = Pixels::kept;
};
[[nodiscard]] std::expected<IllustratedIds, ImageRefusal> place_images(const ImageSettings& settings, PlaceRequest&& request);

}  // namespace deepinfer::server
