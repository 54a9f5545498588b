// Cuts plain text into the pieces that byte pairs never cross: the known patterns as hand-written matchers, one pass,
// time linear in the text. Not a regular-expression engine: an unknown pattern is refused when the file is read.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "tokenizer/char_classes.h"

namespace deepinfer::tokenizer {

enum class Pattern {
  deepseek,  ///< the three Split steps of recipe.md section 1
  gpt2,      ///< ByteLevel with use_regex: the pattern of GPT-2
};

class PreTokenizer {
 public:
  PreTokenizer(Pattern pattern, std::shared_ptr<const CharClasses> classes) : pattern_(pattern), classes_(std::move(classes)) {}

  /// End of the piece that starts at `begin` < text.size(); `begin` must be 0 or the end of a piece. Pieces are never empty.
  [[nodiscard]] std::size_t piece_end(std::string_view text, std::size_t begin) const;

  /// A position greater than `from` that is a piece border whatever comes before and behind: the first that two
  /// neighbouring characters prove. text.size() when there is none.
  [[nodiscard]] std::size_t certain_border(std::string_view text, std::size_t from) const;

 private:
  Pattern pattern_;
  std::shared_ptr<const CharClasses> classes_;
};

}  // namespace deepinfer::tokenizer
