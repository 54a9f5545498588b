#include "recipe/json_style.h"

#include <charconv>
#include <cstdlib>

namespace deepinfer::recipe {

namespace {

struct Style {
  std::string_view item_separator;
  std::string_view key_separator;
  int smallest_plain_exponent;               ///< smaller powers of ten are written with an exponent
  std::size_t min_negative_exponent_digits;  ///< of the exponent after "e-"
};

constexpr Style kPython{", ", ": ", -4, 2};
constexpr Style kSpaced{", ", ": ", -5, 1};
constexpr Style kCompact{",", ":", -5, 1};
constexpr int kFirstExponentForm = 16;  // 1e16 and above are written with an exponent in both styles

/// Integers of up to 18 digits fit every integer type as they are spelled.
constexpr std::size_t kSafeIntegerLength = 18;

void append_double(std::string& out, double value, const Style& style) {
  char buffer[32];
  const auto [end, error] = std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, end);
  if (text.starts_with('-')) {
    out.push_back('-');
    text.remove_prefix(1);
  }
  const std::size_t mark = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + mark + (text[mark + 1] == '+' ? 2 : 1), end, exponent);
  std::string digits(text.substr(0, 1));
  if (mark > 1) {
    digits += text.substr(2, mark - 2);
  }
  if (exponent >= kFirstExponentForm || exponent < style.smallest_plain_exponent) {
    out.push_back(digits[0]);
    if (digits.size() > 1) {
      out.push_back('.');
      out.append(digits, 1);
    }
    out += exponent < 0 ? "e-" : "e+";
    const std::string magnitude = std::to_string(std::abs(exponent));
    if (exponent < 0 && magnitude.size() < style.min_negative_exponent_digits) {
      out.push_back('0');
    }
    out += magnitude;
    return;
  }
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    out += digits;
    return;
  }
  const auto integer_digits = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= integer_digits) {
    out += digits;
    out.append(integer_digits - digits.size(), '0');
    out += ".0";
  } else {
    out.append(digits, 0, integer_digits);
    out.push_back('.');
    out.append(digits, integer_digits);
  }
}

void append_number(std::string& out, const json::Number& number, const Style& style) {
  const bool is_exact_integer =
      number.is_integer() && number.text != "-0" && (number.text.size() <= kSafeIntegerLength || number.as_int64() || number.as_uint64());
  if (is_exact_integer) {
    out += number.text;
  } else {
    append_double(out, number.as_double(), style);
  }
}

void append_value(std::string& out, const json::Value& value, const Style& style) {
  if (const std::string* text = value.as_string()) {
    json::append_string(out, *text);
  } else if (const json::Object* members = value.as_object()) {
    out.push_back('{');
    std::string_view separator;
    for (const auto& [key, member] : *members) {
      out += separator;
      separator = style.item_separator;
      json::append_string(out, key);
      out += style.key_separator;
      append_value(out, member, style);
    }
    out.push_back('}');
  } else if (const json::Array* items = value.as_array()) {
    out.push_back('[');
    std::string_view separator;
    for (const json::Value& item : *items) {
      out += separator;
      separator = style.item_separator;
      append_value(out, item, style);
    }
    out.push_back(']');
  } else if (const json::Number* number = value.as_number()) {
    append_number(out, *number, style);
  } else if (const bool* boolean = value.as_bool()) {
    out += *boolean ? "true" : "false";
  } else {
    out += "null";
  }
}

}  // namespace

void append_python_json(std::string& out, const json::Value& value) { append_value(out, value, kPython); }

std::string python_json(const json::Value& value) {
  std::string out;
  append_python_json(out, value);
  return out;
}

void append_spaced_json(std::string& out, const json::Value& value) { append_value(out, value, kSpaced); }

void append_compact_json(std::string& out, const json::Value& value) { append_value(out, value, kCompact); }

std::string compact_json(const json::Value& value) {
  std::string out;
  append_compact_json(out, value);
  return out;
}

}  // namespace deepinfer::recipe
