#include "grammar/lexer.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace deepinfer::grammar {

namespace {

std::optional<std::uint32_t> hex_digit(std::uint8_t byte) {
  if (byte >= '0' && byte <= '9') {
    return byte - '0';
  }
  const std::uint8_t lower = byte | 0x20;
  if (lower >= 'a' && lower <= 'f') {
    return lower - 'a' + 10U;
  }
  return std::nullopt;
}

std::uint32_t lead_byte(std::uint32_t code_point) {
  return code_point < 0x800 ? 0xC0 | code_point >> 6 : code_point < 0x10000 ? 0xE0 | code_point >> 12 : 0xF0 | code_point >> 18;
}

/// Bytes a JSON string may hold as they are.
const std::bitset<256>& json_plain_bytes() {
  static const std::bitset<256> kPlain = [] {
    std::bitset<256> out;
    for (std::size_t byte = 0x20; byte < 256; ++byte) {
      out[byte] = byte != '"' && byte != '\\';
    }
    return out;
  }();
  return kPlain;
}

/// States that most grammars need.
constexpr std::size_t kUsualStates = 256;

/// Smallest and largest code point of a UTF-8 sequence of `length` bytes.
constexpr std::uint32_t kUtf8Low[] = {0, 0, 0x80, 0x800, 0x10000};
constexpr std::uint32_t kUtf8High[] = {0, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};

}  // namespace

const Lexer::Row Lexer::kNothingKnown = [] {
  Row out;
  out.fill(kUnknown);
  return out;
}();

Lexer::Lexer(ExprPool& pool) : pool_(&pool), table_(kUsualStates * 2, kDead) {
  states_.reserve(kUsualStates);
  states_.emplace_back();
}

std::uint64_t Lexer::hash(const Key& key) {
  const std::uint64_t place = static_cast<std::uint64_t>(key.mode) << 24 | static_cast<std::uint64_t>(key.in_json) << 16 |
                              static_cast<std::uint64_t>(key.have) << 8 | key.length;
  const std::uint64_t mixed = ((static_cast<std::uint64_t>(key.expr) << 32 | key.value) ^ place << 30) * 0x9E3779B97F4A7C15U;
  return (mixed ^ mixed >> 32) * 0xFF51AFD7ED558CCDU >> 32;
}

void Lexer::grow_table() {
  table_.assign(table_.size() * 2, kDead);
  for (LexId id = 1; id < states_.size(); ++id) {
    std::size_t slot = hash(states_[id].key) & (table_.size() - 1);
    while (table_[slot] != kDead) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    table_[slot] = id;
  }
}

LexId Lexer::intern(const Key& key) {
  std::size_t slot = hash(key) & (table_.size() - 1);
  for (; table_[slot] != kDead; slot = (slot + 1) & (table_.size() - 1)) {
    if (states_[table_[slot]].key == key) {
      return table_[slot];
    }
  }
  const auto id = static_cast<LexId>(states_.size());
  State& state = states_.emplace_back();
  state.key = key;
  state.accepting = key.mode == Mode::closed || key.mode == Mode::raw || (key.mode == Mode::text && pool_->nullable(key.expr));
  table_[slot] = id;
  if (states_.size() * 2 > table_.size()) {
    grow_table();
  }
  bytes_ += sizeof(State) + 16;
  return id;
}

LexId Lexer::start(ExprId expr, Encoding encoding) {
  if (encoding == Encoding::raw_bytes) {
    return intern({.mode = Mode::raw});
  }
  if (!pool_->live(expr)) {
    return kDead;
  }
  return intern({.expr = expr, .mode = encoding == Encoding::text ? Mode::text : Mode::quote, .in_json = encoding != Encoding::text});
}

Lexer::View Lexer::view(LexId state) const {
  const Key& key = states_[state].key;
  return {.expr = key.expr,
          .encoding = key.mode == Mode::raw ? Encoding::raw_bytes
                      : key.in_json         ? Encoding::json_string
                                            : Encoding::text,
          .is_body = key.mode == Mode::text || key.mode == Mode::body};
}

LexId Lexer::compute_next(LexId state, std::uint8_t byte) {
  const Key key = states_[state].key;
  const LexId out = step(key, byte);
  State& at = states_[state];
  if (at.row == nullptr && at.last_byte < 0) {
    at.last_byte = byte;
    at.last_next = out;
  } else {
    row_of(state)[byte] = out;
  }
  return out;
}

Lexer::Row& Lexer::row_of(LexId state) {
  State& at = states_[state];
  if (at.row == nullptr) {
    at.row = std::make_unique<Row>(kNothingKnown);
    bytes_ += sizeof(Row);
    if (at.last_byte >= 0) {
      (*at.row)[static_cast<std::size_t>(at.last_byte)] = at.last_next;
    }
  }
  return *at.row;
}

void Lexer::prepare(LexId state) {
  if (states_[state].is_prepared) {
    return;
  }
  states_[state].is_prepared = true;
  const Key key = states_[state].key;
  const std::bitset<256> first = first_bytes(state);
  Row& row = row_of(state);
  for (std::size_t byte = 0; byte < row.size(); ++byte) {
    row[byte] = first[byte] ? row[byte] : kDead;
  }
  if ((key.mode != Mode::text && key.mode != Mode::body) || pool_->has_multiple(key.expr)) {
    return;
  }
  constexpr char32_t kAscii = 0x7F;
  for (std::size_t i = 0; i < pool_->arrows(key.expr).size(); ++i) {  // at_boundary() may grow the pool: no reference is held
    const Arrow arrow = pool_->arrows(key.expr)[i];
    if (arrow.low > kAscii) {
      break;
    }
    const LexId next = at_boundary(arrow.next, key.in_json);
    for (char32_t c = arrow.low; c <= std::min(arrow.high, kAscii); ++c) {
      const bool is_mark = key.mode == Mode::body && (c == U'"' || c == U'\\' || c < 0x20);
      row[c] = is_mark ? row[c] : next;
    }
  }
}

const std::bitset<256>& Lexer::first_bytes(LexId state) {
  if (states_[state].first == nullptr) {
    auto first = std::make_unique<std::bitset<256>>(collect_first(states_[state].key));
    bytes_ += sizeof(*first);
    states_[state].first = std::move(first);
  }
  return *states_[state].first;
}

std::bitset<256> Lexer::collect_first(const Key& key) {
  std::bitset<256> out;
  const auto fill = [&out](std::uint32_t low, std::uint32_t high) {
    for (std::uint32_t byte = low; byte <= high; ++byte) {
      out.set(byte);
    }
  };
  switch (key.mode) {
    case Mode::text:
    case Mode::body:
      for (const Arrow& arrow : pool_->arrows(key.expr)) {
        if (arrow.low < 0x80) {
          fill(arrow.low, std::min<std::uint32_t>(arrow.high, 0x7F));
        }
        if (arrow.high >= 0x80) {
          fill(lead_byte(std::max<std::uint32_t>(arrow.low, 0x80)), lead_byte(std::min(arrow.high, kMaxCodePoint)));
        }
      }
      if (key.mode == Mode::body) {
        out &= json_plain_bytes();
        out.set('\\');
        out[static_cast<std::size_t>('"')] = pool_->nullable(key.expr);
      }
      break;
    case Mode::quote:
      out.set('"');
      break;
    case Mode::closed:
      break;
    case Mode::utf8:
    case Mode::tail:
      fill(0x80, 0xBF);
      break;
    case Mode::hex:
    case Mode::hex_tail:
    case Mode::low_hex:
      fill('0', '9');
      fill('A', 'F');
      fill('a', 'f');
      break;
    default:
      out.set();
  }
  return out;
}

LexId Lexer::with_expr(LexId state, ExprId expr) {
  Key key = states_[state].key;
  key.expr = expr;
  return pool_->live(expr) ? intern(key) : kDead;
}

std::bitset<256> Lexer::differing_bytes(LexId state) {
  std::bitset<256> out;
  const ExprId expr = states_[state].key.expr;
  std::uint32_t next_low = 0;
  const auto mark = [&out](std::uint32_t low, std::uint32_t high) {
    for (std::uint32_t c = low; c <= std::min(high, 0x7FU); ++c) {
      out.set(c);
    }
    if (high >= 0x80) {
      const std::uint32_t first = lead_byte(std::max(low, 0x80U));
      for (std::uint32_t byte = first; byte <= lead_byte(std::min<std::uint32_t>(high, kMaxCodePoint)); ++byte) {
        out.set(byte);
      }
    }
  };
  for (const Arrow& arrow : pool_->arrows(expr)) {
    if (arrow.next == ExprPool::kAnyText && arrow.low <= next_low) {
      next_low = arrow.high + 1;
      continue;
    }
    if (arrow.low > next_low) {
      mark(next_low, arrow.low - 1);
    }
    if (arrow.next != ExprPool::kAnyText) {
      mark(arrow.low, arrow.high);
    }
    next_low = arrow.high + 1;
  }
  if (next_low <= kMaxCodePoint) {
    mark(next_low, kMaxCodePoint);
  }
  out &= json_plain_bytes();
  out.set('\\');
  out[static_cast<std::size_t>('"')] = !pool_->nullable(expr);
  return out;
}

bool Lexer::continues(LexId state) {
  const Key& key = states_[state].key;
  if (key.mode == Mode::closed) {
    return false;
  }
  if (key.mode != Mode::text) {
    return true;
  }
  const auto span = pool_->arrows(key.expr);
  const std::vector<Arrow> arrows(span.begin(), span.end());
  return std::ranges::any_of(arrows, [this](const Arrow& arrow) { return pool_->live(arrow.next); });
}

LexId Lexer::at_boundary(ExprId expr, bool in_json) {
  if (!pool_->live(expr)) {
    return kDead;
  }
  return intern({.expr = expr, .mode = in_json ? Mode::body : Mode::text, .in_json = in_json});
}

LexId Lexer::after_char(const Key& key, char32_t code_point) { return at_boundary(pool_->after(key.expr, code_point), key.in_json); }

LexId Lexer::start_utf8(const Key& key, std::uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) {
    return kDead;
  }
  const std::uint8_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  Key next = key;
  next.mode = Mode::utf8;
  next.length = length;
  next.have = 1;
  next.value = byte & (0x7FU >> length);
  const std::uint32_t shift = 6U * (length - 1U);
  const std::uint32_t low = std::max(next.value << shift, kUtf8Low[length]);
  const std::uint32_t high = std::min(((next.value + 1) << shift) - 1, kUtf8High[length]);
  return inside_char(next, low, high);
}

/// The state with `next.length - next.have` bytes to come, for code points low…high.
LexId Lexer::inside_char(Key next, std::uint32_t low, std::uint32_t high) {
  const std::uint32_t missing = next.length - next.have;
  const ExprId after = high - low + 1 == 1U << (6 * missing) ? pool_->after_all(next.expr, low, high) : ExprPool::kEmpty;
  if (after != ExprPool::kEmpty) {
    return pool_->live(after)
               ? intern({.expr = after, .mode = Mode::tail, .in_json = next.in_json, .have = static_cast<std::uint8_t>(missing)})
               : kDead;
  }
  return pool_->live_within(next.expr, low, high) ? intern(next) : kDead;
}

LexId Lexer::continue_utf8(const Key& key, std::uint8_t byte) {
  if ((byte & 0xC0) != 0x80) {
    return kDead;
  }
  Key next = key;
  next.value = key.value << 6 | (byte & 0x3F);
  ++next.have;
  const std::uint32_t shift = 6U * (next.length - next.have);
  const std::uint32_t low = std::max(next.value << shift, kUtf8Low[next.length]);
  const std::uint32_t high = std::min(((next.value + 1) << shift) - 1, kUtf8High[next.length]);
  if (low > high || (low >= 0xD800 && high <= 0xDFFF)) {
    return kDead;
  }
  if (shift == 0) {
    return after_char(key, next.value);
  }
  return inside_char(next, low, high);
}

LexId Lexer::step_escape(const Key& key, std::uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
    case '/':
      return after_char(key, byte);
    case 'b':
      return after_char(key, U'\b');
    case 'f':
      return after_char(key, U'\f');
    case 'n':
      return after_char(key, U'\n');
    case 'r':
      return after_char(key, U'\r');
    case 't':
      return after_char(key, U'\t');
    case 'u':
      return intern({.expr = key.expr, .mode = Mode::hex, .in_json = true});
    default:
      return kDead;
  }
}

LexId Lexer::step_hex(const Key& key, std::uint8_t byte) {
  const std::optional<std::uint32_t> digit = hex_digit(byte);
  if (!digit) {
    return kDead;
  }
  Key next = key;
  next.value = key.value << 4 | *digit;
  ++next.have;
  const std::uint32_t shift = 4U * (4U - next.have);
  const std::uint32_t low = next.value << shift;
  const std::uint32_t high = ((next.value + 1) << shift) - 1;
  if (shift == 0 && (low < 0xD800 || low > 0xDFFF)) {
    return after_char(key, low);
  }
  const auto pairs = [&](std::uint32_t from, std::uint32_t to) {  // code points behind high surrogates from…to
    return from <= to && pool_->live_within(key.expr, 0x10000 + ((from - 0xD800) << 10), 0x10000 + ((to - 0xD800) << 10) + 0x3FF);
  };
  const bool has_pairs = high >= 0xD800 && low <= 0xDBFF && pairs(std::max(low, 0xD800U), std::min(high, 0xDBFFU));
  if (shift == 0) {
    return has_pairs ? intern({.expr = key.expr, .mode = Mode::low_slash, .in_json = true, .value = next.value << 16}) : kDead;
  }
  const bool has_surrogates = low <= 0xDFFF && high >= 0xD800;
  const ExprId after = has_surrogates ? ExprPool::kEmpty : pool_->after_all(key.expr, low, high);
  if (after != ExprPool::kEmpty) {
    return pool_->live(after) ? intern({.expr = after, .mode = Mode::hex_tail, .in_json = true, .have = static_cast<std::uint8_t>(4 - next.have)})
                              : kDead;
  }
  return has_pairs || pool_->live_within(key.expr, low, high) ? intern(next) : kDead;
}

LexId Lexer::step_low_hex(const Key& key, std::uint8_t byte) {
  const std::optional<std::uint32_t> digit = hex_digit(byte);
  if (!digit) {
    return kDead;
  }
  Key next = key;
  const std::uint32_t unit = (key.value & 0xFFFF) << 4 | *digit;
  next.value = (key.value & 0xFFFF0000U) | unit;
  ++next.have;
  const std::uint32_t shift = 4U * (4U - next.have);
  const std::uint32_t low = std::max(unit << shift, 0xDC00U);
  const std::uint32_t high = std::min(((unit + 1) << shift) - 1, 0xDFFFU);
  if (low > high) {
    return kDead;
  }
  const std::uint32_t base = 0x10000 + (((key.value >> 16) - 0xD800) << 10);
  if (shift == 0) {
    return after_char(key, base + (low - 0xDC00));
  }
  return pool_->live_within(key.expr, base + (low - 0xDC00), base + (high - 0xDC00)) ? intern(next) : kDead;
}

LexId Lexer::step(const Key& key, std::uint8_t byte) {
  const auto in_mode = [&](Mode mode, std::uint32_t value) {
    return intern({.expr = key.expr, .mode = mode, .in_json = true, .value = value});
  };
  switch (key.mode) {
    case Mode::raw:
      return intern(key);
    case Mode::text:
      return byte < 0x80 ? after_char(key, byte) : start_utf8(key, byte);
    case Mode::quote:
      return byte == '"' ? in_mode(Mode::body, 0) : kDead;
    case Mode::body:
      if (byte == '"') {
        return pool_->nullable(key.expr) ? intern({.expr = ExprPool::kEpsilon, .mode = Mode::closed, .in_json = true}) : kDead;
      }
      if (byte == '\\') {
        return pool_->live_within(key.expr, 0, kMaxCodePoint) ? in_mode(Mode::escape, 0) : kDead;
      }
      if (byte < 0x20) {
        return kDead;
      }
      return byte < 0x80 ? after_char(key, byte) : start_utf8(key, byte);
    case Mode::closed:
      return kDead;
    case Mode::escape:
      return step_escape(key, byte);
    case Mode::hex:
      return step_hex(key, byte);
    case Mode::low_slash:
      return byte == '\\' ? in_mode(Mode::low_u, key.value) : kDead;
    case Mode::low_u:
      return byte == 'u' ? in_mode(Mode::low_hex, key.value) : kDead;
    case Mode::low_hex:
      return step_low_hex(key, byte);
    case Mode::utf8:
      return continue_utf8(key, byte);
    case Mode::tail:
    case Mode::hex_tail: {
      const bool fits = key.mode == Mode::tail ? (byte & 0xC0) == 0x80 : hex_digit(byte).has_value();
      if (!fits) {
        return kDead;
      }
      Key next = key;
      return --next.have == 0 ? at_boundary(key.expr, key.in_json) : intern(next);
    }
  }
  return kDead;
}

}  // namespace deepinfer::grammar
