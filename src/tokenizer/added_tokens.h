// Finds added tokens ("<｜User｜>") in text: leftmost, and the longest of those that start there.
// Not special flags or bytes: those are in vocabulary.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/byte_trie.h"

namespace deepinfer::tokenizer {

/// A place in a text where an added token is spelled.
struct AddedTokenMatch {
  std::size_t begin = 0;
  std::size_t end = 0;
  TokenId id;
};

class AddedTokenFinder {
 public:
  /// Values are token ids. nullopt when the texts are too many for a ByteTrie.
  [[nodiscard]] static std::optional<AddedTokenFinder> build(const std::vector<ByteTrie::Entry>& tokens);

  /// The first match at or after `from`; nullopt when there is none.
  [[nodiscard]] std::optional<AddedTokenMatch> find_first(std::string_view text, std::size_t from) const;

  /// The token spelled by exactly `text`.
  [[nodiscard]] std::optional<TokenId> find_exact(std::string_view text) const;

 private:
  explicit AddedTokenFinder(ByteTrie trie) : trie_(std::move(trie)) {}

  /// The first position at or after `from` whose byte starts a token; text.size() when there is none.
  [[nodiscard]] std::size_t next_start(std::string_view text, std::size_t from) const;

  ByteTrie trie_;
  std::array<bool, 256> is_first_byte_{};
  std::vector<std::uint64_t> first_bytes_;  // each repeated through a word; empty when there are too many to compare with
};

}  // namespace deepinfer::tokenizer
