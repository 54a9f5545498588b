#include "recipe/prompt_builder.h"

namespace deepinfer::recipe {

void PromptBuilder::token(std::string_view spelling) {
  const std::size_t begin = prompt_.text.size();
  prompt_.text += spelling;
  prompt_.special_ranges.push_back({.begin = begin, .end = prompt_.text.size()});
}

void PromptBuilder::content(const Content& content) {
  const std::size_t begin = prompt_.text.size();
  prompt_.text += content.text;
  for (const SpecialRange& placeholder : content.placeholders) {
    prompt_.placeholders.push_back(prompt_.special_ranges.size());
    prompt_.special_ranges.push_back({.begin = begin + placeholder.begin, .end = begin + placeholder.end});
  }
  for (const ImageSource& image : content.images) {
    prompt_.images.push_back(&image);
  }
}

void PromptBuilder::generated(std::shared_ptr<const GeneratedTurn> turn) {
  const std::size_t begin = prompt_.text.size();
  prompt_.text += turn->text;
  prompt_.generated.push_back({.begin = begin, .end = prompt_.text.size(), .turn = std::move(turn)});
}

}  // namespace deepinfer::recipe
