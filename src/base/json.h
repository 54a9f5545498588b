// JSON values that keep what a body said: key order, the text of numbers, nothing converted behind the caller's back.
// Parsing is strict RFC 8259 on valid UTF-8. Not for bulk data (safetensors payloads, token streams).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace deepinfer::json {

/// A number as it was spelled. Two numbers are equal when their text is.
struct Number {
  std::string text;

  /// No fraction and no exponent in the spelling.
  [[nodiscard]] bool is_integer() const;
  /// The value when the spelling is an integer that fits; nullopt otherwise.
  [[nodiscard]] std::optional<std::int64_t> as_int64() const;
  [[nodiscard]] std::optional<std::uint64_t> as_uint64() const;
  /// Nearest double; infinity when the magnitude is too large.
  [[nodiscard]] double as_double() const;

  friend bool operator==(const Number&, const Number&) = default;
};

class Value;
using Array = std::vector<Value>;

/// Members in the order of first appearance; a repeated key keeps its first place and its last value.
class Object {
 public:
  Object() = default;
  Object(std::initializer_list<std::pair<std::string, Value>> members);

  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] Value* find(std::string_view key);
  /// Replaces the value of an existing key or appends a member.
  void set(std::string key, Value value);
  /// Appends without looking for the key: the caller knows that it is new.
  void append(std::string key, Value value);
  void erase(std::string_view key);

  [[nodiscard]] bool empty() const;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::vector<std::pair<std::string, Value>>::const_iterator begin() const;
  [[nodiscard]] std::vector<std::pair<std::string, Value>>::const_iterator end() const;
  [[nodiscard]] std::vector<std::pair<std::string, Value>>::iterator begin();
  [[nodiscard]] std::vector<std::pair<std::string, Value>>::iterator end();

  friend bool operator==(const Object&, const Object&);

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

/// Any JSON value. Accessors return nullptr for another type, so reading a body is a chain of ifs, never a throw.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}
  Value(bool value) : data_(value) {}
  Value(int value);
  Value(std::int64_t value);
  Value(std::uint64_t value);
  Value(double value);  ///< shortest text that reads back equal; must be finite
  Value(Number value) : data_(std::move(value)) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(std::string_view text) : data_(std::string(text)) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(Array items) : data_(std::move(items)) {}
  Value(Object members) : data_(std::move(members)) {}

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&data_); }
  [[nodiscard]] const Number* as_number() const { return std::get_if<Number>(&data_); }
  [[nodiscard]] const std::string* as_string() const { return std::get_if<std::string>(&data_); }
  [[nodiscard]] const Array* as_array() const { return std::get_if<Array>(&data_); }
  [[nodiscard]] const Object* as_object() const { return std::get_if<Object>(&data_); }
  [[nodiscard]] std::string* as_string() { return std::get_if<std::string>(&data_); }
  [[nodiscard]] Array* as_array() { return std::get_if<Array>(&data_); }
  [[nodiscard]] Object* as_object() { return std::get_if<Object>(&data_); }

  /// Member of an object; nullptr when this is no object or has no such key.
  [[nodiscard]] const Value* find(std::string_view key) const {
    const Object* object = as_object();
    return object == nullptr ? nullptr : object->find(key);
  }
  /// "null", "a boolean", "a number", "a string", "an array", "an object": for messages.
  [[nodiscard]] std::string_view type_name() const;

  friend bool operator==(const Value&, const Value&) = default;

 private:
  std::variant<std::monostate, bool, Number, std::string, Array, Object> data_;
};

struct ParseLimits {
  std::int32_t max_depth = 64;
  bool finite_numbers = false;  ///< refuse a number whose magnitude no double holds (1e999)
  bool unique_keys = false;     ///< refuse an object that names a key twice
};

/// Parses one complete JSON text. Errors (ErrorKind::corrupt) say what is wrong with "at line L column C".
/// Refused: invalid UTF-8, lone surrogates, numbers outside RFC 8259, anything after the value, nesting beyond the limit.
[[nodiscard]] Result<Value> parse(std::string_view text, ParseLimits limits = {});

/// Compact text: no blanks, members in order, numbers as spelled, non-ASCII raw.
[[nodiscard]] std::string to_text(const Value& value);
void append_text(std::string& out, const Value& value);

/// Appends `text` with JSON escapes (\" \\ \n \r \t \b \f, other controls \u00xx), without quotes around it.
void append_escaped(std::string& out, std::string_view text);
/// Appends `text` as a JSON string with its quotes.
void append_string(std::string& out, std::string_view text);

}  // namespace deepinfer::json
