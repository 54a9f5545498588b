// The tokens of a vocabulary as a trie laid out for walks: the children of a node stand side by side, so that looking over siblings
// reads memory in order, and a node has with it all that a walk asks. Not here: what follows what (mask.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/char_classes.h"

namespace deepinfer::grammar {

/// Node 0 is the root.
struct TokenTrieNode {
  static constexpr std::uint8_t kInside = 64;  ///< class_bit inside a character

  CharClasses below = 0;             ///< of the characters behind the node in all its tokens; kNoChar: some are none from there on
  std::int32_t token = -1;           ///< first token that ends here
  std::uint32_t first_child = 0;     ///< 0: none; children ascend by byte
  std::uint16_t depth = 0;           ///< bytes from the root
  std::uint8_t byte = 0;
  bool is_last = true;               ///< of the children of its parent
  std::uint8_t class_bit = kInside;  ///< of the character that ends here
  std::uint8_t chars = 0;            ///< up to here, begun ones included; 255 for more
  std::uint8_t most_chars = 0;       ///< up to the end of the longest token through it

  /// The class of the character that ends here; 0 inside a character.
  [[nodiscard]] CharClasses class_here() const { return CharClasses{class_bit != kInside} << (class_bit % kInside); }
};

/// Goes through the nodes below a root in depth-first order; at each one the caller says whether what is below it is of interest.
class TrieWalk {
 public:
  explicit TrieWalk(std::span<const TokenTrieNode> trie, std::uint32_t root = 0) : trie_(trie), at_(trie[root].first_child) {
    constexpr std::size_t kUsualDepth = 40;
    path_.reserve(kUsualDepth);
  }
  [[nodiscard]] bool at_end() const { return at_ == 0; }
  [[nodiscard]] std::uint32_t at() const { return at_; }
  [[nodiscard]] const TokenTrieNode& node() const { return trie_[at_]; }
  /// On to the next node that is not below this one.
  void pass() {
    while (trie_[at_].is_last) {
      if (path_.empty()) {
        at_ = 0;
        return;
      }
      at_ = path_.back();
      path_.pop_back();
    }
    ++at_;
  }
  /// On to the first node below this one, if any.
  void enter() {
    const std::uint32_t child = trie_[at_].first_child;
    if (child == 0) {
      pass();
      return;
    }
    path_.push_back(at_);
    at_ = child;
  }

 private:
  std::span<const TokenTrieNode> trie_;
  std::uint32_t at_;
  std::vector<std::uint32_t> path_;  // the nodes above
};

struct TokenText {
  std::int32_t token = 0;
  std::string_view text;
};

struct TokenTrie {
  std::vector<TokenTrieNode> nodes;
  /// By node: where the tokens that end at it, then those behind it, begin and end in the sorted list.
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t first_below = 0;
    std::uint32_t end = 0;
  };
  std::vector<Range> ranges;
};

/// The trie of tokens sorted by their texts; of those with the same text the first stands in it.
[[nodiscard]] TokenTrie make_trie(std::span<const TokenText> sorted);

/// A node to which a character leads whose class is new to the tokens through it.
struct Arrival {
  CharClasses path = 0;  ///< of the characters before
  std::uint32_t node = 0;
  std::array<std::uint8_t, 4> bytes{};  ///< of the character, 0 behind them
};
/// Of all nodes, by the number of the class. Under kCutChar: the nodes inside a character at which a token ends.
[[nodiscard]] std::vector<std::vector<Arrival>> find_arrivals(std::span<const TokenTrieNode> trie);

}  // namespace deepinfer::grammar
