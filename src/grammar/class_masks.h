// Token masks by the characters of tokens: for any set of classes and any length the tokens within both, put together from few masks.
// Immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/char_classes.h"

namespace deepinfer::grammar {

class ClassMasks {
 public:
  /// What a token is made of; kNoChar in `classes`: no text.
  struct Made {
    CharClasses classes = kNoChar;
    std::uint8_t chars = 0;  ///< 255 for more
  };
  static constexpr std::uint32_t kMaxChars = 255;

  /// `made`: by token; masks have `num_words` words.
  ClassMasks(std::vector<Made> made, std::size_t num_words);
  /// The tokens within `text`, whose length counts up to kMaxChars.
  [[nodiscard]] std::vector<std::uint32_t> within(const FreeText& text) const;

 private:
  static constexpr std::size_t kNumClasses = 64;
  static constexpr std::size_t kBlock = 16;        // words that are combined at a time
  static constexpr std::size_t kShortChars = 32;   // lengths up to here have masks; few tokens are longer

  std::size_t num_words_;
  std::size_t padded_words_;
  /// By size and place of a span of classes: tokens that have one of them. Span i of size 2^k holds the classes from i·2^k on; what is
  /// outside most loops is few spans. Empty: no token.
  std::vector<std::vector<std::vector<std::uint32_t>>> having_;
  std::vector<std::vector<std::uint32_t>> longer_;  // by length: tokens of more characters
  struct Long {
    std::int32_t token = 0;
    std::uint8_t chars = 0;
  };
  std::vector<Long> long_tokens_;
};

}  // namespace deepinfer::grammar
