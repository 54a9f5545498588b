// A slow reference for masks: a context-free grammar over code points and whether bytes are the beginning of one of its texts, by
// plain item sets per position. Shares nothing with src/grammar: no network, no lexer, no hash-consing, no tables.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace deepinfer::grammar::testing {

/// One part of a rule's alternative: a rule (`rule` >= 0), one code point out of `ranges`, any byte, or the control token `control` (>= 0).
struct SlowSymbol {
  int rule = -1;
  std::vector<std::pair<char32_t, char32_t>> ranges = {};
  bool is_any_byte = false;
  int control = -1;
};
using SlowAlternative = std::vector<SlowSymbol>;

class SlowGrammar {
 public:
  /// A new rule without alternatives.
  int add_rule();
  void add(int rule, SlowAlternative alternative) { rules_[static_cast<std::size_t>(rule)].push_back(std::move(alternative)); }
  /// The rule is one code point after the other; `text` is ASCII.
  int literal(std::string_view text);
  int one_of(std::vector<std::pair<char32_t, char32_t>> ranges);
  int any_byte();
  int control(int token);
  int sequence(const std::vector<int>& rules);
  int choice(const std::vector<int>& rules);
  /// `most` < 0: any number of times.
  int repeat(int rule, int least, int most);
  /// By rule: some finite text can be made of it.
  [[nodiscard]] std::vector<bool> productive_rules() const;

  struct Item {
    int rule = 0;
    int alternative = 0;
    int dot = 0;
    int origin = 0;
    int begun = 0;  ///< position at which the code point before the dot's end began; equal to the item's position at boundaries
    friend auto operator<=>(const Item&, const Item&) = default;
  };
  using Column = std::set<Item>;
  /// Columns behind every byte of a text; the last one is empty when no text of `root` begins with it.
  struct Chart {
    int root = 0;
    std::vector<bool> productive;
    std::string text;
    std::vector<Column> columns;
  };
  [[nodiscard]] Chart start(int root) const;
  /// Adds a byte; false when it cannot follow (the chart is left with an empty column).
  bool advance(Chart& chart, char byte) const;
  /// The same for a control token, which counts as one byte.
  bool advance_control(Chart& chart, int token) const;
  void retreat(Chart& chart, std::size_t num_bytes) const;
  [[nodiscard]] bool is_complete(const Chart& chart) const;

 private:
  void predict(const Chart& chart, int rule, int here, Column& out) const;
  void close(Chart& chart) const;
  [[nodiscard]] const SlowSymbol* next_symbol(const Item& item) const;

  std::vector<std::vector<SlowAlternative>> rules_;
};

}  // namespace deepinfer::grammar::testing
