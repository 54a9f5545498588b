// The images of an accepted request: which of them a chunk holds, what they add to the names of blocks, and their embedding rows, which
// are encoded in pieces before the first chunk that needs them and kept as long as a request with the image lives.
// Not here: how an image is encoded (model), what a client may send (prompt_image.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/prompt_image.h"
#include "model/deepseek_v41/model.h"
#include "scheduler/whole_spans.h"

namespace deepinfer::engine {

/// How a model encodes one image at a time, in pieces (DeepseekV41::begin_image, advance_image).
struct ImageCalls {
  std::move_only_function<void(const model::ImagePixels&)> begin;
  std::move_only_function<std::optional<std::vector<bf16>>()> advance;  ///< the rows of the whole span, with the last piece
};
using EncodedRows = std::shared_ptr<const std::vector<bf16>>;

/// Encodes every image once for all the requests that have it at the same time.
class ImageEncoder {
 public:
  explicit ImageEncoder(ImageCalls calls = {}) : calls_(std::move(calls)) {}

  [[nodiscard]] bool is_present() const { return static_cast<bool>(calls_.begin); }
  /// The rows that a request has; nullptr when none has.
  [[nodiscard]] EncodedRows find(const kvcache::BlockHash& image);
  /// A piece of the work on `image`: its rows, once there are no more. Another image than before is begun anew.
  [[nodiscard]] EncodedRows advance(const std::shared_ptr<const ImageContent>& image);

 private:
  ImageCalls calls_;
  std::shared_ptr<const ImageContent> current_;
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
  enum class Progress : std::uint8_t {
    known,     ///< the rows were there already
    finished,  ///< with this piece
    underway,
  };
  /// A piece of the work on the image at `first_position`, unless its rows are there.
  [[nodiscard]] Progress advance(std::int32_t first_position, ImageEncoder& encoder);
  /// Takes the rows that another choice of the same prompt has.
  void share(const RequestImages& other);
  /// The spans inside a chunk, which are encoded, and those that end among the `lookback` positions before it. Valid as long as the
  /// request.
  [[nodiscard]] std::span<const model::ImageSpan> in_chunk(PositionRange chunk, std::int32_t lookback) const;

 private:
  struct Image {
    kvcache::BlockHash hash;
    std::shared_ptr<const ImageContent> content;  ///< until it is encoded
    EncodedRows rows;                             ///< from then on
  };
  void set_rows(std::size_t image, EncodedRows rows);

  std::vector<Image> images_;
  std::vector<model::ImageSpan> spans_;  // of images_, ascending
};

}  // namespace deepinfer::engine
