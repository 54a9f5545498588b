#include "engine/request_images.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

std::int32_t end_of(const model::ImageSpan& span) { return span.first_position + span.num_tokens; }

}  // namespace

EncodedRows ImageEncoder::rows_of(const ImageContent& image) {
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const std::vector<bf16>>& known = known_[image.hash];
  EncodedRows rows = known.lock();
  if (rows == nullptr) {
    check(is_present(), "only an engine with an encoder accepts images");
    rows = std::make_shared<const std::vector<bf16>>(encode_({.width = image.width, .height = image.height, .rgb = image.rgb}));
    known = rows;
  }
  return rows;
}

RequestImages::RequestImages(std::vector<PromptImage>&& images) {
  for (PromptImage& image : images) {
    const kvcache::BlockHash hash = image.content->hash;
    images_.push_back({.hash = hash, .content = std::move(image.content), .rows = nullptr});
    spans_.push_back({.first_position = image.first_position, .num_tokens = image.num_tokens, .rows = nullptr});
  }
}

std::vector<scheduler::WholeSpan> RequestImages::whole_spans() const {
  std::vector<scheduler::WholeSpan> out;
  for (const model::ImageSpan& span : spans_) {
    out.push_back({.first_position = span.first_position, .num_positions = span.num_tokens});
  }
  return out;
}

std::vector<kvcache::BlockImage> RequestImages::in_block(PositionRange block) const {
  std::vector<kvcache::BlockImage> out;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    if (spans_[i].first_position < block.end && end_of(spans_[i]) > block.first) {
      out.push_back({.first = spans_[i].first_position - block.first, .content = images_[i].hash});
    }
  }
  return out;
}

std::span<const model::ImageSpan> RequestImages::in_chunk(PositionRange chunk, std::int32_t lookback, ImageEncoder& encoder) {
  const auto first = std::ranges::upper_bound(spans_, chunk.first - lookback, {}, end_of);
  auto last = first;
  for (; last != spans_.end() && last->first_position < chunk.end; ++last) {
    Image& image = images_[static_cast<std::size_t>(last - spans_.begin())];
    if (last->first_position >= chunk.first && image.rows == nullptr) {
      image.rows = encoder.rows_of(*std::exchange(image.content, nullptr));
      last->rows = image.rows->data();
    }
  }
  return {first, last};
}

}  // namespace deepinfer::engine
