// Collects a prompt: plain text, control tokens with their ranges, images in placeholder order.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "recipe/render.h"

namespace deepinfer::recipe {

class PromptBuilder {
 public:
  explicit PromptBuilder(std::size_t expected_bytes) { prompt_.text.reserve(expected_bytes); }

  void text(std::string_view text) { prompt_.text += text; }

  /// A real control token.
  void token(std::string_view spelling);

  /// Text whose placeholders become control tokens and whose images are listed.
  void content(const Content& content);

  /// A turn of the model, as it was generated.
  void generated(std::shared_ptr<const GeneratedTurn> turn);

  /// Where encoders append text of their own.
  [[nodiscard]] std::string& buffer() { return prompt_.text; }

  [[nodiscard]] Prompt take() && { return std::move(prompt_); }

 private:
  Prompt prompt_;
};

}  // namespace deepinfer::recipe
