#include "support/schema_validator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/utf8.h"

namespace deepinfer::test {

namespace {

using std::string_view;

constexpr std::array<string_view, 12> kSilent = {"$schema",  "$id",      "id",       "title",     "description", "default",
                                                 "$comment", "examples", "readOnly", "writeOnly", "definitions", "$defs"};
constexpr std::array<string_view, 8> kPlain = {"minLength", "maxLength", "minimum",       "maximum",
                                               "minItems",  "maxItems",  "minProperties", "maxProperties"};

bool has(const auto& names, string_view name) { return std::ranges::find(names, name) != names.end(); }

bool know_all(const json::Value& members) {
  return members.as_object() != nullptr &&
         std::ranges::all_of(*members.as_object(), [](const auto& member) { return knows_schema(member.second); });
}

bool know_each(const json::Value& list) {
  return list.as_array() != nullptr && std::ranges::all_of(*list.as_array(), [](const json::Value& item) { return knows_schema(item); });
}

bool knows_keyword(string_view keyword, const json::Value& value) {
  if (keyword == "properties" || keyword == "definitions" || keyword == "$defs") {
    return know_all(value);
  }
  if (keyword == "items" || keyword == "additionalProperties" || keyword == "not") {
    return knows_schema(value);
  }
  if (keyword == "anyOf" || keyword == "allOf" || keyword == "oneOf") {
    return know_each(value);
  }
  if (keyword == "$ref") {
    return value.as_string() != nullptr && value.as_string()->starts_with("#");
  }
  return has(kSilent, keyword) || has(kPlain, keyword) || keyword == "type" || keyword == "enum" || keyword == "const" ||
         (keyword == "required" && value.as_array() != nullptr);
}

double number(const json::Value& value) { return value.as_number()->as_double(); }

bool equal(const json::Value& a, const json::Value& b) {
  if (a.as_number() != nullptr && b.as_number() != nullptr) {
    return number(a) == number(b);
  }
  if (a.as_array() != nullptr && b.as_array() != nullptr) {
    return std::ranges::equal(*a.as_array(), *b.as_array(), equal);
  }
  if (a.as_object() != nullptr && b.as_object() != nullptr) {
    return a.as_object()->size() == b.as_object()->size() && std::ranges::all_of(*a.as_object(), [&](const auto& member) {
             const json::Value* other = b.as_object()->find(member.first);
             return other != nullptr && equal(member.second, *other);
           });
  }
  return a == b;
}

class Validator {
 public:
  explicit Validator(const json::Value& root) : root_(root) {}

  bool judge(const json::Value& schema, const json::Value& value) {
    if (schema.as_bool() != nullptr) {
      return *schema.as_bool();
    }
    const json::Object& object = *schema.as_object();
    if (const json::Value* ref = object.find("$ref")) {  // draft 7 and before: siblings of a reference say nothing
      return judge(*target(*ref->as_string()), value);
    }
    return std::ranges::all_of(object, [&](const auto& member) { return keyword(object, member.first, member.second, value); });
  }

 private:
  const json::Value* target(string_view pointer) const {
    const json::Value* at = &root_;
    for (pointer.remove_prefix(1); !pointer.empty();) {
      pointer.remove_prefix(1);
      const string_view name = pointer.substr(0, pointer.find('/'));
      pointer.remove_prefix(name.size());
      at = at->find(name);
    }
    return at;
  }

  static bool is_of(string_view type, const json::Value& value) {
    return type == "null"      ? value.is_null()
           : type == "boolean" ? value.as_bool() != nullptr
           : type == "string"  ? value.as_string() != nullptr
           : type == "array"   ? value.as_array() != nullptr
           : type == "object"  ? value.as_object() != nullptr
           : type == "number"  ? value.as_number() != nullptr
                               : value.as_number() != nullptr && std::floor(number(value)) == number(value);
  }

  bool keyword(const json::Object& schema, string_view name, const json::Value& rule, const json::Value& value) {
    if (name == "type") {
      return rule.as_string() != nullptr
                 ? is_of(*rule.as_string(), value)
                 : std::ranges::any_of(*rule.as_array(), [&](const json::Value& type) { return is_of(*type.as_string(), value); });
    }
    if (name == "enum") {
      return std::ranges::any_of(*rule.as_array(), [&](const json::Value& one) { return equal(one, value); });
    }
    if (name == "const") {
      return equal(rule, value);
    }
    if (name == "not") {
      return !judge(rule, value);
    }
    if (name == "anyOf" || name == "allOf" || name == "oneOf") {
      const auto count = std::ranges::count_if(*rule.as_array(), [&](const json::Value& branch) { return judge(branch, value); });
      return name == "anyOf" ? count > 0 : name == "oneOf" ? count == 1 : count == std::ssize(*rule.as_array());
    }
    if (has(kPlain, name)) {
      return is_within(name, number(rule), value);
    }
    return parts(schema, name, rule, value);
  }

  static bool is_within(string_view name, double bound, const json::Value& value) {
    double size = bound;  // values of other types always fit
    if (name.ends_with("Length") && value.as_string() != nullptr) {
      size = 0;
      for (const char byte : *value.as_string()) {
        size += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80 ? 1 : 0;
      }
    } else if (name.ends_with("imum") && value.as_number() != nullptr) {
      size = number(value);
    } else if (name.ends_with("Items") && value.as_array() != nullptr) {
      size = static_cast<double>(value.as_array()->size());
    } else if (name.ends_with("Properties") && value.as_object() != nullptr) {
      size = static_cast<double>(value.as_object()->size());
    }
    return name.starts_with("min") ? size >= bound : size <= bound;
  }

  bool parts(const json::Object& schema, string_view name, const json::Value& rule, const json::Value& value) {
    if (name == "items" && value.as_array() != nullptr) {
      return std::ranges::all_of(*value.as_array(), [&](const json::Value& item) { return judge(rule, item); });
    }
    if (value.as_object() == nullptr) {
      return true;
    }
    const json::Object& object = *value.as_object();
    if (name == "required") {
      return std::ranges::all_of(*rule.as_array(), [&](const json::Value& key) { return object.find(*key.as_string()) != nullptr; });
    }
    if (name == "properties") {
      return std::ranges::all_of(*rule.as_object(), [&](const auto& member) {
        const json::Value* own = object.find(member.first);
        return own == nullptr || judge(member.second, *own);
      });
    }
    if (name == "additionalProperties") {
      const json::Value* declared = schema.find("properties");
      return std::ranges::all_of(object, [&](const auto& member) {
        return (declared != nullptr && declared->find(member.first) != nullptr) || judge(rule, member.second);
      });
    }
    return true;
  }

  const json::Value& root_;
};

}  // namespace

bool knows_schema(const json::Value& schema) {
  if (schema.as_bool() != nullptr) {
    return true;
  }
  return schema.as_object() != nullptr &&
         std::ranges::all_of(*schema.as_object(), [](const auto& member) { return knows_keyword(member.first, member.second); });
}

bool is_valid(const json::Value& schema, const json::Value& value) { return Validator(schema).judge(schema, value); }

}  // namespace deepinfer::test
