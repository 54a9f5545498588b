// The tokens of a vocabulary arranged for masks: a trie, masks by the characters of tokens, and for the two loops every JSON grammar
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
#include "grammar/class_masks.h"
#include "grammar/token_trie.h"

namespace deepinfer::tokenizer {
class Tokenizer;
}

namespace deepinfer::grammar {

/// What tokens do to a loop over characters when they start at a character boundary of it.
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
  /// The token whose text is this byte alone.
  [[nodiscard]] std::optional<TokenId> token_of(std::uint8_t byte) const;
  /// The spelling of any token, control tokens included.
  [[nodiscard]] std::string_view spelling(TokenId id) const;

  [[nodiscard]] std::span<const TokenTrieNode> trie() const { return trie_.nodes; }
  /// The same for the tokens of more than kLongBytes bytes alone.
  [[nodiscard]] std::span<const TokenTrieNode> long_trie() const { return long_trie_; }
  static constexpr std::size_t kLongBytes = 32;  ///< nearly all longer tokens are runs of one character
  /// The tokens behind a node of trie(), without or with those that end at it.
  [[nodiscard]] std::span<const std::int32_t> tokens_below(std::uint32_t node) const {
    return tokens_between(trie_.ranges[node].first_below, trie_.ranges[node].end);
  }
  [[nodiscard]] std::span<const std::int32_t> tokens_from(std::uint32_t node) const {
    return tokens_between(trie_.ranges[node].first, trie_.ranges[node].end);
  }
  /// Tokens that are such texts, as a mask. Kept when asked for again; thread-safe. Valid as long as this.
  [[nodiscard]] std::span<const std::uint32_t> tokens_within(const FreeText& text) const;
  /// Where tokens come to a class of characters for the first time, by the number of the class.
  [[nodiscard]] std::span<const Arrival> arrivals(std::size_t class_bit) const { return arrivals_[class_bit]; }
  /// Some tokens share their bytes with others: same_text() must be asked.
  [[nodiscard]] bool has_duplicates() const { return has_duplicates_; }
  /// The next token with the same bytes; -1 at the end.
  [[nodiscard]] std::int32_t same_text(std::int32_t token) const { return same_[static_cast<std::size_t>(token)]; }
  [[nodiscard]] const std::vector<std::uint32_t>& text_mask() const { return text_mask_; }
  [[nodiscard]] const LoopTable& json_body() const { return json_body_; }
  [[nodiscard]] const LoopTable& blanks() const { return blanks_; }

 private:
  [[nodiscard]] std::span<const std::int32_t> tokens_between(std::uint32_t first, std::uint32_t end) const {
    return std::span(sorted_).subspan(first, end - first);
  }
  void build_tries();
  [[nodiscard]] ClassMasks index_classes() const;
  void build_json_body();
  void build_blanks();

  std::vector<VocabularyToken> tokens_;
  std::array<std::int32_t, 256> byte_tokens_;  // -1: none
  std::int32_t num_rows_;
  std::size_t max_token_bytes_ = 0;
  std::vector<std::int32_t> sorted_;  // ordinary tokens by their texts
  TokenTrie trie_;                    // of these
  std::vector<TokenTrieNode> long_trie_;
  std::vector<std::vector<Arrival>> arrivals_;
  std::vector<std::int32_t> same_;
  bool has_duplicates_ = false;
  std::vector<std::uint32_t> text_mask_;
  std::optional<ClassMasks> class_masks_;
  LoopTable json_body_;
  LoopTable blanks_;
  struct Shared {
    std::mutex mutex;
    std::map<std::pair<CharClasses, std::uint32_t>, std::unique_ptr<const std::vector<std::uint32_t>>> within;
  };
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

/// The vocabulary of a tokenizer; `num_rows` 0 stands for the tokenizer's own size.
[[nodiscard]] Vocabulary make_vocabulary(const tokenizer::Tokenizer& tokenizer, std::int32_t num_rows = 0);

}  // namespace deepinfer::grammar
