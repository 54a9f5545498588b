// A stream of token ids to a stream of text that never splits a UTF-8 character.
// The pieces put together are Tokenizer::decode of all ids, for any ids. One Detokenizer per stream.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {

class Detokenizer {
 public:
  /// `tokenizer` shares its tables, it need not outlive the detokenizer.
  explicit Detokenizer(const Tokenizer& tokenizer, SpecialTokens mode = SpecialTokens::keep);

  /// Appends to `out` the text that is certain once `id` has come; at most three bytes are held back.
  void append(TokenId id, std::string& out);

  /// The same for bytes that follow the tokens so far.
  void append_bytes(std::string_view bytes, std::string& out);

  /// Appends what was held back, as U+FFFD, and starts anew.
  void finish(std::string& out);

 private:
  Tokenizer tokenizer_;
  SpecialTokens mode_;
  std::string pending_;  // the start of a character: a proper prefix of a well-formed sequence
};

}  // namespace deepinfer::tokenizer
