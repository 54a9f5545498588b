#include "slow_grammar.h"

#include <algorithm>

namespace deepinfer::grammar::testing {

namespace {

/// What the bytes of one character, perhaps cut short, say: the code points they can still become.
struct Decoded {
  bool is_valid = false;
  bool is_whole = false;
  char32_t low = 0;
  char32_t high = 0;
};

Decoded decode(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  const int length = first < 0x80 ? 1 : first >= 0xC2 && first <= 0xDF ? 2 : first >= 0xE0 && first <= 0xEF ? 3 : 0;
  const int all = length == 0 && first >= 0xF0 && first <= 0xF4 ? 4 : length;
  if (all == 0 || static_cast<int>(bytes.size()) > all) {
    return {};
  }
  char32_t value = all == 1 ? first : first & (0x7FU >> all);
  for (const char byte : bytes.substr(1)) {
    if ((static_cast<unsigned char>(byte) & 0xC0U) != 0x80) {
      return {};
    }
    value = value << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  const int missing = all - static_cast<int>(bytes.size());
  Decoded out{.is_valid = true, .is_whole = missing == 0, .low = value << (6 * missing), .high = ((value + 1) << (6 * missing)) - 1};
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  out.low = std::max(out.low, kLeast[all]);
  out.high = std::min<char32_t>(out.high, 0x10FFFF);
  if (out.low >= 0xD800 && out.low <= 0xDFFF) {
    out.low = 0xE000;
  }
  if (out.high >= 0xD800 && out.high <= 0xDFFF) {
    out.high = 0xD7FF;
  }
  out.is_valid = out.low <= out.high;
  return out;
}

bool touches(const std::vector<std::pair<char32_t, char32_t>>& ranges, const Decoded& decoded) {
  return std::ranges::any_of(ranges, [&](const auto& range) { return range.first <= decoded.high && decoded.low <= range.second; });
}

}  // namespace

int SlowGrammar::add_rule() {
  rules_.emplace_back();
  return static_cast<int>(rules_.size()) - 1;
}

int SlowGrammar::literal(std::string_view text) {
  const int rule = add_rule();
  SlowAlternative alternative;
  for (const char c : text) {
    alternative.push_back({.ranges = {{static_cast<unsigned char>(c), static_cast<unsigned char>(c)}}});
  }
  add(rule, std::move(alternative));
  return rule;
}

int SlowGrammar::one_of(std::vector<std::pair<char32_t, char32_t>> ranges) {
  const int rule = add_rule();
  add(rule, {{.ranges = std::move(ranges)}});
  return rule;
}

int SlowGrammar::any_byte() {
  const int rule = add_rule();
  add(rule, {{.is_any_byte = true}});
  return rule;
}

int SlowGrammar::control(int token) {
  const int rule = add_rule();
  add(rule, {{.control = token}});
  return rule;
}

int SlowGrammar::sequence(const std::vector<int>& rules) {
  const int rule = add_rule();
  SlowAlternative alternative;
  for (const int part : rules) {
    alternative.push_back({.rule = part});
  }
  add(rule, std::move(alternative));
  return rule;
}

int SlowGrammar::choice(const std::vector<int>& rules) {
  const int rule = add_rule();
  for (const int part : rules) {
    add(rule, {{.rule = part}});
  }
  return rule;
}

int SlowGrammar::repeat(int rule, int least, int most) {
  const int out = add_rule();
  if (most < 0) {
    const int loop = add_rule();
    add(loop, {});
    add(loop, {{.rule = loop}, {.rule = rule}});  // to the left: a column does not hold all earlier ones
    SlowAlternative alternative(static_cast<std::size_t>(least), SlowSymbol{.rule = rule});
    alternative.push_back({.rule = loop});
    add(out, std::move(alternative));
    return out;
  }
  for (int count = least; count <= most; ++count) {
    add(out, SlowAlternative(static_cast<std::size_t>(count), SlowSymbol{.rule = rule}));
  }
  return out;
}

std::vector<bool> SlowGrammar::productive_rules() const {
  std::vector<bool> known(rules_.size(), false);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      const bool now = std::ranges::any_of(rules_[i], [&](const SlowAlternative& alternative) {
        return std::ranges::all_of(alternative, [&](const SlowSymbol& symbol) {
          return symbol.rule >= 0 ? known[static_cast<std::size_t>(symbol.rule)]
                                  : !symbol.ranges.empty() || symbol.is_any_byte || symbol.control >= 0;
        });
      });
      has_changed |= now && !known[i];
      known[i] = now || known[i];
    }
  }
  return known;
}

const SlowSymbol* SlowGrammar::next_symbol(const Item& item) const {
  const SlowAlternative& alternative = rules_[static_cast<std::size_t>(item.rule)][static_cast<std::size_t>(item.alternative)];
  return item.dot < static_cast<int>(alternative.size()) ? &alternative[static_cast<std::size_t>(item.dot)] : nullptr;
}

SlowGrammar::Chart SlowGrammar::start(int root) const {
  Chart out{.root = root, .productive = productive_rules(), .text = {}, .columns = {{}}};
  predict(out, root, 0, out.columns[0]);
  close(out);
  return out;
}

/// The rule's alternatives that make a text, about to begin.
void SlowGrammar::predict(const Chart& chart, int rule, int here, Column& out) const {
  const std::vector<SlowAlternative>& alternatives = rules_[static_cast<std::size_t>(rule)];
  for (std::size_t i = 0; i < alternatives.size(); ++i) {
    const bool makes_text = std::ranges::all_of(alternatives[i], [&chart](const SlowSymbol& symbol) {
      return symbol.rule < 0 || chart.productive[static_cast<std::size_t>(symbol.rule)];
    });
    if (makes_text) {
      out.insert({rule, static_cast<int>(i), 0, here, here});
    }
  }
}

/// Predictions and completions until nothing new appears; the last column may complete rules that began in it.
void SlowGrammar::close(Chart& chart) const {
  const int here = static_cast<int>(chart.columns.size()) - 1;
  Column& column = chart.columns.back();
  for (bool has_changed = true; has_changed;) {
    Column more;
    for (const Item& item : column) {
      if (item.begun != here) {
        continue;  // inside a character
      }
      const SlowSymbol* symbol = next_symbol(item);
      if (symbol != nullptr && symbol->rule >= 0) {
        predict(chart, symbol->rule, here, more);
      }
      if (symbol != nullptr) {
        continue;
      }
      for (const Item& caller : chart.columns[static_cast<std::size_t>(item.origin)]) {
        const SlowSymbol* awaited = caller.begun == item.origin ? next_symbol(caller) : nullptr;
        if (awaited != nullptr && awaited->rule == item.rule) {
          more.insert({caller.rule, caller.alternative, caller.dot + 1, caller.origin, here});
        }
      }
    }
    const std::size_t before = column.size();
    column.merge(more);
    has_changed = column.size() != before;
  }
}

bool SlowGrammar::advance(Chart& chart, char byte) const {
  const int before = static_cast<int>(chart.columns.size()) - 1;
  chart.text.push_back(byte);
  Column next;
  for (const Item& item : chart.columns.back()) {
    const SlowSymbol* symbol = next_symbol(item);
    if (symbol == nullptr || symbol->rule >= 0) {
      continue;
    }
    if (symbol->is_any_byte) {
      next.insert({item.rule, item.alternative, item.dot + 1, item.origin, before + 1});
      continue;
    }
    const Decoded decoded = decode(std::string_view(chart.text).substr(static_cast<std::size_t>(item.begun)));
    if (decoded.is_valid && touches(symbol->ranges, decoded)) {
      next.insert(
          {item.rule, item.alternative, item.dot + (decoded.is_whole ? 1 : 0), item.origin, decoded.is_whole ? before + 1 : item.begun});
    }
  }
  chart.columns.push_back(std::move(next));
  close(chart);
  return !chart.columns.back().empty();
}

bool SlowGrammar::advance_control(Chart& chart, int token) const {
  const int before = static_cast<int>(chart.columns.size()) - 1;
  chart.text.push_back('\xFF');
  Column next;
  for (const Item& item : chart.columns.back()) {
    const SlowSymbol* symbol = item.begun == before ? next_symbol(item) : nullptr;
    if (symbol != nullptr && symbol->control == token) {
      next.insert({item.rule, item.alternative, item.dot + 1, item.origin, before + 1});
    }
  }
  chart.columns.push_back(std::move(next));
  close(chart);
  return !chart.columns.back().empty();
}

void SlowGrammar::retreat(Chart& chart, std::size_t num_bytes) const {
  chart.text.resize(chart.text.size() - num_bytes);
  chart.columns.resize(chart.columns.size() - num_bytes);
}

bool SlowGrammar::is_complete(const Chart& chart) const {
  const int here = static_cast<int>(chart.columns.size()) - 1;
  return std::ranges::any_of(chart.columns.back(), [&](const Item& item) {
    return item.rule == chart.root && item.origin == 0 && item.begun == here && next_symbol(item) == nullptr;
  });
}

}  // namespace deepinfer::grammar::testing
