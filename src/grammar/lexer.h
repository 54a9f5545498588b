// The byte level of a lexeme: lazily built automaton states over UTF-8 bytes, or over the spellings of a JSON string.
// A state is live by construction: from every state but kDead some text of the lexeme can be finished.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/char_classes.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

/// How the code points of an expression are written.
enum class Encoding : std::uint8_t {
  text,         ///< UTF-8
  json_string,  ///< a quoted JSON string whose decoded content is in the expression; any spelling
  raw_bytes,    ///< any bytes at all; the expression is ignored
};

/// Index of a lexer state. kDead is no state.
using LexId = std::uint32_t;
inline constexpr LexId kDead = 0;

class Lexer {
 public:
  explicit Lexer(ExprPool& pool);

  [[nodiscard]] LexId start(ExprId expr, Encoding encoding);
  [[nodiscard]] LexId next(LexId state, std::uint8_t byte) {
    const State& at = states_[state];
    const LexId known = at.row != nullptr ? (*at.row)[byte] : at.last_byte == byte ? at.last_next : kUnknown;
    return known != kUnknown ? known : compute_next(state, byte);
  }
  static constexpr LexId kUnknown = 0xFFFFFFFF;
  using Row = std::array<LexId, 256>;
  /// What next() may answer without a search, kUnknown where it must be asked. Stays where it is.
  [[nodiscard]] const Row& row(LexId state) const { return states_[state].row != nullptr ? *states_[state].row : kNothingKnown; }
  /// Makes row() know as much as is cheaper to find at once than byte by byte.
  void prepare(LexId state);
  [[nodiscard]] bool accepting(LexId state) const { return states_[state].accepting; }
  /// Some byte can follow.
  [[nodiscard]] bool continues(LexId state);
  /// A superset of the bytes that can follow, quick to make: a filter in front of next().
  [[nodiscard]] const std::bitset<256>& first_bytes(LexId state);

  /// For a state inside a JSON string: the bytes behind which it may differ from a string without any restriction.
  [[nodiscard]] std::bitset<256> differing_bytes(LexId state);

  /// Where in its lexeme a state is: at a character boundary of the content (`body`) or not.
  struct View {
    ExprId expr = 0;
    Encoding encoding = Encoding::text;
    bool is_body = false;
  };
  [[nodiscard]] View view(LexId state) const;
  /// What a state does with whole classes of characters.
  struct Reach {
    FreeText free = {};                   ///< all of these can follow
    CharClasses other = ~CharClasses{0};  ///< other classes that can stand anywhere behind the state
    Gate gate = {};                       ///< of what can follow before the lexeme ends
  };
  [[nodiscard]] const Reach& reach(LexId state) { return states_[state].has_reach ? states_[state].reach : compute_reach(state); }
  /// A place where a state and itself lead to with every character of some classes.
  struct Loop {
    CharClasses classes = 0;
    LexId at = kDead;
  };
  [[nodiscard]] Loop loop(LexId state);
  /// The same place in its lexeme with another expression.
  [[nodiscard]] LexId with_expr(LexId state, ExprId expr);
  [[nodiscard]] std::size_t size() const { return states_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool exhausted() const { return pool_->exhausted(); }
  [[nodiscard]] ExprPool& pool() { return *pool_; }
  /// The pool moved; states stay valid.
  void rebind(ExprPool& pool) { pool_ = &pool; }

 private:
  enum class Mode : std::uint8_t {
    text,
    quote,      // JSON: before the opening quote
    body,       // JSON: inside, at a character boundary
    closed,     // JSON: after the closing quote
    escape,     // after a backslash
    hex,        // after \u and `have` digits; value holds them
    hex_tail,   // inside \uXXXX whose end does not matter: `have` digits are missing, then comes expr
    low_slash,  // after a high surrogate: a backslash must follow
    low_u,
    low_hex,  // digits of the low surrogate; value = high unit << 16 | digits
    utf8,     // inside a character: value is its bits so far, `have` bytes are missing
    tail,     // inside a character whose end does not matter: `have` bytes are missing, then comes expr
    raw,
  };
  struct Key {
    ExprId expr = 0;
    Mode mode = Mode::text;
    bool in_json = false;
    std::uint8_t have = 0;
    std::uint8_t length = 0;  // utf8: bytes of the whole character
    std::uint32_t value = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct State {
    Key key;
    bool accepting = false;
    bool has_reach = false;
    bool is_prepared = false;
    std::int16_t last_byte = -1;  // the first transition lives here: most states have only one
    LexId last_next = kDead;
    Reach reach;
    std::unique_ptr<Row> row;
    std::unique_ptr<std::bitset<256>> first;
  };

  LexId intern(const Key& key);
  const Reach& compute_reach(LexId state);
  static const Row kNothingKnown;
  [[nodiscard]] static std::uint64_t hash(const Key& key);
  Row& row_of(LexId state);
  void grow_table();
  LexId compute_next(LexId state, std::uint8_t byte);
  LexId step(const Key& key, std::uint8_t byte);
  [[nodiscard]] std::bitset<256> collect_first(const Key& key);
  LexId at_boundary(ExprId expr, bool in_json);
  LexId after_char(const Key& key, char32_t code_point);
  LexId start_utf8(const Key& key, std::uint8_t byte);
  LexId inside_char(Key next, std::uint32_t low, std::uint32_t high);
  LexId continue_utf8(const Key& key, std::uint8_t byte);
  LexId step_escape(const Key& key, std::uint8_t byte);
  LexId step_hex(const Key& key, std::uint8_t byte);
  LexId step_low_hex(const Key& key, std::uint8_t byte);

  ExprPool* pool_;
  std::vector<State> states_;
  std::vector<LexId> table_;  // open addressing over states_; 0 is free
  std::size_t bytes_ = 0;
};

}  // namespace deepinfer::grammar
