// The tokens of a vocabulary arranged for masks: a trie in depth-first order, and for the two loops every JSON grammar
// has (string bodies, blanks) the tokens that stay inside and those that leave, by what follows.
// Immutable after construction and shared by all grammars of a tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "grammar/char_classes.h"
#include "grammar/code_set.h"

namespace deepinfer::tokenizer {
class Tokenizer;
}

namespace deepinfer::grammar {

/// Trie nodes in depth-first order: the subtree of node i is [i, end). Node 0 is the root.
struct TokenTrieNode {
  std::int32_t token = -1;  ///< first token that ends here
  std::uint32_t end = 0;
  std::uint16_t depth = 0;  ///< bytes from the root
  std::uint8_t byte = 0;
};

/// What tokens do to a loop over one class of characters when they start at a character boundary of it.
struct LoopTable {
  struct Inside {
    std::int32_t token = 0;
    std::uint16_t chars = 0;  ///< characters begun
  };
  struct Exit {
    std::int32_t token = 0;
    std::uint16_t chars = 0;  ///< characters read before the loop was left
  };
  struct Suffix {  ///< trie over the bytes after the loop, depth-first, node 0 is the root
    std::uint32_t end = 0;
    std::uint32_t first_exit = 0;
    std::uint32_t num_exits = 0;
    std::uint16_t depth = 0;
    std::uint8_t byte = 0;
  };
  std::vector<Inside> inside;  ///< by chars, ascending
  std::vector<std::uint32_t> inside_mask;
  std::vector<Exit> exits;
  std::vector<Suffix> suffixes;
  std::uint32_t max_chars = 0;
};

struct VocabularyToken {
  std::string bytes;        ///< raw bytes; empty when the id has no text
  bool is_control = false;  ///< added tokens: never part of text
};

class Vocabulary {
 public:
  /// `num_rows`: rows of the logits; ids at or above tokens.size() are never allowed.
  Vocabulary(std::vector<VocabularyToken> tokens, std::int32_t num_rows);

  [[nodiscard]] std::int32_t num_rows() const { return num_rows_; }
  [[nodiscard]] std::size_t max_token_bytes() const { return max_token_bytes_; }
  [[nodiscard]] std::size_t mask_words() const { return (static_cast<std::size_t>(num_rows_) + 31) / 32; }
  /// Bytes of an ordinary token; empty for control tokens and ids without text.
  [[nodiscard]] std::string_view text(TokenId id) const;
  [[nodiscard]] bool is_control(TokenId id) const;
  /// The spelling of any token, control tokens included.
  [[nodiscard]] std::string_view spelling(TokenId id) const;

  [[nodiscard]] std::span<const TokenTrieNode> trie() const { return trie_; }
  /// The same for the tokens of more than kLongBytes bytes alone.
  [[nodiscard]] std::span<const TokenTrieNode> long_trie() const { return long_trie_; }
  static constexpr std::size_t kLongBytes = 32;  ///< nearly all longer tokens are runs of one character
  /// The classes of the characters behind a trie node in all its tokens; kNoChar when some are none from there on.
  [[nodiscard]] CharClasses classes_below(std::uint32_t node) const { return below_[node]; }
  /// The class of the character that ends at a trie node; 0 inside a character.
  [[nodiscard]] CharClasses class_at(std::uint32_t node) const { return at_[node] == kInside ? 0 : CharClasses{1} << at_[node]; }
  /// The tokens behind a trie node, its own not among them.
  [[nodiscard]] std::span<const std::int32_t> tokens_below(std::uint32_t node) const {
    return std::span(order_).subspan(first_below_[node], first_token_[trie_[node].end] - first_below_[node]);
  }
  [[nodiscard]] CharClasses classes_of(std::int32_t token) const { return token_classes_[static_cast<std::size_t>(token)]; }
  /// Characters up to a trie node, begun ones included, and up to the end of the longest token through it; 255 for more.
  [[nodiscard]] std::uint32_t chars_at(std::uint32_t node) const { return chars_at_[node]; }
  [[nodiscard]] std::uint32_t most_chars(std::uint32_t node) const { return most_chars_[node]; }
  /// Tokens that are such texts, as a mask. Kept when asked for again; thread-safe. Valid as long as this.
  [[nodiscard]] std::span<const std::uint32_t> tokens_within(const FreeText& text) const;
  /// The tokens whose first character outside `free` is in `live`, as a trie of their own: what is left to look at when those within
  /// `free` are known and other classes lead nowhere. Empty when not worth its making, which it never is at the first time. Kept;
  /// thread-safe. Valid as long as this.
  [[nodiscard]] std::span<const TokenTrieNode> tokens_leaving(CharClasses free, CharClasses live) const;
  /// The trie node behind one byte; 0 when no token begins with it.
  [[nodiscard]] std::uint32_t root_child(std::uint8_t byte) const { return root_children_[byte]; }
  /// Some tokens share their bytes with others: same_text() must be asked.
  [[nodiscard]] bool has_duplicates() const { return has_duplicates_; }
  /// The next token with the same bytes; -1 at the end.
  [[nodiscard]] std::int32_t same_text(std::int32_t token) const { return same_[static_cast<std::size_t>(token)]; }
  [[nodiscard]] const std::vector<std::uint32_t>& text_mask() const { return text_mask_; }
  [[nodiscard]] const LoopTable& json_body() const { return json_body_; }
  [[nodiscard]] const LoopTable& blanks() const { return blanks_; }
  /// What tokens do inside a JSON string whose characters are all in `set`. Made when first asked for and shared by all
  /// grammars; nullptr when too many other sets were asked for before. Thread-safe.
  [[nodiscard]] const LoopTable* json_loop(const CodeSet& set) const;

 private:
  void build_trie();
  [[nodiscard]] std::vector<TokenTrieNode> trie_of(std::span<const std::int32_t> sorted) const;
  [[nodiscard]] std::optional<std::vector<std::int32_t>> list_leaving(CharClasses free, CharClasses live) const;
  void describe_trie();
  void index_classes();
  [[nodiscard]] std::vector<std::uint32_t> compute_within(CharClasses classes, std::uint32_t length) const;
  [[nodiscard]] LoopTable json_table(const CodeSet& set) const;
  void build_blanks();

  std::vector<VocabularyToken> tokens_;
  std::int32_t num_rows_;
  std::size_t max_token_bytes_ = 0;
  std::vector<TokenTrieNode> trie_;
  std::vector<TokenTrieNode> long_trie_;
  std::vector<CharClasses> below_;  // by trie node
  static constexpr std::uint8_t kInside = 64;
  std::vector<std::uint8_t> at_;                    // by trie node: bit of the class of the character that ends there
  std::vector<std::uint8_t> chars_at_;              // by trie node
  std::vector<std::uint8_t> most_chars_;            // by trie node
  std::vector<std::uint8_t> token_chars_;           // by token
  std::vector<std::uint32_t> first_token_;          // by trie node: place in order_ of its subtree's first token
  std::vector<std::uint32_t> first_below_;          // by trie node: the same behind its own tokens
  std::vector<std::int32_t> order_;                 // tokens in the order of the trie
  std::vector<CharClasses> token_classes_;          // by token
  static constexpr std::size_t kBlock = 16;         // words that are combined at a time
  std::size_t padded_words_ = 0;                    // of the masks below
  std::vector<std::vector<std::uint32_t>> having_;  // by class: tokens that have it; empty: none
  std::vector<std::vector<std::uint32_t>> longer_;  // by length up to kLongBytes: tokens of more characters
  std::vector<std::int32_t> same_;
  std::vector<std::uint32_t> text_mask_;
  LoopTable json_body_;
  LoopTable blanks_;
  std::array<std::uint32_t, 256> root_children_{};
  bool has_duplicates_ = false;
  struct SharedLoops {
    struct Leaving {
      bool is_made = false;
      std::vector<TokenTrieNode> trie;
    };
    std::mutex mutex;
    std::map<std::pair<CharClasses, CharClasses>, Leaving> leaving;
    std::map<CodeSet, std::unique_ptr<const LoopTable>> tables;
    std::map<std::pair<CharClasses, std::uint32_t>, std::unique_ptr<const std::vector<std::uint32_t>>> within;
  };
  std::unique_ptr<SharedLoops> loops_ = std::make_unique<SharedLoops>();
};

/// The vocabulary of a tokenizer; `num_rows` 0 stands for the tokenizer's own size.
[[nodiscard]] Vocabulary make_vocabulary(const tokenizer::Tokenizer& tokenizer, std::int32_t num_rows = 0);

}  // namespace deepinfer::grammar
