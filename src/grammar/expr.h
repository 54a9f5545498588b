// Regular languages over code points: hash-consed expressions with union, intersection and complement, taken
// apart by derivatives when somebody asks. Nothing is determinised ahead of time and counts are never unrolled.
// Bytes, escapes and UTF-8 are the duty of lexer.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_classes.h"
#include "grammar/code_set.h"

namespace deepinfer::grammar {

struct Budget;

/// Index into an ExprPool; equal ids mean the same expression.
using ExprId = std::uint32_t;

/// After any code point in [low, high] the rest of the text must be in `next`.
struct Arrow {
  char32_t low = 0;
  char32_t high = 0;
  ExprId next = 0;
};

/// Stand for the two ends of a text while a pattern with anchors is taken apart; never part of a text.
inline constexpr char32_t kTextBegin = kMaxCodePoint + 1;
inline constexpr char32_t kTextEnd = kMaxCodePoint + 2;

/// Products of two 64-bit numbers, for remainders.
__extension__ using Wide = unsigned __int128;

inline constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

/// Copyable: a compiled grammar holds a pristine pool, each runtime grows its own copy.
class ExprPool {
 public:
  static constexpr ExprId kEmpty = 0;    ///< no text
  static constexpr ExprId kEpsilon = 1;  ///< the empty text
  static constexpr ExprId kAny = 2;      ///< one code point (or anchor symbol)
  static constexpr ExprId kAnyText = 3;  ///< every text
  static constexpr ExprId kBlank = 4;    ///< space, tab, line feed or carriage return

  /// Nodes beyond this are refused: exhausted() becomes true and every constructor answers kEmpty.
  explicit ExprPool(std::uint32_t max_nodes = 1'000'000);

  [[nodiscard]] ExprId one_of(const CodeSet& set);
  [[nodiscard]] ExprId literal(std::u32string_view text);
  [[nodiscard]] ExprId concat(ExprId first, ExprId second);
  [[nodiscard]] ExprId concat(std::span<const ExprId> parts);
  [[nodiscard]] ExprId either(std::span<const ExprId> parts);
  [[nodiscard]] ExprId either(ExprId a, ExprId b);
  [[nodiscard]] ExprId both(std::span<const ExprId> parts);
  [[nodiscard]] ExprId both(ExprId a, ExprId b);
  [[nodiscard]] ExprId negate(ExprId a);
  /// `most` may be kUnbounded.
  [[nodiscard]] ExprId repeat(ExprId a, std::uint32_t least, std::uint32_t most);
  [[nodiscard]] ExprId optional(ExprId a) { return repeat(a, 0, 1); }
  [[nodiscard]] ExprId star(ExprId a) { return repeat(a, 0, kUnbounded); }
  /// A finite set of texts, shared as a trie.
  [[nodiscard]] ExprId words(std::span<const std::u32string> texts);
  /// Decimal digits (with an optional fraction) whose value times 10^scale is a multiple of `divisor` > 0.
  [[nodiscard]] ExprId multiple_of(std::uint64_t divisor, std::uint32_t scale);

  /// RFC 3339 times hh:mm:60 whose offset makes them 23:59:60 UTC, fraction and offset included.
  [[nodiscard]] ExprId leap_second() { return leap_state(0, 0); }

  [[nodiscard]] bool nullable(ExprId id) const { return nodes_[id].nullable; }
  /// Transitions in ascending order of code points, disjoint; none leads to kEmpty.
  [[nodiscard]] std::span<const Arrow> arrows(ExprId id);
  /// The rest after one code point; kEmpty when it cannot follow.
  [[nodiscard]] ExprId after(ExprId id, char32_t code_point);
  /// Some text is in the language. Exact, by search, unless the pool is exhausted meanwhile.
  [[nodiscard]] bool live(ExprId id);
  /// Some text of the language starts with a code point in the range.
  [[nodiscard]] bool live_within(ExprId id, char32_t low, char32_t high);
  /// The rest after every code point of the range, when it is the same for all of them; kEmpty otherwise.
  [[nodiscard]] ExprId after_all(ExprId id, char32_t low, char32_t high);
  /// Words of a finite-set expression, in order; empty for any other kind.
  [[nodiscard]] std::vector<std::u32string> words_of(ExprId id) const;
  [[nodiscard]] bool is_words(ExprId id) const { return nodes_[id].kind == Kind::words || id == kEpsilon; }
  /// The language {w : w·c ∈ id}: what is left when `c` is taken from the end.
  [[nodiscard]] ExprId before(ExprId id, char32_t c);
  /// Bounds when the expression is kAny repeated; false otherwise.
  struct Repeat {
    std::uint32_t least = 0;
    std::uint32_t most = 0;
    ExprId body = 0;
  };
  [[nodiscard]] bool as_repeat(ExprId id, Repeat& out) const;
  /// Expressions whose union it is; itself alone when it is none.
  [[nodiscard]] std::vector<ExprId> alternatives(ExprId id) const;
  /// Texts which are all beginnings of texts of the expression; not all that there are.
  [[nodiscard]] FreeText free_text(ExprId id);
  /// Classes outside which no text of the expression has a character.
  [[nodiscard]] CharClasses mentioned_classes(ExprId id) const { return nodes_[id].mentioned; }
  /// What a text of the expression must hold to become long.
  [[nodiscard]] const Gate& gate(ExprId id) const { return nodes_[id].gate; }
  /// Numbers of remainders: their arrows are many and each is made alone.
  [[nodiscard]] bool has_multiple(ExprId id) const { return nodes_[id].has_multiple; }
  /// An expression with the same texts of at most `length` characters and the same beginnings of that length: counts beyond it are
  /// forgotten where that changes nothing.
  [[nodiscard]] ExprId forget_counts(ExprId id, std::uint32_t length);
  /// The class of an expression that is one code point out of a class; empty for any other.
  [[nodiscard]] CodeSet as_class(ExprId id) const;
  /// Visits every class in the expression and replaces its set; used to remove anchor symbols.
  [[nodiscard]] ExprId restrict_to(ExprId id, const CodeSet& alphabet);

  /// From here on no more than that is put together: parts of unions and intersections, which are what takes time.
  void allow(std::size_t more_parts) { allowed_parts_ = num_parts_ + more_parts; }
  /// Searches end when `budget` is spent (nullptr: none).
  void watch(const Budget* budget) { budget_ = budget; }
  /// A limit was hit: whatever was answered since may be wrong and must be thrown away.
  [[nodiscard]] bool exhausted() const { return exhausted_; }
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::size_t num_nodes() const { return nodes_.size(); }

 private:
  enum class Kind : std::uint8_t { empty, epsilon, one_of, concat, either, both, negate, repeat, words, multiple, leap };
  enum class Life : std::uint8_t { unknown, live, dead };
  struct Node {
    Kind kind = Kind::empty;
    bool nullable = false;
    bool positive = false;  // built without both/negate: never empty
    Life life = Life::unknown;
    bool has_arrows = false;
    bool has_multiple = false;   // multiple_of() is a part of it
    std::uint16_t depth = 0;     // recursion that arrows() needs
    std::uint32_t need = 0;      // at least the length of the shortest text; kUnbounded: not known
    FreeText free = {};          // all of these are beginnings of texts
    CharClasses single = 0;      // classes each of whose characters is a text
    CharClasses mentioned = 0;   // classes that can stand anywhere in a text
    CharClasses first = 0;       // classes that a text can begin with
    Gate gate = {};
    std::uint32_t farthest = 0;  // at least that of the shortest rest, wherever a text has begun
    std::uint32_t data = 0;      // first word in data_
    std::uint32_t size = 0;      // words
    std::uint32_t arrows = 0;
    std::uint32_t num_arrows = 0;
  };
  struct TrieNode {
    bool is_word = false;
    std::vector<std::pair<char32_t, std::uint32_t>> children;
  };
  struct Divisor {
    std::uint64_t divisor = 1;
    std::uint32_t scale = 0;
  };
  using Arrows = std::vector<Arrow>;

  ExprId forget_counts(ExprId id, std::uint32_t length, std::int32_t depth);
  [[nodiscard]] bool counts_characters(const Node& node) const;
  [[nodiscard]] FreeText free_within_count(ExprId both_id) const;
  ExprId forget_length(ExprId both_id, std::uint32_t length);
  ExprId intern(Kind kind, std::span<const std::uint32_t> words);
  void describe(Node& node, std::span<const std::uint32_t> words) const;
  void measure(Node& node, std::span<const std::uint32_t> words) const;
  void classify(Node& node, std::span<const std::uint32_t> words) const;
  [[nodiscard]] FreeText free_on(const Node& first, const Node& rest) const;
  void find_gate(Node& node, std::span<const std::uint32_t> words) const;
  void grow_table();
  [[nodiscard]] std::span<const std::uint32_t> words_in(const Node& node) const { return {data_.data() + node.data, node.size}; }
  ExprId list(Kind kind, std::vector<ExprId> parts);
  void merge_counts(std::vector<ExprId>& parts);
  bool merge_lengths(std::vector<ExprId>& parts);
  [[nodiscard]] static bool merges(const Repeat& inner, std::uint32_t least, std::uint32_t most);
  ExprId trie_expr(std::uint32_t trie_node);
  ExprId multiple_state(std::uint32_t divisor, std::uint64_t remainder, std::uint32_t fraction_digits);
  ExprId leap_state(std::uint32_t stage, std::uint32_t minutes);
  Arrows leap_arrows(std::uint32_t stage, std::uint32_t minutes);
  Arrows compute_arrows(ExprId id);
  Arrows concat_arrows(const Node& node);
  Arrows list_arrows(Kind kind, const std::vector<ExprId>& parts);
  Arrows multiple_arrows(const Node& node);
  ExprId multiple_after(const Node& node, char32_t c);
  template <class Combine>
  Arrows overlay(const Arrows& a, const Arrows& b, Combine combine);
  Arrows copy_arrows(ExprId id);
  [[nodiscard]] bool takes_any_digits(ExprId id);
  [[nodiscard]] bool completes_multiple(ExprId id, ExprId& multiple);

  std::uint32_t max_nodes_;
  std::size_t num_parts_ = 0;
  std::size_t allowed_parts_ = std::numeric_limits<std::size_t>::max();
  const Budget* budget_ = nullptr;
  std::vector<std::uint32_t> seen_;  // by node: the search that met it last
  std::uint32_t search_ = 0;
  bool exhausted_ = false;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> data_;
  std::vector<Arrow> arrows_;
  std::vector<std::uint32_t> table_;  // open addressing, 0 is free (node 0 is never looked up)
  std::vector<TrieNode> tries_;
  std::size_t trie_edges_ = 0;
  std::vector<Divisor> divisors_;
};

/// UTF-8 to code points; the text must be valid.
[[nodiscard]] std::u32string to_code_points(std::string_view text);

}  // namespace deepinfer::grammar
