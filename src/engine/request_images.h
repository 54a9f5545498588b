// The images of an accepted request: which of them a chunk holds, what they add to the names of blocks, and their embedding rows, which
// are encoded when a chunk needs them first and kept as long as a request with the image lives.
// Not here: how an image is encoded (model), what a client may send (prompt_image.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/prompt_image.h"
#include "model/deepseek_v41/model.h"
#include "scheduler/whole_spans.h"

namespace deepinfer::engine {

/// Embedding rows of a whole span (DeepseekV41::encode_image).
using EncodeImage = std::move_only_function<std::vector<bf16>(const model::ImagePixels&)>;
using EncodedRows = std::shared_ptr<const std::vector<bf16>>;

/// Encodes every image once for all the requests that have it at the same time.
class ImageEncoder {
 public:
  explicit ImageEncoder(EncodeImage encode = {}) : encode_(std::move(encode)) {}

  [[nodiscard]] bool is_present() const { return static_cast<bool>(encode_); }
  [[nodiscard]] EncodedRows rows_of(const ImageContent& image);

 private:
  EncodeImage encode_;
  std::unordered_map<kvcache::BlockHash, std::weak_ptr<const std::vector<bf16>>> known_;
};

/// Positions [first, end) of a request.
struct PositionRange {
  std::int32_t first = 0;
  std::int32_t end = 0;
};

class RequestImages {
 public:
  explicit RequestImages(std::vector<PromptImage>&& images);

  [[nodiscard]] bool empty() const { return images_.empty(); }
  [[nodiscard]] std::vector<scheduler::WholeSpan> whole_spans() const;
  /// What the images with tokens in a block add to its name.
  [[nodiscard]] std::vector<kvcache::BlockImage> in_block(PositionRange block) const;
  /// The spans inside a chunk, encoded, and those that end among the `lookback` positions before it. Valid as long as the request.
  [[nodiscard]] std::span<const model::ImageSpan> in_chunk(PositionRange chunk, std::int32_t lookback, ImageEncoder& encoder);

 private:
  struct Image {
    kvcache::BlockHash hash;
    std::shared_ptr<const ImageContent> content;  ///< until it is encoded
    EncodedRows rows;                             ///< from then on
  };
  std::vector<Image> images_;
  std::vector<model::ImageSpan> spans_;  // of images_, ascending
};

}  // namespace deepinfer::engine
