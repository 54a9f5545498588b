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
  Vocabulary(const std::vector<std::string>& spellings, const std::vector<bool>& is_special);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(flags_.size()); }

  /// Raw bytes of one token; empty for an id without a token, negative and too large ids included.
  [[nodiscard]] std::string_view bytes(TokenId id) const {
    if (static_cast<std::uint32_t>(id.value) >= flags_.size()) {
      return {};
    }
    const auto index = static_cast<std::size_t>(id.value);
    return std::string_view(arena_.data() + offsets_[index], offsets_[index + 1] - offsets_[index]);
  }

  [[nodiscard]] bool is_special(TokenId id) const { return has_flag(id, kSpecial); }

  /// The bytes of the token are well-formed UTF-8 by themselves, or there are none.
  [[nodiscard]] bool is_text(TokenId id) const { return !has_flag(id, kFragment); }

  /// The text that tokenizer.json has for the token.
  [[nodiscard]] std::string spelling(TokenId id) const;

 private:
  static constexpr std::uint8_t kSpecial = 1;
  static constexpr std::uint8_t kVerbatim = 2;  // the spelling is the bytes themselves, not in the byte alphabet
  static constexpr std::uint8_t kFragment = 4;  // the bytes alone are not well-formed UTF-8

  [[nodiscard]] bool has_flag(TokenId id, std::uint8_t flag) const {
    return static_cast<std::uint32_t>(id.value) < flags_.size() && (flags_[static_cast<std::size_t>(id.value)] & flag) != 0;
  }

  std::string arena_;                   // the bytes of all tokens, by id
  std::vector<std::uint32_t> offsets_;  // [size + 1] into arena_
  std::vector<std::uint8_t> flags_;     // [size]
};

}  // namespace deepinfer::tokenizer
