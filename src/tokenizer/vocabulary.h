// The tokens of one tokenizer by id: raw bytes, special flags, vocabulary spellings. Immutable once built.
// Not encoding: byte_pair_encoder.h turns text into ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace deepinfer::tokenizer {

class Vocabulary {
 public:
  /// `spellings[id]` as in tokenizer.json; an empty one is an id without a token. `is_special` has the same length.
  Vocabulary(const std::vector<std::string>& spellings, std::vector<bool> is_special);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(is_special_.size()); }

  /// Raw bytes of one token; empty for an id without a token, negative and too large ids included.
  [[nodiscard]] std::string_view bytes(TokenId id) const {
    if (static_cast<std::uint32_t>(id.value) >= is_special_.size()) {
      return {};
    }
    const auto index = static_cast<std::size_t>(id.value);
    return std::string_view(arena_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
  }

  [[nodiscard]] bool is_special(TokenId id) const {
    return static_cast<std::uint32_t>(id.value) < is_special_.size() && is_special_[static_cast<std::size_t>(id.value)];
  }

  /// The text that tokenizer.json has for the token.
  [[nodiscard]] std::string spelling(TokenId id) const;

 private:
  std::string arena_;                   // the bytes of all tokens, by id
  std::vector<std::uint32_t> offsets_;  // [size + 1] into arena_
  std::vector<bool> is_special_;        // [size]
  std::vector<bool> is_verbatim_;       // [size] the spelling is the bytes, not the byte alphabet
};

}  // namespace deepinfer::tokenizer
