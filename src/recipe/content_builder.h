// Builds message content out of blocks: texts and images joined by blank lines, with the place of every image placeholder.
#pragma once

#include <string>
#include <string_view>

#include "recipe/conversation.h"

namespace deepinfer::recipe {

class ContentBuilder {
 public:
  /// `image_token` is the spelling that a placeholder gets; it must outlive the builder.
  explicit ContentBuilder(std::string_view image_token, std::string_view separator = "\n\n")
      : image_token_(image_token), separator_(separator) {}

  void add_text(std::string text);
  void add_image(ImageSource image);
  [[nodiscard]] bool is_empty() const { return content_.text.empty(); }
  [[nodiscard]] Content take() && { return std::move(content_); }

 private:
  void begin_block();

  std::string_view image_token_;
  std::string_view separator_;
  bool has_blocks_ = false;
  Content content_;
};

/// Content of a text without images.
[[nodiscard]] Content plain_content(std::string text);

}  // namespace deepinfer::recipe
