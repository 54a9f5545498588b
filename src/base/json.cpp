#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/utf8.h"

namespace deepinfer::json {

namespace {

template <class Integer>
std::optional<Integer> integer_of(std::string_view text) {
  Integer out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Power of ten of the first digit of a number that is not zero; exponents are taken as at most 2^60 in magnitude.
std::int64_t decimal_exponent(std::string_view number) {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  const std::size_t mark = number.find_first_of("eE");
  std::int64_t exponent = 0;
  if (mark != std::string_view::npos) {
    const std::size_t begin = mark + (number[mark + 1] == '+' ? 2 : 1);
    const auto [end, error] = std::from_chars(number.data() + begin, number.data() + number.size(), exponent);
    if (error == std::errc::result_out_of_range) {
      exponent = number[begin] == '-' ? -kFar : kFar;
    }
    exponent = std::clamp(exponent, -kFar, kFar);
  }
  const std::string_view digits = number.substr(0, mark);
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
  return exponent + (point > first ? point - first - 1 : point - first);
}

/// Recursive descent over text that is known to be valid UTF-8. `at_` is the place an error is reported for.
class Parser {
 public:
  Parser(std::string_view text, ParseLimits limits) : text_(text), limits_(limits) {}

  Result<Value> document() {
    Result<Value> value = parse_value(0);
    if (!value) {
      return value;
    }
    skip_blanks();
    if (at_ < text_.size()) {
      return problem("unexpected text after the value");
    }
    return value;
  }

 private:
  std::unexpected<Error> problem(std::string what, ErrorKind kind = ErrorKind::corrupt) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return fail(kind, what + " at line " + std::to_string(line) + " column " + std::to_string(at_ - line_begin + 1));
  }

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

  Result<Value> parse_value(std::int32_t depth) {
    skip_blanks();
    if (at_ >= text_.size()) {
      return problem("unexpected end of the text");
    }
    switch (text_[at_]) {
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case '"': {
        Result<std::string> text = parse_string();
        if (!text) {
          return std::unexpected(std::move(text.error()));
        }
        return Value(std::move(*text));
      }
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

  Result<Value> parse_word(std::string_view word, Value value) {
    if (text_.substr(at_, word.size()) != word) {
      return problem("expected a value");
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

  Result<Value> parse_number() {
    const std::size_t begin = at_;
    take('-');
    const std::size_t integer_begin = at_;
    const std::size_t integer_digits = take_digits();
    if (integer_digits == 0) {
      return problem(at_ == begin ? "expected a value" : "expected a digit");
    }
    if (integer_digits > 1 && text_[integer_begin] == '0') {
      at_ = integer_begin + 1;
      return problem("a number must not start with 0");
    }
    if (take('.') && take_digits() == 0) {
      return problem("expected a digit after the decimal point");
    }
    if (take('e') || take('E')) {
      if (!take('+')) {
        take('-');
      }
      if (take_digits() == 0) {
        return problem("expected a digit in the exponent");
      }
    }
    Number number{std::string(text_.substr(begin, at_ - begin))};
    if (limits_.finite_numbers && may_be_infinite(number.text) && std::isinf(number.as_double())) {
      return problem("number out of range", ErrorKind::exhausted);
    }
    return Value(std::move(number));
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

  Result<std::uint32_t> parse_unicode_escape() {
    const std::optional<std::uint32_t> first = take_hex4();
    if (!first) {
      return problem("expected four hexadecimal digits");
    }
    if (*first < 0xD800 || *first > 0xDFFF) {
      return *first;
    }
    if (*first > 0xDBFF || !take('\\') || !take('u')) {
      return problem("lone surrogate in a string");
    }
    const std::optional<std::uint32_t> second = take_hex4();
    if (!second || *second < 0xDC00 || *second > 0xDFFF) {
      return problem("lone surrogate in a string");
    }
    return 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00);
  }

  Result<std::string> parse_string() {
    ++at_;  // the opening quote
    std::string out;
    for (;;) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out.append(text_.substr(begin, at_ - begin));
      if (at_ >= text_.size()) {
        return problem("unterminated string");
      }
      if (take('"')) {
        return out;
      }
      if (!take('\\')) {
        return problem("control character in a string");
      }
      if (at_ >= text_.size()) {
        return problem("unterminated string");
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
        case 'u': {
          const Result<std::uint32_t> code_point = parse_unicode_escape();
          if (!code_point) {
            return std::unexpected(code_point.error());
          }
          utf8::append(out, *code_point);
          break;
        }
        default:
          return problem("unknown escape in a string");
      }
    }
  }

  Result<Value> parse_array(std::int32_t depth) {
    if (depth >= limits_.max_depth) {
      return problem("nesting deeper than " + std::to_string(limits_.max_depth) + " levels", ErrorKind::exhausted);
    }
    ++at_;
    Array out;
    skip_blanks();
    if (take(']')) {
      return Value(std::move(out));
    }
    for (;;) {
      Result<Value> value = parse_value(depth + 1);
      if (!value) {
        return value;
      }
      out.push_back(std::move(*value));
      skip_blanks();
      if (take(']')) {
        return Value(std::move(out));
      }
      if (!take(',')) {
        return problem(at_ < text_.size() ? "expected ',' or ']'" : "unexpected end of the text");
      }
    }
  }

  Result<Value> parse_object(std::int32_t depth) {
    if (depth >= limits_.max_depth) {
      return problem("nesting deeper than " + std::to_string(limits_.max_depth) + " levels", ErrorKind::exhausted);
    }
    ++at_;
    Object out;
    std::unordered_map<std::string, std::size_t> places;
    skip_blanks();
    if (take('}')) {
      return Value(std::move(out));
    }
    for (;;) {
      skip_blanks();
      if (at_ >= text_.size() || text_[at_] != '"') {
        return problem(at_ < text_.size() ? "expected a key in quotes" : "unexpected end of the text");
      }
      Result<std::string> key = parse_string();
      if (!key) {
        return std::unexpected(std::move(key.error()));
      }
      skip_blanks();
      if (!take(':')) {
        return problem(at_ < text_.size() ? "expected ':'" : "unexpected end of the text");
      }
      Result<Value> value = parse_value(depth + 1);
      if (!value) {
        return value;
      }
      if (!store(out, places, *key, std::move(*value)) && limits_.unique_keys) {
        return problem("the key \"" + *key + "\" twice in one object");
      }
      skip_blanks();
      if (take('}')) {
        return Value(std::move(out));
      }
      if (!take(',')) {
        return problem(at_ < text_.size() ? "expected ',' or '}'" : "unexpected end of the text");
      }
    }
  }

  /// Object::set in constant time per member: `places` is filled once an object outgrows a linear search.
  /// False when the key was there before.
  static bool store(Object& out, std::unordered_map<std::string, std::size_t>& places, const std::string& key, Value value) {
    constexpr std::size_t kLinearSearchMembers = 16;
    if (out.size() < kLinearSearchMembers) {
      const std::size_t size_before = out.size();
      out.set(key, std::move(value));
      return out.size() > size_before;
    }
    if (places.empty()) {
      for (const auto& [name, unused] : out) {
        places.emplace(name, places.size());
      }
    }
    const auto [place, is_new] = places.try_emplace(key, out.size());
    if (is_new) {
      out.append(key, std::move(value));
    } else {
      out.begin()[static_cast<std::ptrdiff_t>(place->second)].second = std::move(value);
    }
    return is_new;
  }

  std::string_view text_;
  ParseLimits limits_;
  std::size_t at_ = 0;
};

std::string integer_text(auto value) { return std::to_string(value); }

}  // namespace

bool Number::is_integer() const { return text.find_first_of(".eE") == std::string::npos; }

std::optional<std::int64_t> Number::as_int64() const { return integer_of<std::int64_t>(text); }

std::optional<std::uint64_t> Number::as_uint64() const { return integer_of<std::uint64_t>(text); }

double Number::as_double() const {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc::result_out_of_range) {
    const double magnitude = decimal_exponent(text) < 0 ? 0.0 : std::numeric_limits<double>::infinity();
    return text.starts_with('-') ? -magnitude : magnitude;
  }
  return out;
}

Object::Object(std::initializer_list<std::pair<std::string, Value>> members) {
  for (const auto& [key, value] : members) {
    set(key, value);
  }
}

const Value* Object::find(std::string_view key) const {
  for (const auto& [name, value] : members_) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

Value* Object::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

void Object::set(std::string key, Value value) {
  if (Value* existing = find(key)) {
    *existing = std::move(value);
  } else {
    append(std::move(key), std::move(value));
  }
}

void Object::append(std::string key, Value value) { members_.emplace_back(std::move(key), std::move(value)); }

void Object::erase(std::string_view key) {
  std::erase_if(members_, [key](const auto& member) { return member.first == key; });
}

bool Object::empty() const { return members_.empty(); }
std::size_t Object::size() const { return members_.size(); }
std::vector<std::pair<std::string, Value>>::const_iterator Object::begin() const { return members_.begin(); }
std::vector<std::pair<std::string, Value>>::const_iterator Object::end() const { return members_.end(); }
std::vector<std::pair<std::string, Value>>::iterator Object::begin() { return members_.begin(); }
std::vector<std::pair<std::string, Value>>::iterator Object::end() { return members_.end(); }

bool operator==(const Object& a, const Object& b) { return a.members_ == b.members_; }

Value::Value(int value) : data_(Number{integer_text(value)}) {}
Value::Value(std::int64_t value) : data_(Number{integer_text(value)}) {}
Value::Value(std::uint64_t value) : data_(Number{integer_text(value)}) {}

Value::Value(double value) {
  check(std::isfinite(value), "a JSON number is finite");
  char buffer[32];
  const auto [end, error] = std::to_chars(std::begin(buffer), std::end(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";  // stays a floating-point number for readers that tell the two apart
  }
  data_ = Number{std::move(text)};
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return kNames[data_.index()];
}

Result<Value> parse(std::string_view text, ParseLimits limits) {
  const std::size_t invalid = utf8::first_invalid(text);
  if (invalid != text.size()) {
    return fail(ErrorKind::corrupt, "invalid UTF-8 at byte " + std::to_string(invalid));
  }
  return Parser(text, limits).document();
}

void append_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') {
      continue;
    }
    out.append(text.substr(copied, i - copied));
    copied = i + 1;
    switch (byte) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        out += "\\u00";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
    }
  }
  out.append(text.substr(copied));
}

void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  append_escaped(out, text);
  out.push_back('"');
}

void append_text(std::string& out, const Value& value) {
  if (const bool* boolean = value.as_bool()) {
    out += *boolean ? "true" : "false";
  } else if (const Number* number = value.as_number()) {
    out += number->text;
  } else if (const std::string* text = value.as_string()) {
    append_string(out, *text);
  } else if (const Array* items = value.as_array()) {
    out.push_back('[');
    for (std::size_t i = 0; i < items->size(); ++i) {
      if (i > 0) {
        out.push_back(',');
      }
      append_text(out, (*items)[i]);
    }
    out.push_back(']');
  } else if (const Object* members = value.as_object()) {
    out.push_back('{');
    bool is_first = true;
    for (const auto& [key, member] : *members) {
      if (!is_first) {
        out.push_back(',');
      }
      is_first = false;
      append_string(out, key);
      out.push_back(':');
      append_text(out, member);
    }
    out.push_back('}');
  } else {
    out += "null";
  }
}

std::string to_text(const Value& value) {
  std::string out;
  append_text(out, value);
  return out;
}

}  // namespace deepinfer::json
