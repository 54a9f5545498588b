// Byte-pair encoding of one piece of text, by the fastest encoder that the merges of the file allow.
// Not pre-tokenisation and not added tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/heap_encoder.h"
#include "tokenizer/longest_match_encoder.h"
#include "tokenizer/tokenizer_file.h"

namespace deepinfer::tokenizer {

class BytePairEncoder {
 public:
  /// Memory that one thread reuses from piece to piece.
  struct Scratch {
    HeapEncoder::Scratch heap;
    LongestMatchEncoder::Scratch longest_match;
  };

  /// nullopt when the file asks for whole pieces first and has too many of them for a ByteTrie.
  [[nodiscard]] static std::optional<BytePairEncoder> build(const TokenizerFile& file);

  /// Appends the tokens of the piece `text.substr(0, length)`. Bytes behind the piece are not part of it.
  void encode(std::string_view text, std::size_t length, Scratch& scratch, std::vector<TokenId>& out) const {
    if (whole_pieces_) [[unlikely]] {
      const std::int32_t token = whole_pieces_->find(text.substr(0, length));
      if (token != ByteTrie::kNone) {
        out.push_back(TokenId{token});
        return;
      }
    }
    if (const auto* encoder = std::get_if<LongestMatchEncoder>(&encoder_)) [[likely]] {
      encoder->encode(text, length, scratch.longest_match, out);
    } else {
      std::get_if<HeapEncoder>(&encoder_)->encode(text.substr(0, length), scratch.heap, out);
    }
  }

 private:
  explicit BytePairEncoder(std::variant<LongestMatchEncoder, HeapEncoder> encoder) : encoder_(std::move(encoder)) {}

  std::variant<LongestMatchEncoder, HeapEncoder> encoder_;
  std::optional<ByteTrie> whole_pieces_;  // with ignore_merges: pieces that are a token by themselves
};

}  // namespace deepinfer::tokenizer
