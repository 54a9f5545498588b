#include "engine/request_images.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

std::int32_t end_of(const model::ImageSpan& span) { return span.first_position + span.num_tokens; }

}  // namespace

EncodedRows ImageEncoder::find(const kvcache::BlockHash& image) {
  const auto found = known_.find(image);
  return found == known_.end() ? nullptr : found->second.lock();
}

EncodedRows ImageEncoder::advance(const std::shared_ptr<const ImageContent>& image) {
  check(is_present(), "only an engine with an encoder accepts images");
  if (current_ != image) {
    calls_.begin({.width = image->width, .height = image->height, .rgb = image->rgb});
    current_ = image;
  }
  std::optional<std::vector<bf16>> rows = calls_.advance();
  if (!rows) {
    return nullptr;
  }
  current_ = nullptr;
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  EncodedRows out = std::make_shared<const std::vector<bf16>>(std::move(*rows));
  known_[image->hash] = out;
  return out;
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
    out.push_back({.first_position = span.first_position, .num_positions = span.num_tokens, .is_ready = span.rows != nullptr});
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

void RequestImages::set_rows(std::size_t image, EncodedRows rows) {
  spans_[image].rows = rows->data();
  images_[image].rows = std::move(rows);
  images_[image].content = nullptr;
}

RequestImages::Progress RequestImages::advance(std::int32_t first_position, ImageEncoder& encoder) {
  const auto span = std::ranges::find(spans_, first_position, &model::ImageSpan::first_position);
  check(span != spans_.end(), "a span is that of an image");
  const auto index = static_cast<std::size_t>(span - spans_.begin());
  if (images_[index].rows != nullptr) {
    return Progress::known;
  }
  if (EncodedRows rows = encoder.find(images_[index].hash)) {
    set_rows(index, std::move(rows));
    return Progress::known;
  }
  EncodedRows rows = encoder.advance(images_[index].content);
  if (rows == nullptr) {
    return Progress::underway;
  }
  set_rows(index, std::move(rows));
  return Progress::finished;
}

void RequestImages::share(const RequestImages& other) {
  for (std::size_t i = 0; i < images_.size(); ++i) {
    if (other.images_[i].rows != nullptr) {
      set_rows(i, other.images_[i].rows);
    }
  }
}

std::span<const model::ImageSpan> RequestImages::in_chunk(PositionRange chunk, std::int32_t lookback) const {
  const auto first = std::ranges::upper_bound(spans_, chunk.first - lookback, {}, end_of);
  const auto last = std::ranges::lower_bound(first, spans_.end(), chunk.end, {}, &model::ImageSpan::first_position);
  return {first, last};
}

}  // namespace deepinfer::engine
