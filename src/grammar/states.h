// Parser states: Earley sets, hash-consed, so that the same situation is the same number and every transition is
// computed once. Exact for any network, ambiguous and left-recursive ones included. A set holds its open rules through
// the sets they began in, which makes a state its own stack and rollback a matter of remembering numbers.
// Tokens and masks are the duty of mask.h.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/lexer.h"
#include "grammar/network.h"

namespace deepinfer::grammar {

using SetId = std::uint32_t;
inline constexpr SetId kNoSet = 0;          ///< nothing can follow
inline constexpr SetId kHere = 0xFFFFFFFF;  ///< origin: the set that holds the item

/// A lexeme that is being read.
struct Scan {
  std::uint32_t edge = 0;
  SetId origin = 0;
  std::uint32_t at = 0;  ///< LexId, or trie node for keys
  std::uint64_t count = 0;

  friend auto operator<=>(const Scan&, const Scan&) = default;
};

/// Where a rule's caller goes on.
struct Wait {
  RuleId rule = 0;
  NodeId node = 0;
  SetId origin = 0;
  std::uint64_t count = 0;

  friend auto operator<=>(const Wait&, const Wait&) = default;
};

class States {
 public:
  States(const Network& network, Lexer& lexer, std::uint32_t max_items);

  [[nodiscard]] SetId start() const { return start_; }
  [[nodiscard]] SetId step(SetId set, std::uint8_t byte) {
    const Set& at = sets_[set];
    if (at.last_byte == byte) {
      return at.last_next;
    }
    if (at.row != nullptr) [[likely]] {
      const SetId known = (*at.row)[byte];
      if (known != kUnknown) [[likely]] {
        return known;
      }
    }
    return compute_step(set, byte);
  }
  /// Finds the steps of a set all at once, where many are wanted: bytes that every lexeme takes alike are one.
  void prepare(SetId set);
  /// A set to which a set and itself lead with every character of some classes.
  struct Loop {
    CharClasses classes = 0;
    SetId at = kNoSet;
  };
  [[nodiscard]] Loop loop(SetId set);
  /// After one control token.
  [[nodiscard]] SetId token(SetId set, std::int32_t token_id);
  [[nodiscard]] bool accepting(SetId set) const { return sets_[set].accepting; }
  [[nodiscard]] const std::bitset<256>& first_bytes(SetId set);
  [[nodiscard]] std::span<const Scan> scans(SetId set) const { return {scans_.data() + sets_[set].scans, sets_[set].num_scans}; }
  /// Control tokens that can follow; may repeat.
  [[nodiscard]] std::vector<std::int32_t> tokens(SetId set) const;

  /// One byte further in a lexeme; 0 when the byte cannot follow.
  [[nodiscard]] std::uint32_t next_in(const Scan& scan, std::uint32_t at, std::uint8_t byte);
  [[nodiscard]] bool ends_at(const Scan& scan, std::uint32_t at) const;
  /// The set behind the lexeme of `scan` (one of scans(set)) when it ends at `at`.
  [[nodiscard]] SetId behind(SetId set, const Scan& scan, std::uint32_t at);
  /// The set behind the lexemes of all of `scans` together, each of scans(set) and none of them keys.
  [[nodiscard]] SetId behind(SetId set, std::span<const Scan> scans);
  [[nodiscard]] const Lexeme* lexeme_of(const Scan& scan) const;

  [[nodiscard]] std::size_t size() const { return sets_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// More items than allowed in one set: everything since is wrong.
  [[nodiscard]] bool exhausted() const { return exhausted_; }

 private:
  static constexpr SetId kUnknown = 0xFFFFFFFF;
  struct Set {
    std::uint32_t scans = 0;
    std::uint32_t num_scans = 0;
    std::uint32_t waits = 0;
    std::uint32_t num_waits = 0;
    std::uint32_t tokens = 0;
    std::uint32_t num_tokens = 0;
    bool accepting = false;
    std::int16_t last_byte = -1;  // the first transition lives here: most sets have only one
    bool is_prepared = false;
    SetId last_next = 0;
    std::unique_ptr<std::array<SetId, 256>> row;
    std::unique_ptr<std::bitset<256>> first;
  };
  struct Item {
    NodeId node = 0;
    SetId origin = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Item&, const Item&) = default;
  };
  /// The set under construction.
  struct Draft {
    std::vector<Scan> scans;
    std::vector<Wait> waits;
    std::vector<Scan> tokens;
    std::vector<Item> items;
    bool accepting = false;
    bool is_indexed = false;  // seen_ knows the items
  };

  SetId compute_step(SetId set, std::uint8_t byte);
  [[nodiscard]] std::array<SetId, 256>& row_of(SetId set);
  void begin_draft();
  void add(Item item);
  void advance(const Scan& scan, SetId origin, std::uint32_t at);
  void close();
  void close_item(const Item& item);
  void follow(const Item& item, std::uint32_t edge_index);
  void complete(const Item& item);
  SetId intern();
  void index_items();
  void grow_table();

  const Network* network_;
  Lexer* lexer_;
  std::uint32_t max_items_;
  std::vector<LexId> lexeme_starts_;
  std::vector<Set> sets_;
  std::vector<Scan> scans_;
  std::vector<Wait> waits_;
  std::vector<Scan> tokens_;
  std::vector<std::uint32_t> table_;  // open addressing over sets_; 0 is free
  std::vector<std::uint64_t> hashes_;
  struct Behind {
    SetId set = 0;
    std::uint32_t scan_edge = 0;
    SetId origin = 0;
    std::uint32_t name = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Behind&, const Behind&) = default;
  };
  struct BehindHash {
    std::size_t operator()(const Behind& key) const;
  };
  std::unordered_map<Behind, SetId, BehindHash> behind_;
  Draft draft_;
  std::vector<std::uint32_t> seen_;       // open addressing over draft_.items: index + 1
  std::vector<std::uint32_t> predicted_;  // by rule: stamp of the draft that predicted it
  std::uint32_t stamp_ = 0;
  SetId start_ = 0;
  std::size_t bytes_ = 0;
  bool exhausted_ = false;
};

}  // namespace deepinfer::grammar
