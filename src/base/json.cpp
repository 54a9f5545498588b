#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/plain_text.h"

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

void append_escaped(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (;;) {
    const std::size_t plain = plain_bytes<PlainText::any>(text);
    out.append(text.substr(0, plain));
    if (plain == text.size()) {
      return;
    }
    const auto byte = static_cast<unsigned char>(text[plain]);
    text.remove_prefix(plain + 1);
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
