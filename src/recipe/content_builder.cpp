#include "recipe/content_builder.h"

#include <utility>

namespace deepinfer::recipe {

void ContentBuilder::begin_block() {
  if (has_blocks_) {
    content_.text += separator_;
  }
  has_blocks_ = true;
}

void ContentBuilder::add_text(std::string text) {
  if (!has_blocks_) {
    content_.text = std::move(text);
    has_blocks_ = true;
    return;
  }
  begin_block();
  content_.text += text;
}

void ContentBuilder::add_image(ImageSource image) {
  begin_block();
  const std::size_t begin = content_.text.size();
  content_.text += image_token_;
  content_.placeholders.push_back({.begin = begin, .end = content_.text.size()});
  content_.images.push_back(std::move(image));
}

Content plain_content(std::string text) { return Content{.text = std::move(text), .images = {}, .placeholders = {}}; }

}  // namespace deepinfer::recipe
