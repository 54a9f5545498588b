#include "recipe/body_reader.h"

namespace deepinfer::recipe {

std::string spell(const Place& place) {
  if (place.parent == nullptr) {
    return {};
  }
  std::string out = spell(*place.parent);
  if (place.key.empty()) {
    return out + "[" + std::to_string(place.index) + "]";
  }
  if (!out.empty()) {
    out.push_back('.');
  }
  return out.append(place.key);
}

void Misfit::report(const Place& place, std::string_view what) {
  if (message_) {
    return;
  }
  const std::string where = spell(place);
  message_ = (where.empty() ? "the body" : "`" + where + "`") + ": " + std::string(what);
}

std::string Reader::text() const {
  if (std::string* text = value_.as_string()) {
    return std::move(*text);
  }
  refuse("expected a string, not " + std::string(value_.type_name()));
  return {};
}

bool Reader::boolean() const {
  if (const bool* boolean = value_.as_bool()) {
    return *boolean;
  }
  refuse("expected a boolean, not " + std::string(value_.type_name()));
  return false;
}

float Reader::number() const {
  if (const json::Number* number = value_.as_number()) {
    return static_cast<float>(number->as_double());
  }
  refuse("expected a number, not " + std::string(value_.type_name()));
  return 0;
}

std::uint64_t Reader::integer_up_to(std::uint64_t limit) const {
  const json::Number* number = value_.as_number();
  if (number == nullptr) {
    refuse("expected an integer, not " + std::string(value_.type_name()));
    return 0;
  }
  const std::optional<std::uint64_t> integer = number->as_uint64();
  if (!integer || *integer > limit) {
    refuse("expected an integer from 0 to " + std::to_string(limit));
    return 0;
  }
  return *integer;
}

const std::string* Reader::choice_name() const {
  const json::Object* object = value_.as_object();
  if (object != nullptr && object->size() == 1 && object->begin()->second.is_null()) {
    return &object->begin()->first;
  }
  return value_.as_string();
}

void Reader::refuse_choice(const std::string* name) const {
  refuse(name == nullptr ? "expected a string, not " + std::string(value_.type_name()) : "unknown value `" + *name + "`");
}

std::string Fields::text(std::string_view key) const {
  return required(key, [](Reader reader) { return reader.text(); });
}

std::optional<std::string> Fields::optional_text(std::string_view key) const {
  return optional(key, [](Reader reader) { return reader.text(); });
}

std::optional<bool> Fields::optional_boolean(std::string_view key) const {
  return optional(key, [](Reader reader) { return reader.boolean(); });
}

std::optional<float> Fields::optional_number(std::string_view key) const {
  return optional(key, [](Reader reader) { return reader.number(); });
}

std::optional<json::Value> Fields::any(std::string_view key) const {
  json::Value* value = find(key);
  if (value == nullptr || value->is_null()) {
    return std::nullopt;
  }
  return std::move(*value);
}

}  // namespace deepinfer::recipe
