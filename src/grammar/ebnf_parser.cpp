#include "grammar/ebnf_parser.h"

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "grammar/regex.h"

namespace deepinfer::grammar {

namespace {

constexpr std::uint64_t kMaxCount = 0x7FFFFFFF;  // limit `repeat`
constexpr std::uint32_t kUndefined = 0xFFFFFFFF;

bool is_name_start(char32_t c) { return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || c == U'_' || c == U'.' || c == U'-'; }
bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }
bool is_name_char(char32_t c) { return is_name_start(c) || is_digit(c); }

class Parser {
 public:
  Parser(ExprPool& pool, std::string_view text, const Budget& budget) : pool_(pool), text_(to_code_points(text)), budget_(budget) {}

  Compiled<EbnfGrammar> parse() {
    skip();
    while (!at_end()) {
      if (const auto error = parse_rule()) {
        return refuse(*error);
      }
      if (const auto error = budget_.spent(out_.items.size() * sizeof(EbnfItem) + pool_.bytes())) {
        return refuse(*error);
      }
    }
    for (std::uint32_t rule = 0; rule < out_.bodies.size(); ++rule) {
      if (out_.bodies[rule] == kUndefined) {
        at_ = first_use_[rule];
        return refuse(syntax("rule \"" + out_.names[rule] + "\" is not defined"));
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      at_ = 0;
      return refuse(syntax("there is no rule named root"));
    }
    out_.root = root->second;
    return std::move(out_);
  }

 private:
  using Failure = std::optional<CompileError>;

  CompileError problem(ErrorCode code, std::string what, std::string keyword = {}) const {
    std::size_t line = 1;
    std::size_t column = 1;
    for (std::size_t i = 0; i < std::min(at_, text_.size()); ++i) {
      column = text_[i] == U'\n' ? 1 : column + 1;
      line += text_[i] == U'\n' ? 1 : 0;
    }
    CompileError error{.code = code, .message = "EBNF: " + what + " at line " + std::to_string(line) + " column " + std::to_string(column)};
    error.limit = code == ErrorCode::limit ? keyword : "";
    error.keyword = std::move(keyword);
    error.line = line;
    error.column = column;
    return error;
  }
  CompileError syntax(std::string what) const { return problem(ErrorCode::syntax, std::move(what)); }

  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(char32_t c) const { return !at_end() && text_[at_] == c; }
  bool take(char32_t c) {
    if (!next_is(c)) {
      return false;
    }
    ++at_;
    return true;
  }

  void skip() {
    while (!at_end()) {
      const char32_t c = text_[at_];
      if (c == U'#') {
        while (!at_end() && text_[at_] != U'\n') {
          ++at_;
        }
      } else if (c == U' ' || c == U'\t' || c == U'\n' || c == U'\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  bool starts_line() const {
    for (std::size_t i = at_; i-- > 0;) {
      if (text_[i] == U'\n') {
        return true;
      }
      if (text_[i] != U' ' && text_[i] != U'\t' && text_[i] != U'\r') {
        return false;
      }
    }
    return true;
  }

  std::string name() {
    std::string out;
    while (!at_end() && is_name_char(text_[at_])) {
      out.push_back(static_cast<char>(text_[at_++]));
    }
    return out;
  }

  /// The next thing is a rule's head: a name, first on its line, before "::=".
  bool at_rule_head() {
    if (at_end() || !is_name_start(text_[at_]) || !starts_line()) {
      return false;
    }
    const std::size_t begin = at_;
    name();
    skip();
    const bool out = text_.compare(at_, 3, U"::=") == 0;
    at_ = begin;
    return out;
  }

  std::uint32_t rule_of(const std::string& rule_name) {
    const auto [place, is_new] = rules_.try_emplace(rule_name, static_cast<std::uint32_t>(out_.names.size()));
    if (is_new) {
      out_.names.push_back(rule_name);
      out_.bodies.push_back(kUndefined);
      first_use_.push_back(at_);
    }
    return place->second;
  }

  std::uint32_t item(EbnfItem value) {
    out_.items.push_back(std::move(value));
    return static_cast<std::uint32_t>(out_.items.size() - 1);
  }
  std::uint32_t lexeme(ExprId expr) { return item({.kind = EbnfKind::lexeme, .expr = expr}); }

  Failure parse_rule() {
    const std::size_t begin = at_;
    if (!is_name_start(text_[at_])) {
      return syntax("expected a rule name");
    }
    if (!starts_line()) {
      return syntax("expected a line break before the next rule");
    }
    const std::string rule_name = name();
    skip();
    if (text_.compare(at_, 3, U"::=") != 0) {
      if (next_is(U'(') || next_is(U'[') || next_is(U'{')) {
        return problem(ErrorCode::unsupported, "unsupported options of rule \"" + rule_name + "\"", "rule options");
      }
      return syntax("expected ::= after \"" + rule_name + "\"");
    }
    at_ += 3;
    const std::size_t behind = std::exchange(at_, begin);
    const std::uint32_t rule = rule_of(rule_name);
    if (out_.bodies[rule] != kUndefined) {
      return syntax("rule \"" + rule_name + "\" is defined twice");
    }
    at_ = behind;
    const Compiled<std::uint32_t> body = alternatives(0);
    if (!body) {
      return body.error();
    }
    out_.bodies[rule] = *body;
    skip();
    if (!at_end() && !at_rule_head()) {
      return is_name_start(text_[at_]) ? parse_rule() : syntax("unexpected character");
    }
    return std::nullopt;
  }

  Compiled<std::uint32_t> alternatives(std::int32_t depth) {
    if (depth > budget_.depth) {
      return refuse(problem(ErrorCode::limit, "groups nested too deep", "depth"));
    }
    std::vector<std::uint32_t> options;
    do {
      const Compiled<std::uint32_t> option = sequence(depth);
      if (!option) {
        return option;
      }
      options.push_back(*option);
      skip();
    } while (take(U'|'));
    return options.size() == 1 ? options[0] : item({.kind = EbnfKind::alternatives, .children = std::move(options)});
  }

  Compiled<std::uint32_t> sequence(std::int32_t depth) {
    std::vector<std::uint32_t> parts;
    for (;;) {
      skip();
      if (at_end() || next_is(U'|') || next_is(U')') || at_rule_head()) {
        return item({.kind = EbnfKind::sequence, .children = std::move(parts)});
      }
      Compiled<std::uint32_t> part = primary(depth);
      part = part ? repeated(*part) : part;
      if (!part) {
        return part;
      }
      parts.push_back(*part);
    }
  }

  Compiled<std::uint32_t> primary(std::int32_t depth) {
    if (next_is(U'"')) {
      const Compiled<std::u32string> text = string();
      return text ? Compiled<std::uint32_t>(lexeme(pool_.literal(*text))) : refuse(text.error());
    }
    if (take(U'[')) {
      return char_class();
    }
    if (take(U'(')) {
      const Compiled<std::uint32_t> inner = alternatives(depth + 1);
      if (!inner) {
        return inner;
      }
      skip();
      return take(U')') ? inner : refuse(syntax("expected )"));
    }
    if (at_end() || !is_name_start(text_[at_])) {
      return refuse(syntax(at_end() ? "unexpected end" : "unexpected character"));
    }
    const std::size_t begin = at_;
    const std::string word = name();
    if (next_is(U'(')) {
      if (word == "Regex" || word == "Token" || word == "TagDispatch") {
        ++at_;
        return macro(word);
      }
      if (word == "Substring" || word == "ExcludeToken" || word == "TokenTagDispatch") {
        at_ = begin;
        return refuse(problem(ErrorCode::unsupported, "unsupported macro " + word, word));
      }
    }
    const std::size_t end = std::exchange(at_, begin);
    const std::uint32_t rule = rule_of(word);
    at_ = end;
    return item({.kind = EbnfKind::rule, .rule = rule});
  }

  Compiled<std::uint32_t> repeated(std::uint32_t operand) {
    std::uint64_t least = 1;
    std::uint64_t most = 1;
    skip_blanks_in_line();
    if (take(U'*')) {
      least = 0;
      most = kUnbounded;
    } else if (take(U'+')) {
      most = kUnbounded;
    } else if (take(U'?')) {
      least = 0;
    } else if (next_is(U'{')) {
      if (const Failure error = braces(least, most)) {
        return refuse(*error);
      }
    } else {
      return operand;
    }
    if (next_is(U'*') || next_is(U'+') || next_is(U'?') || next_is(U'{')) {
      return refuse(syntax("a repeat of a repeat needs a group"));
    }
    return item({.kind = EbnfKind::repeat,
                 .children = {operand},
                 .least = static_cast<std::uint32_t>(least),
                 .most = static_cast<std::uint32_t>(most)});
  }

  void skip_blanks_in_line() {
    const std::size_t begin = at_;
    while (!at_end() && (text_[at_] == U' ' || text_[at_] == U'\t')) {
      ++at_;
    }
    if (at_end() || std::u32string_view(U"*+?{").find(text_[at_]) == std::u32string_view::npos) {
      at_ = begin;
    }
  }

  std::optional<std::uint64_t> number() {
    std::optional<std::uint64_t> out;
    while (!at_end() && is_digit(text_[at_])) {
      out = std::min<std::uint64_t>(out.value_or(0) * 10 + (text_[at_++] - U'0'), kMaxCount + 1);
    }
    return out;
  }

  Failure braces(std::uint64_t& least, std::uint64_t& most) {
    ++at_;
    skip();
    const std::optional<std::uint64_t> low = number();
    if (!low) {
      return syntax("expected a count");
    }
    least = *low;
    most = *low;
    skip();
    if (take(U',')) {
      skip();
      const std::optional<std::uint64_t> high = number();
      most = high ? *high : kUnbounded;
      skip();
    }
    if (!take(U'}')) {
      return syntax("expected }");
    }
    if (least > kMaxCount || (most > kMaxCount && most != kUnbounded)) {
      return problem(ErrorCode::limit, "repeat count above 2147483647", "repeat");
    }
    return least > most ? Failure(syntax("the lower count is above the upper one")) : std::nullopt;
  }

  std::optional<char32_t> hex(std::size_t least, std::size_t most) {
    char32_t out = 0;
    std::size_t digits = 0;
    for (; digits < most && !at_end(); ++digits, ++at_) {
      const char32_t c = text_[at_];
      const char32_t lower = c | 0x20;
      if (is_digit(c)) {
        out = out * 16 + (c - U'0');
      } else if (lower >= U'a' && lower <= U'f') {
        out = out * 16 + (lower - U'a' + 10);
      } else {
        break;
      }
    }
    return digits >= least ? std::optional(out) : std::nullopt;
  }

  Compiled<char32_t> escape(std::u32string_view also) {
    if (at_end()) {
      return refuse(syntax("unfinished escape"));
    }
    static constexpr std::u32string_view kNames = U"ntrbfav0e\"\\/'?";
    static constexpr std::u32string_view kValues = {U"\n\t\r\b\f\a\v\0\x1B\"\\/'?", 14};
    const char32_t c = text_[at_++];
    if (const std::size_t place = kNames.find(c); place != std::u32string_view::npos) {
      return kValues[place];
    }
    std::optional<char32_t> value;
    if (c == U'x') {
      value = hex(1, 8);
    } else if (c == U'u') {
      value = hex(4, 4);
    } else if (c == U'U') {
      value = hex(8, 8);
    } else if (also.find(c) != std::u32string_view::npos) {
      return c;
    } else {
      --at_;
      return refuse(syntax("unknown escape"));
    }
    if (!value || *value > kMaxCodePoint || (*value >= 0xD800 && *value <= 0xDFFF)) {
      return refuse(syntax("bad code point"));
    }
    return *value;
  }

  Compiled<std::u32string> string() {
    ++at_;
    std::u32string out;
    while (!take(U'"')) {
      if (at_end() || text_[at_] == U'\n' || text_[at_] == U'\r') {
        return refuse(syntax("unclosed string"));
      }
      if (!take(U'\\')) {
        out.push_back(text_[at_++]);
        continue;
      }
      const Compiled<char32_t> c = escape({});
      if (!c) {
        return refuse(c.error());
      }
      out.push_back(*c);
    }
    return out;
  }

  Compiled<char32_t> class_char() {
    if (at_end() || text_[at_] == U'\n' || text_[at_] == U'\r') {
      return refuse(syntax("unclosed class"));
    }
    return take(U'\\') ? escape(U"^$.*+?()[]{}|-") : Compiled<char32_t>(text_[at_++]);
  }

  Compiled<std::uint32_t> char_class() {
    const bool is_negated = take(U'^');
    CodeSet set;
    while (!take(U']')) {
      const Compiled<char32_t> low = class_char();
      if (!low) {
        return refuse(low.error());
      }
      char32_t high = *low;
      if (next_is(U'-') && at_ + 1 < text_.size() && text_[at_ + 1] != U']') {
        ++at_;
        const Compiled<char32_t> upper = class_char();
        if (!upper) {
          return refuse(upper.error());
        }
        high = *upper;
      }
      if (*low > high) {
        return refuse(syntax("reversed range"));
      }
      set.push_back({*low, high});
    }
    set = normalise(std::move(set));
    return lexeme(pool_.one_of(is_negated ? complement(set) : set));
  }

  Compiled<std::uint32_t> macro(const std::string& word) {
    skip();
    if (word == "TagDispatch") {
      return tag_dispatch();
    }
    Compiled<std::uint32_t> out = 0U;
    if (word == "Token") {
      const std::optional<std::uint64_t> id = number();
      if (!id || *id > kMaxCount) {
        return refuse(syntax("expected a token id"));
      }
      out = item({.kind = EbnfKind::token, .token = static_cast<std::int32_t>(*id)});
    } else {
      const std::size_t begin = at_;
      const Compiled<std::u32string> pattern = next_is(U'"') ? string_raw_escapes() : refuse(syntax("expected a string"));
      if (!pattern) {
        return refuse(pattern.error());
      }
      std::string utf8_pattern;
      for (const char32_t c : *pattern) {
        utf8::append(utf8_pattern, c);
      }
      const Compiled<ExprId> expr = parse_regex(pool_, utf8_pattern, RegexUse::whole_text);
      if (!expr) {
        at_ = begin;
        return refuse(problem(expr.error().code, "in Regex: " + expr.error().message, expr.error().keyword));
      }
      out = lexeme(*expr);
    }
    skip();
    return take(U')') ? out : refuse(syntax("expected )"));
  }

  /// A string whose unknown escapes stay as they are: `"\d"` is the pattern \d.
  Compiled<std::u32string> string_raw_escapes() {
    ++at_;
    std::u32string out;
    while (!take(U'"')) {
      if (at_end() || text_[at_] == U'\n') {
        return refuse(syntax("unclosed string"));
      }
      if (next_is(U'\\') && at_ + 1 < text_.size()) {
        const char32_t c = text_[at_ + 1];
        at_ += 2;
        if (c != U'"' && c != U'\\') {
          out.push_back(U'\\');
        }
        out.push_back(c);
        continue;
      }
      out.push_back(text_[at_++]);
    }
    return out;
  }

  Compiled<std::uint32_t> tag_dispatch() {
    EbnfItem out{.kind = EbnfKind::tag_dispatch, .expr = ExprPool::kEmpty};
    for (bool is_first = true; !take(U')'); is_first = false) {
      skip();
      if (!is_first && !take(U',')) {
        return refuse(syntax("expected , or )"));
      }
      skip();
      if (next_is(U')')) {
        continue;
      }
      const Failure error = next_is(U'(') ? tag_pair(out) : tag_option(out);
      if (error) {
        return refuse(*error);
      }
      skip();
    }
    return out.children.empty() ? refuse(syntax("TagDispatch needs a tag")) : Compiled<std::uint32_t>(item(std::move(out)));
  }

  Failure tag_pair(EbnfItem& out) {
    ++at_;
    skip();
    const Compiled<std::u32string> tag = next_is(U'"') ? string() : refuse(syntax("expected a string"));
    if (!tag || tag->empty()) {
      return tag ? syntax("a tag is not empty") : tag.error();
    }
    skip();
    if (!take(U',')) {
      return syntax("expected ,");
    }
    skip();
    const std::size_t begin = at_;
    const std::string rule_name = name();
    if (rule_name.empty()) {
      return syntax("expected a rule name");
    }
    const std::size_t end = std::exchange(at_, begin);
    const std::uint32_t rule = rule_of(rule_name);
    at_ = end;
    out.children.push_back(lexeme(pool_.literal(*tag)));
    out.children.push_back(item({.kind = EbnfKind::rule, .rule = rule}));
    skip();
    return take(U')') ? Failure() : syntax("expected )");
  }

  Failure tag_option(EbnfItem& out) {
    const std::string option = name();
    skip();
    if (!take(U'=')) {
      return syntax("expected an option");
    }
    skip();
    if (option == "loop_after_dispatch") {
      const std::string value = name();
      out.loops = value == "true";
      return value == "true" || value == "false" ? Failure() : syntax("expected true or false");
    }
    if (option != "excludes") {
      return problem(ErrorCode::unsupported, "unsupported option " + option, option);
    }
    if (!take(U'(')) {
      return syntax("expected (");
    }
    for (skip(); !take(U')'); skip()) {
      const Compiled<std::u32string> text = next_is(U'"') ? string() : refuse(syntax("expected a string"));
      if (!text) {
        return text.error();
      }
      out.expr = pool_.either(out.expr, pool_.literal(*text));
      skip();
      take(U',');
    }
    return std::nullopt;
  }

  ExprPool& pool_;
  std::u32string text_;
  const Budget& budget_;
  std::size_t at_ = 0;
  EbnfGrammar out_;
  std::unordered_map<std::string, std::uint32_t> rules_;
  std::vector<std::size_t> first_use_;
};

}  // namespace

Compiled<EbnfGrammar> parse_ebnf(ExprPool& pool, std::string_view text, const Budget& budget) { return Parser(pool, text, budget).parse(); }

}  // namespace deepinfer::grammar
