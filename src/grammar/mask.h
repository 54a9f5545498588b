// Token masks: which ids may follow a parser state. The mask is the union over the lexemes being read, each found by the
// cheapest exact way: a prepared loop table, a prepared table corrected along few bytes, or a walk of the token trie.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/lexer.h"
#include "grammar/states.h"
#include "grammar/vocabulary.h"

namespace deepinfer::grammar {

class MaskBuilder {
 public:
  MaskBuilder(const Vocabulary& vocabulary, Lexer& lexer, States& states);

  /// Writes the ids that may follow `set` (end ids are not its business) into `mask`, vocabulary.mask_words() words.
  void fill(SetId set, std::span<std::uint32_t> mask);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  /// Masks with at most this many ids are kept as lists.
  static constexpr std::size_t kSparseTokens = 1024;
  struct Bounds {
    std::uint32_t least = 0;
    std::uint32_t most = 0;
  };

  void build(SetId set, std::span<std::uint32_t> mask);
  /// Lexemes in the same state (`at`), and the set behind any of them once that ends.
  struct Reading {
    LexId at = kDead;
    SetId behind = kNoSet;
  };
  bool add_by_table(const Reading& reading, std::span<std::uint32_t> mask);
  bool add_loop_of(const Lexer::View& view, SetId behind, std::span<std::uint32_t> mask);
  void add_loop(const LoopTable& table, SetId behind, Bounds bounds, std::span<std::uint32_t> mask);
  bool add_by_difference(const Reading& reading, std::span<std::uint32_t> mask);
  void correct(LexId at, LexId plain, std::span<std::uint32_t> mask);
  void walk_keys(SetId set, const Scan& scan, std::span<std::uint32_t> mask);
  void walk_lexeme(const Reading& reading, std::span<std::uint32_t> mask);
  bool walk_together(SetId set, std::span<std::uint32_t> mask);
  /// Texts that some lexeme of the set takes whatever they are.
  const FreeText& free_behind(SetId set) { return set == last_free_behind_.set ? last_free_behind_.text : find_free_behind(set); }
  const FreeText& find_free_behind(SetId set);
  struct FreeBehind {
    SetId set = kNoSet;
    FreeText text = {.classes = 0, .length = 0};
  };
  /// Where a walk begins, what follows when the lexeme ends, and how deep it goes.
  struct Start {
    LexId from = kDead;
    SetId behind = kNoSet;
    std::size_t max_depth = 0xFFFF;
  };
  void walk_by_classes(const Start& start, std::span<std::uint32_t> mask);
  /// A node whose children are still to be looked at, and the state there.
  struct OpenLexeme {
    std::uint32_t node = 0;
    LexId at = kDead;
    CharClasses path = 0;  // of the characters so far
  };
  struct OpenSet {
    std::uint32_t node = 0;
    SetId set = kNoSet;
    CharClasses path = 0;
  };
  /// What the classes of a token's characters tell from the root on: within `free` it is allowed; without any of `live` behind the free ones,
  /// or longer than free texts and without any of `gate`, it is not.
  struct Known {
    FreeText free;
    CharClasses live = 0;
    CharClasses gate = 0;
    CharClasses following = 0;  // what can come behind the lexeme
    std::size_t max_depth = 0xFFFF;
  };
  struct Behind {
    std::bitset<256> follows;
    SetId behind = kNoSet;
  };
  void choose_children(const OpenLexeme& parent, const Known& known);
  void follow_lexeme(const OpenLexeme& parent, const Known& known, std::span<std::uint32_t> mask);
  void follow_chain(OpenLexeme place, const Known& known, std::span<std::uint32_t> mask);
  void follow_set(std::span<const TokenTrieNode> trie, const OpenSet& parent, const FreeText& free, std::span<std::uint32_t> mask);
  void walk_open(const Start& start, const Known& known, std::span<std::uint32_t> mask);
  void walk_loop(const Start& start, const Lexer::Loop& loop, std::span<std::uint32_t> mask);
  void leave_loop(SetId set, const States::Loop& loop, std::span<std::uint32_t> mask);
  [[nodiscard]] SetId step_over(SetId set, const std::array<std::uint8_t, 4>& bytes);
  [[nodiscard]] LexId next_over(LexId at, const std::array<std::uint8_t, 4>& bytes);
  void arrive_behind(const Arrival& arrival, SetId behind, std::span<std::uint32_t> mask);
  void walk_below(std::span<const TokenTrieNode> trie, const OpenSet& root, std::span<std::uint32_t> mask);
  void walk_behind(std::uint32_t parent, const Behind& behind, std::span<std::uint32_t> mask);
  void walk_plainly(std::span<const TokenTrieNode> trie, const Start& start, std::span<std::uint32_t> mask);
  void walk_sets(std::span<const TokenTrieNode> trie, std::uint32_t root, SetId behind, std::span<std::uint32_t> mask);
  void add_tokens(std::span<const std::int32_t> tokens, std::span<std::uint32_t> mask);
  void add_token(std::int32_t token, std::span<std::uint32_t> mask);
  const std::bitset<256>& differing(LexId state);

  const Vocabulary* vocabulary_;
  Lexer* lexer_;
  States* states_;
  LexId plain_body_;  // inside an unrestricted JSON string
  std::vector<std::uint32_t> lexeme_stack_;
  std::vector<SetId> set_stack_;
  std::vector<OpenLexeme> open_lexemes_;
  std::vector<OpenSet> open_sets_;
  /// Children of one node that are worth a look.
  struct Chosen {
    [[nodiscard]] std::span<const std::uint32_t> all() const { return std::span(children).first(size); }
    std::array<std::uint32_t, 257> children;
    std::size_t size = 0;
  };
  Chosen chosen_;
  FreeBehind last_free_behind_;
  std::vector<std::uint32_t> scratch_;
  std::vector<std::int32_t> added_;  // the ids of the mask being built, while they are few
  bool is_dense_ = false;            // whole tables went into it
  std::vector<Scan> scans_;          // of the set whose mask is built, lexemes in the same state side by side
  std::vector<Reading> walked_readings_;               // of these, the ones that no table knows
  std::unordered_map<SetId, FreeText> free_behind_;
  std::unordered_map<LexId, std::bitset<256>> differing_;
  struct Kept {
    std::vector<std::uint32_t> dense;  // the words, or
    std::vector<std::int32_t> tokens;  // the ids when they are few
  };
  std::unordered_map<SetId, Kept> kept_;
  std::map<std::pair<LexId, SetId>, Kept> walked_;  // by state without far counts and the set behind it
  std::size_t bytes_ = 0;
};

}  // namespace deepinfer::grammar
