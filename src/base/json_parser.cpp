// json::parse: one pass over the text, UTF-8 checked inside strings on the way. Nothing else of a JSON text may be other than ASCII.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "base/plain_text.h"
#include "base/utf8.h"

namespace deepinfer::json {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Recursive descent. The first problem is kept; after it every value is null and nobody reads on.
class Parser {
 public:
  Parser(std::string_view text, ParseLimits limits) : text_(text), limits_(limits) {}

  Result<Value> document() {
    Value value = parse_value(0);
    skip_blanks();
    if (!problem_ && at_ < text_.size()) {
      refuse("unexpected text after the value");
    }
    return problem_ ? Result<Value>(std::unexpected(std::move(*problem_))) : std::move(value);
  }

 private:
  /// Remembers what is wrong at the present place.
  void refuse(std::string what, ErrorKind kind = ErrorKind::corrupt) {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    what += " at line " + std::to_string(line) + " column " + std::to_string(at_ - line_begin + 1);
    problem_ = Error{.kind = kind, .message = std::move(what)};
  }

  void refuse_or_end(std::string what) { refuse(at_ < text_.size() ? std::move(what) : "unexpected end of the text"); }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool take(char c) {
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }

  Value parse_value(std::int32_t depth) {
    skip_blanks();
    if (at_ >= text_.size()) {
      refuse("unexpected end of the text");
      return {};
    }
    switch (text_[at_]) {
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case '"':
        return Value(parse_string());
      case 't':
        return parse_word("true", Value(true));
      case 'f':
        return parse_word("false", Value(false));
      case 'n':
        return parse_word("null", Value());
      default:
        return parse_number();
    }
  }

  Value parse_word(std::string_view word, Value value) {
    if (text_.substr(at_, word.size()) != word) {
      refuse("expected a value");
      return {};
    }
    at_ += word.size();
    return value;
  }

  std::size_t take_digits() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) {
      ++at_;
    }
    return at_ - begin;
  }

  Value parse_number() {
    const std::size_t begin = at_;
    if (!take_number()) {
      return {};
    }
    Number number{std::string(text_.substr(begin, at_ - begin))};
    if (limits_.finite_numbers && may_be_infinite(number.text) && std::isinf(number.as_double())) {
      refuse("number out of range", ErrorKind::exhausted);
    }
    return Value(std::move(number));
  }

  bool take_number() {
    const std::size_t begin = at_;
    take('-');
    const std::size_t integer_begin = at_;
    const std::size_t integer_digits = take_digits();
    if (integer_digits == 0) {
      refuse(at_ == begin ? "expected a value" : "expected a digit");
    } else if (integer_digits > 1 && text_[integer_begin] == '0') {
      at_ = integer_begin + 1;
      refuse("a number must not start with 0");
    } else if (take('.') && take_digits() == 0) {
      refuse("expected a digit after the decimal point");
    } else if (take('e') || take('E')) {
      if (!take('+')) {
        take('-');
      }
      if (take_digits() == 0) {
        refuse("expected a digit in the exponent");
      }
    }
    return !problem_;
  }

  /// A double holds every number of fewer digits without an exponent.
  static bool may_be_infinite(std::string_view number) {
    return number.size() > std::numeric_limits<double>::max_exponent10 || number.find_first_of("eE") != std::string_view::npos;
  }

  std::optional<std::uint32_t> take_hex4() {
    std::uint32_t out = 0;
    if (text_.size() - at_ < 4) {
      return std::nullopt;
    }
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    if (error != std::errc{} || end != text_.data() + at_ + 4) {
      return std::nullopt;
    }
    at_ += 4;
    return out;
  }

  /// The code point after "\u"; 0 with a problem when there is none.
  std::uint32_t parse_unicode_escape() {
    const std::optional<std::uint32_t> first = take_hex4();
    if (!first) {
      refuse("expected four hexadecimal digits");
      return 0;
    }
    if (*first < 0xD800 || *first > 0xDFFF) {
      return *first;
    }
    if (*first > 0xDBFF || !take('\\') || !take('u')) {
      refuse("lone surrogate in a string");
      return 0;
    }
    const std::optional<std::uint32_t> second = take_hex4();
    if (!second || *second < 0xDC00 || *second > 0xDFFF) {
      refuse("lone surrogate in a string");
      return 0;
    }
    return 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00);
  }

  /// Moves past bytes that stand for themselves: up to a quote, a backslash, a control character or ill-formed UTF-8.
  void skip_plain() {
    for (;;) {
      at_ += plain_bytes<PlainText::ascii>(text_.substr(at_));
      const std::size_t multibyte = utf8::multibyte_run(text_.substr(at_));
      if (multibyte == 0) {
        return;
      }
      at_ += multibyte;
    }
  }

  std::string parse_string() {
    ++at_;  // the opening quote
    const std::size_t begin = at_;
    skip_plain();
    std::string out(text_.substr(begin, at_ - begin));
    while (!problem_ && !take('"')) {
      if (at_ >= text_.size()) {
        refuse("unterminated string");
      } else if (take('\\')) {
        append_escape(out);
      } else {
        refuse("control character in a string");  // or ill-formed UTF-8, which parse() reports
      }
      const std::size_t plain_begin = at_;
      skip_plain();
      out.append(text_.substr(plain_begin, at_ - plain_begin));
    }
    return out;
  }

  void append_escape(std::string& out) {
    if (at_ >= text_.size()) {
      refuse("unterminated string");
      return;
    }
    const char escape = text_[at_++];
    switch (escape) {
      case '"':
      case '\\':
      case '/':
        out.push_back(escape);
        break;
      case 'b':
        out.push_back('\b');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'u':
        utf8::append(out, parse_unicode_escape());
        break;
      default:
        refuse("unknown escape in a string");
    }
  }

  /// Steps into an array or object; false when that is too deep.
  bool enter(std::int32_t depth) {
    if (depth >= limits_.max_depth) {
      refuse("nesting deeper than " + std::to_string(limits_.max_depth) + " levels", ErrorKind::exhausted);
      return false;
    }
    ++at_;
    skip_blanks();
    return true;
  }

  Value parse_array(std::int32_t depth) {
    Array out;
    if (!enter(depth) || take(']')) {
      return Value(std::move(out));
    }
    for (;;) {
      out.push_back(parse_value(depth + 1));
      skip_blanks();
      if (problem_ || take(']')) {
        return Value(std::move(out));
      }
      if (!take(',')) {
        refuse_or_end("expected ',' or ']'");
      }
    }
  }

  Value parse_object(std::int32_t depth) {
    Object out;
    if (!enter(depth) || take('}')) {
      return Value(std::move(out));
    }
    std::unordered_map<std::string, std::size_t> places;
    for (;;) {
      parse_member(out, places, depth);
      if (problem_ || take('}')) {
        return Value(std::move(out));
      }
      if (!take(',')) {
        refuse_or_end("expected ',' or '}'");
      }
    }
  }

  /// One key and its value, with the blanks around them.
  void parse_member(Object& out, std::unordered_map<std::string, std::size_t>& places, std::int32_t depth) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != '"') {
      refuse_or_end("expected a key in quotes");
      return;
    }
    std::string key = parse_string();
    skip_blanks();
    if (problem_) {
      return;
    }
    if (!take(':')) {
      refuse_or_end("expected ':'");
      return;
    }
    Value value = parse_value(depth + 1);
    if (problem_) {
      return;
    }
    Value* const known = find_member(out, places, key);
    if (known != nullptr && limits_.unique_keys) {
      refuse("the key \"" + key + "\" twice in one object");
    } else if (known != nullptr) {
      *known = std::move(value);
    } else {
      out.append(std::move(key), std::move(value));
    }
    skip_blanks();
  }

  /// The member that has this key already. Constant time: `places` is filled once an object outgrows a linear search, and then
  /// knows a new key as the next member.
  static Value* find_member(Object& out, std::unordered_map<std::string, std::size_t>& places, const std::string& key) {
    constexpr std::size_t kLinearSearchMembers = 16;
    if (out.size() < kLinearSearchMembers) {
      return out.find(key);
    }
    if (places.empty()) {
      for (const auto& [name, unused] : out) {
        places.emplace(name, places.size());
      }
    }
    const auto [place, is_new] = places.try_emplace(key, out.size());
    return is_new ? nullptr : &out.begin()[static_cast<std::ptrdiff_t>(place->second)].second;
  }

  std::string_view text_;
  ParseLimits limits_;
  std::size_t at_ = 0;
  std::optional<Error> problem_;
};

}  // namespace

Result<Value> parse(std::string_view text, ParseLimits limits) {
  Result<Value> value = Parser(text, limits).document();
  if (!value) {
    // Ill-formed UTF-8 goes first, wherever it is. A text without any other problem has none.
    const std::size_t invalid = utf8::first_invalid(text);
    if (invalid != text.size()) {
      return fail(ErrorKind::corrupt, "invalid UTF-8 at byte " + std::to_string(invalid));
    }
  }
  return value;
}

}  // namespace deepinfer::json
