// Finds added tokens ("<｜User｜>") in text: leftmost, and the longest of those that start there.
// Not special flags or bytes: those are in vocabulary.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace deepinfer::tokenizer {

/// A place in a text where an added token is spelled.
struct AddedTokenMatch {
  std::size_t begin = 0;
  std::size_t end = 0;
  TokenId id;
};

class AddedTokenFinder {
 public:
  /// Spellings must be distinct and not empty.
  explicit AddedTokenFinder(const std::vector<std::pair<std::string_view, TokenId>>& tokens);

  /// The first match at or after `from`; nullopt when there is none.
  [[nodiscard]] std::optional<AddedTokenMatch> find_first(std::string_view text, std::size_t from) const;

  /// The token spelled by exactly `text`.
  [[nodiscard]] std::optional<TokenId> find_exact(std::string_view text) const;

 private:
  static constexpr std::int32_t kNone = -1;

  /// A trie node: its children are the edges [first_edge, first_edge + num_edges).
  struct Node {
    std::int32_t first_edge = 0;
    std::int32_t num_edges = 0;
    std::int32_t token = kNone;
  };
  struct Edge {
    unsigned char byte = 0;
    std::int32_t node = 0;
  };

  [[nodiscard]] std::int32_t child(std::int32_t node, unsigned char byte) const;
  [[nodiscard]] std::optional<AddedTokenMatch> longest_at(std::string_view text, std::size_t begin) const;

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<bool> starts_;  // [65536] first two bytes of a token, or its only byte followed by anything
};

}  // namespace deepinfer::tokenizer
