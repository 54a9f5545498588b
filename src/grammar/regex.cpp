// A recursive descent parser with bounded depth; a pattern becomes an expression while it is read. Lookaround is
// kept as a pending condition on the rest of (or on what precedes in) its own sequence, which is exact when that
// sequence reaches to the end (start) of the pattern or is at least as long as what the condition can see.
#include "grammar/regex.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"

namespace deepinfer::grammar {

namespace {

constexpr std::int32_t kMaxNesting = 256;
constexpr std::uint64_t kMaxCount = 0x7FFFFFFF;  // limit `repeat`

const CodeSet kDigits{{U'0', U'9'}};
const CodeSet kWordChars{{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};

CodeSet blanks() {
  return normalise({{U'\t', U'\r'},
                    {U' ', U' '},
                    {0xA0, 0xA0},
                    {0x1680, 0x1680},
                    {0x2000, 0x200A},
                    {0x2028, 0x2029},
                    {0x202F, 0x202F},
                    {0x205F, 0x205F},
                    {0x3000, 0x3000},
                    {0xFEFF, 0xFEFF}});
}

/// What surrounds a sequence: whether nothing of the pattern stands before or after it.
struct Place {
  bool is_first = false;
  bool is_last = false;
};

class Parser {
 public:
  Parser(ExprPool& pool, std::string_view pattern, RegexUse use) : pool_(pool), text_(to_code_points(pattern)) {
    scan_groups();
    if (has_lookahead_) {
      tail_ = use == RegexUse::search ? ExprPool::kAnyText : pool_.optional(pool_.one_of({{kTextEnd, kTextEnd}}));
    }
  }

  /// A lookahead sees the end of the text: the expression then describes texts followed by kTextEnd.
  bool has_lookahead() const { return has_lookahead_; }

  Compiled<ExprId> parse() {
    Compiled<ExprId> out = alternatives({.is_first = true, .is_last = true}, 0);
    if (out && at_ < text_.size()) {
      return syntax("unbalanced )");
    }
    return out;
  }

 private:
  std::unexpected<CompileError> problem(ErrorCode code, std::string what, std::string keyword = {}) const {
    std::size_t line = 1;
    std::size_t column = 1;
    for (std::size_t i = 0; i < std::min(at_, text_.size()); ++i) {
      column = text_[i] == U'\n' ? 1 : column + 1;
      line += text_[i] == U'\n' ? 1 : 0;
    }
    CompileError error{.code = code,
                       .message = "regex: " + what + " at line " + std::to_string(line) + " column " + std::to_string(column)};
    error.keyword = std::move(keyword);
    error.limit = code == ErrorCode::limit ? error.keyword : "";
    error.line = line;
    error.column = column;
    return refuse(std::move(error));
  }
  std::unexpected<CompileError> syntax(std::string what) const { return problem(ErrorCode::syntax, std::move(what)); }
  std::unexpected<CompileError> unsupported(std::string what) const { return problem(ErrorCode::unsupported, "unsupported " + what, what); }

  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(char32_t c) const { return !at_end() && text_[at_] == c; }
  bool take(char32_t c) {
    if (!next_is(c)) {
      return false;
    }
    ++at_;
    return true;
  }
  bool take(std::u32string_view word) {
    if (std::u32string_view(text_).substr(at_, word.size()) != word) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  /// For each `(`: its `)`; needed to know what follows a group before the group is read.
  void scan_groups() {
    closing_.assign(text_.size(), text_.size());
    std::vector<std::size_t> open;
    bool in_class = false;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      if (text_[i] == U'\\') {
        ++i;
      } else if (in_class) {
        in_class = text_[i] != U']';
      } else if (text_[i] == U'[') {
        in_class = true;
      } else if (text_[i] == U'(') {
        open.push_back(i);
        has_lookahead_ |= text_.compare(i, 3, U"(?=") == 0 || text_.compare(i, 3, U"(?!") == 0;
      } else if (text_[i] == U')' && !open.empty()) {
        closing_[open.back()] = i;
        open.pop_back();
      }
    }
  }

  bool ends_sequence(std::size_t at) const { return at >= text_.size() || text_[at] == U'|' || text_[at] == U')'; }

  Compiled<ExprId> alternatives(Place place, std::int32_t depth) {
    if (depth > kMaxNesting) {
      return problem(ErrorCode::limit, "groups nested deeper than 256", "depth");
    }
    std::vector<ExprId> options;
    do {
      const Compiled<ExprId> option = sequence(place, depth);
      if (!option) {
        return option;
      }
      options.push_back(*option);
    } while (take(U'|'));
    return pool_.either(options);
  }

  /// One condition of a sequence: the text from (or up to) `index` parts into it.
  struct Condition {
    std::size_t index = 0;
    ExprId expr = 0;
    bool is_behind = false;
  };

  Compiled<ExprId> sequence(Place place, std::int32_t depth) {
    std::vector<ExprId> parts;
    std::vector<Condition> conditions;
    bool has_tail = false;
    while (!ends_sequence(at_)) {
      if (next_is(U'(') && (look_at(U"(?=") || look_at(U"(?!") || look_at(U"(?<=") || look_at(U"(?<!"))) {
        const Compiled<Condition> condition = lookaround(depth, parts.size());
        if (!condition) {
          return refuse(condition.error());
        }
        conditions.push_back(*condition);
        continue;
      }
      const Place inner{.is_first = place.is_first && parts.empty(), .is_last = place.is_last};
      has_tail = place.is_last && next_is(U'(') && ends_sequence(closing_[at_] + 1);
      Compiled<ExprId> part = term(inner, depth);
      if (!part) {
        return part;
      }
      parts.push_back(*part);
    }
    if (place.is_last && !has_tail) {
      parts.push_back(tail_);
    }
    return apply(place, std::move(parts), conditions);
  }

  bool look_at(std::u32string_view word) const { return std::u32string_view(text_).substr(at_, word.size()) == word; }

  Compiled<Condition> lookaround(std::int32_t depth, std::size_t index) {
    const bool is_behind = look_at(U"(?<");
    at_ += is_behind ? 3 : 2;
    const bool is_negative = text_[at_++] == U'!';
    const Compiled<ExprId> inner = alternatives({}, depth + 1);
    if (!inner) {
      return refuse(inner.error());
    }
    if (!take(U')')) {
      return syntax("unclosed group");
    }
    if (!at_end() && (next_is(U'*') || next_is(U'+') || next_is(U'?') || next_is(U'{'))) {
      return syntax("a lookaround cannot be repeated");
    }
    const ExprId seen = is_behind ? pool_.concat(ExprPool::kAnyText, *inner) : pool_.concat(*inner, ExprPool::kAnyText);
    return Condition{.index = index, .expr = is_negative ? pool_.negate(seen) : seen, .is_behind = is_behind};
  }

  /// Intersects the conditions in, from the last to the first, where that is exact.
  Compiled<ExprId> apply(Place place, std::vector<ExprId> parts, const std::vector<Condition>& conditions) {
    std::vector<ExprId> ahead;
    for (const Condition& condition : conditions) {
      if (condition.is_behind) {
        if (!place.is_first) {
          return unsupported("lookbehind");
        }
        const ExprId before = pool_.both(pool_.concat(std::span(parts).first(condition.index)), condition.expr);
        for (std::size_t i = 0; i < condition.index; ++i) {
          parts[i] = ExprPool::kEpsilon;
        }
        if (condition.index > 0) {
          parts[0] = before;
        } else {
          parts.insert(parts.begin(), before);
          return conditions.size() == 1 ? Compiled<ExprId>(pool_.concat(parts)) : unsupported("lookbehind");
        }
      } else if (!place.is_last) {
        return unsupported("lookahead");
      }
    }
    ExprId out = ExprPool::kEpsilon;
    for (std::size_t i = parts.size() + 1; i-- > 0;) {
      if (i < parts.size()) {
        out = pool_.concat(parts[i], out);
      }
      for (const Condition& condition : conditions) {
        if (!condition.is_behind && condition.index == i) {
          out = pool_.both(out, condition.expr);
        }
      }
    }
    return out;
  }

  Compiled<ExprId> term(Place place, std::int32_t depth) {
    const std::size_t begin = at_;
    bool is_zero_width = false;
    Compiled<ExprId> out = ExprPool::kEpsilon;
    if (take(U'^')) {
      out = pool_.one_of({{kTextBegin, kTextBegin}});
      is_zero_width = true;
    } else if (take(U'$')) {
      out = pool_.one_of({{kTextEnd, kTextEnd}});
      is_zero_width = true;
    } else if (take(U'(')) {
      const std::size_t close = closing_[begin];
      const bool is_repeated = close + 1 < text_.size() && std::u32string_view(U"*+?{").find(text_[close + 1]) != std::u32string_view::npos;
      const Place inner{.is_first = place.is_first && !is_repeated, .is_last = place.is_last && ends_sequence(close + 1)};
      out = group(inner, depth);
    } else if (take(U'[')) {
      const Compiled<CodeSet> set = char_class();
      out = set ? Compiled<ExprId>(pool_.one_of(*set)) : refuse(set.error());
    } else if (take(U'.')) {
      out = pool_.one_of(complement({{U'\n', U'\n'}}));
    } else if (next_is(U'*') || next_is(U'+') || next_is(U'?')) {
      return syntax("nothing to repeat");
    } else if (take(U'\\')) {
      const Compiled<CodeSet> set = escape(Escape::outside);
      out = set ? Compiled<ExprId>(pool_.one_of(*set)) : refuse(set.error());
    } else {
      const char32_t c = text_[at_++];
      out = pool_.one_of(folded({{c, c}}));
    }
    return out ? repeated(*out, is_zero_width) : out;
  }

  CodeSet folded(CodeSet set) const { return ignore_case_ ? fold_case(set) : set; }

  Compiled<ExprId> group(Place place, std::int32_t depth) {
    if (take(U'?')) {
      if (take(U"P<") || take(U'<')) {
        const std::size_t begin = at_;
        while (!at_end() && text_[at_] != U'>') {
          const char32_t c = text_[at_];
          if (!contains(kWordChars, c) && c != U'$' && c < 0x80) {
            return syntax("bad group name");
          }
          ++at_;
        }
        if (at_ == begin || !take(U'>')) {
          return syntax("bad group name");
        }
      } else if (take(U"i)")) {
        if (at_ != 4) {
          return unsupported("flags that do not stand at the start");
        }
        ignore_case_ = true;
        return ExprPool::kEpsilon;
      } else if (!take(U':')) {
        return unsupported("group form");
      }
    }
    Compiled<ExprId> out = alternatives(place, depth + 1);
    if (out && !take(U')')) {
      return syntax("unclosed group");
    }
    return out;
  }

  std::optional<std::uint64_t> number() {
    std::optional<std::uint64_t> out;
    while (!at_end() && contains(kDigits, text_[at_])) {
      out = std::min<std::uint64_t>(out.value_or(0) * 10 + (text_[at_++] - U'0'), kMaxCount + 1);
    }
    return out;
  }

  struct Counts {
    std::uint64_t least = 1;
    std::uint64_t most = 1;
  };

  /// Reads {n}, {n,} or {n,m}; nullopt (and nothing read) when the brace is none of these.
  std::optional<Counts> braces() {
    const std::size_t begin = at_;
    ++at_;
    const std::optional<std::uint64_t> least = number();
    std::optional<std::uint64_t> most = least;
    if (least && take(U',')) {
      most = number();
      if (!most) {
        most = kUnbounded;
      }
    }
    if (!least || !take(U'}')) {
      at_ = begin;
      return std::nullopt;
    }
    return Counts{*least, *most};
  }

  Compiled<ExprId> repeated(ExprId operand, bool is_zero_width) {
    Counts counts;
    bool is_repeated = true;
    if (take(U'*')) {
      counts = {0, kUnbounded};
    } else if (take(U'+')) {
      counts = {1, kUnbounded};
    } else if (take(U'?')) {
      counts = {0, 1};
    } else if (next_is(U'{')) {
      const std::optional<Counts> braced = braces();
      is_repeated = braced.has_value();
      counts = braced.value_or(Counts{});
    } else {
      is_repeated = false;
    }
    if (!is_repeated) {
      return operand;
    }
    if (is_zero_width) {
      return syntax("an anchor cannot be repeated");
    }
    if (counts.least > kMaxCount || (counts.most > kMaxCount && counts.most != kUnbounded)) {
      return problem(ErrorCode::limit, "repeat count above 2147483647", "repeat");
    }
    if (counts.least > counts.most) {
      return syntax("reversed repeat counts");
    }
    take(U'?');
    if (next_is(U'*') || next_is(U'+') || next_is(U'?')) {
      return syntax("nothing to repeat");
    }
    return pool_.repeat(operand, static_cast<std::uint32_t>(counts.least), static_cast<std::uint32_t>(counts.most));
  }

  enum class Escape { outside, in_class };

  std::optional<char32_t> hex(std::size_t digits) {
    if (text_.size() - at_ < digits) {
      return std::nullopt;
    }
    char32_t out = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char32_t c = text_[at_ + i];
      const char32_t lower = c | 0x20;
      if (contains(kDigits, c)) {
        out = out * 16 + (c - U'0');
      } else if (lower >= U'a' && lower <= U'f') {
        out = out * 16 + (lower - U'a' + 10);
      } else {
        return std::nullopt;
      }
    }
    at_ += digits;
    return out;
  }

  Compiled<CodeSet> unicode_escape() {
    std::optional<char32_t> value;
    if (take(U'{')) {
      std::size_t length = 0;
      while (at_ + length < text_.size() && text_[at_ + length] != U'}') {
        ++length;
      }
      value = length >= 1 && length <= 8 ? hex(length) : std::nullopt;
      if (!value || !take(U'}')) {
        return syntax("bad \\u escape");
      }
    } else {
      value = hex(4);
      if (value && *value >= 0xD800 && *value <= 0xDBFF && take(U"\\u")) {
        const std::optional<char32_t> low = hex(4);
        if (!low || *low < 0xDC00 || *low > 0xDFFF) {
          return syntax("lone surrogate");
        }
        value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
      }
    }
    if (!value || *value > kMaxCodePoint) {
      return syntax("bad \\u escape");
    }
    return folded(normalise({{*value, *value}}));
  }

  Compiled<CodeSet> property(bool is_negated) {
    if (!take(U'{')) {
      return syntax("\\p needs {…}");
    }
    std::string name;
    while (!at_end() && text_[at_] != U'}') {
      utf8::append(name, text_[at_++]);
    }
    if (!take(U'}')) {
      return syntax("\\p needs {…}");
    }
    CodeSet set = unicode_property(name);
    if (set.empty()) {
      return unsupported("property \\p{" + name + "}");
    }
    return is_negated ? complement(set) : set;
  }

  Compiled<CodeSet> escape(Escape where) {
    if (at_end()) {
      return syntax("trailing backslash");
    }
    const char32_t c = text_[at_++];
    switch (c) {
      case U'd':
        return kDigits;
      case U'D':
        return complement(kDigits);
      case U'w':
        return kWordChars;
      case U'W':
        return complement(kWordChars);
      case U's':
        return blanks();
      case U'S':
        return complement(blanks());
      case U'p':
      case U'P':
        return property(c == U'P');
      case U't':
        return CodeSet{{U'\t', U'\t'}};
      case U'n':
        return CodeSet{{U'\n', U'\n'}};
      case U'r':
        return CodeSet{{U'\r', U'\r'}};
      case U'f':
        return CodeSet{{U'\f', U'\f'}};
      case U'v':
        return CodeSet{{U'\v', U'\v'}};
      case U'0':
        return CodeSet{{0, 0}};
      case U'a':
        return CodeSet{{U'\a', U'\a'}};
      case U'u':
        return unicode_escape();
      case U'x': {
        const std::optional<char32_t> value = hex(2);
        return value ? Compiled<CodeSet>(folded({{*value, *value}})) : syntax("bad \\x escape");
      }
      case U'c': {
        const char32_t letter = at_end() ? 0 : text_[at_] | 0x20;
        if (letter < U'a' || letter > U'z') {
          return syntax("bad \\c escape");
        }
        ++at_;
        return CodeSet{{letter - U'a' + 1, letter - U'a' + 1}};
      }
      case U'b':
        if (where == Escape::in_class) {
          return CodeSet{{U'\b', U'\b'}};
        }
        return unsupported("word boundary \\b");
      case U'B':
        return unsupported("word boundary \\B");
      case U'Z':
      case U'A':
      case U'z':
      case U'G':
        return syntax("unknown escape");
      default:
        break;
    }
    if (c == U'k' || (c >= U'1' && c <= U'9')) {
      return unsupported("backreference");
    }
    if ((c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z')) {
      return syntax("unknown escape");
    }
    return CodeSet{{c, c}};
  }

  Compiled<CodeSet> class_atom() {
    if (take(U'\\')) {
      return escape(Escape::in_class);
    }
    const char32_t c = text_[at_++];
    return CodeSet{{c, c}};
  }

  Compiled<CodeSet> char_class() {
    const bool is_negated = take(U'^');
    CodeSet set;
    while (!next_is(U']')) {
      if (at_end()) {
        return syntax("unclosed class");
      }
      Compiled<CodeSet> low = class_atom();
      if (!low) {
        return low;
      }
      const bool is_range = next_is(U'-') && at_ + 1 < text_.size() && text_[at_ + 1] != U']';
      if (!is_range) {
        set.insert(set.end(), low->begin(), low->end());
        continue;
      }
      ++at_;
      const Compiled<CodeSet> high = class_atom();
      if (!high) {
        return high;
      }
      const bool are_chars =
          low->size() == 1 && high->size() == 1 && low->front().low == low->front().high && high->front().low == high->front().high;
      if (!are_chars) {  // `[\w-.]`: a dash beside a set is itself
        set.insert(set.end(), low->begin(), low->end());
        set.push_back({U'-', U'-'});
        set.insert(set.end(), high->begin(), high->end());
        continue;
      }
      if (low->front().low > high->front().low) {
        return syntax("reversed range");
      }
      set.push_back({low->front().low, high->front().low});
    }
    ++at_;
    set = folded(normalise(std::move(set)));
    return is_negated ? complement(set) : set;
  }

  ExprPool& pool_;
  std::u32string text_;
  std::size_t at_ = 0;
  std::vector<std::size_t> closing_;
  bool has_lookahead_ = false;
  ExprId tail_ = ExprPool::kEpsilon;  // what may follow the pattern, where a lookahead has to see it
  bool ignore_case_ = false;
};

/// The language of texts a pattern with anchor symbols describes; see regex.h for the two uses.
ExprId resolve_anchors(ExprPool& pool, ExprId pattern, RegexUse use, bool has_tail) {
  const CodeSet text = any_code_point();
  const auto begins = [&](ExprId e) { return pool.after(e, kTextBegin); };
  const auto ends = [&](ExprId e) { return pool.before(e, kTextEnd); };
  // Anchors may be written twice (`^(^a|b)$`): a few times is as good as any number.
  constexpr std::int32_t kMaxRepeatedAnchors = 3;
  std::vector<ExprId> options;
  ExprId head = pattern;
  for (std::int32_t i = 0; i <= kMaxRepeatedAnchors && head != ExprPool::kEmpty; ++i) {
    ExprId both = head;
    for (std::int32_t j = 0; j <= kMaxRepeatedAnchors && both != ExprPool::kEmpty; ++j) {
      ExprId option = pool.restrict_to(both, text);
      if (use == RegexUse::search) {
        option = i == 0 ? pool.concat(ExprPool::kAnyText, option) : option;
        option = j == 0 ? pool.concat(option, ExprPool::kAnyText) : option;
      }
      if (!has_tail || j > 0) {
        options.push_back(option);
      }
      both = ends(both);
    }
    head = begins(head);
  }
  return pool.either(options);
}

}  // namespace

Compiled<ExprId> parse_regex(ExprPool& pool, std::string_view pattern, RegexUse use) {
  Parser parser(pool, pattern, use);
  const Compiled<ExprId> parsed = parser.parse();
  if (!parsed) {
    return parsed;
  }
  return resolve_anchors(pool, *parsed, use, parser.has_lookahead());
}

}  // namespace deepinfer::grammar
