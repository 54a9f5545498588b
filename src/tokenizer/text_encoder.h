// Whole texts to token ids: cuts added tokens out, the rest into pieces, the pieces into tokens; long texts by several
// threads. Immutable once built. Not ids to text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"

namespace deepinfer::tokenizer {

class TextEncoder {
 public:
  /// nullopt when the tokens of the file are too many or too long for the tables.
  [[nodiscard]] static std::optional<TextEncoder> build(const TokenizerFile& file);

  [[nodiscard]] std::vector<TokenId> encode(std::string_view text, AddedTokens mode) const;

  /// Positions at which `text` can be cut so that the ids of the parts put together are those of the whole: about one
  /// for each `part_bytes`, ascending, 0 and text.size() not among them.
  [[nodiscard]] std::vector<std::size_t> cuts(std::string_view text, AddedTokens mode, std::size_t part_bytes) const;

  /// An added token by its exact text.
  [[nodiscard]] std::optional<TokenId> find(std::string_view token) const;

 private:
  TextEncoder(BytePairEncoder encoder, PreTokenizer pre_tokenizer, AddedTokenFinder verbatim, AddedTokenFinder normalized)
      : encoder_(std::move(encoder)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        verbatim_(std::move(verbatim)),
        normalized_(std::move(normalized)) {}

  void append_plain(std::string_view text, BytePairEncoder::Scratch& scratch, std::vector<TokenId>& out) const;

  /// Calls `on_text` for each stretch of text without added tokens, empty ones included, and `on_token` for each added
  /// token, in order.
  template <class OnText, class OnToken>
  void split(std::string_view text, AddedTokens mode, const OnText& on_text, const OnToken& on_token) const;

  BytePairEncoder encoder_;
  PreTokenizer pre_tokenizer_;
  AddedTokenFinder verbatim_;    // looked for first
  AddedTokenFinder normalized_;  // looked for in what the others leave over
};

}  // namespace deepinfer::tokenizer
