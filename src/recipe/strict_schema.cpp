#include "recipe/strict_schema.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace deepinfer::recipe {

namespace {

using json::Array;
using json::Object;
using json::Value;

/// What the first rejected schema says when nothing is malformed; children are judged before their object.
constexpr std::string_view kEmptyObject = "An object with no properties is not allowed.";

constexpr std::array<std::string_view, 5> kFormats{"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::array<std::string_view, 5> kListedTypes{"string", "number", "integer", "boolean", "null"};
constexpr std::array<std::string_view, 7> kNumberKeywords{
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};

bool contains(std::span<const std::string_view> names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

/// Whether the outermost object may have no properties.
enum class EmptyObject { allowed, refused };

/// Rebuilds one schema. `malformed` (a value outside the model) wins over `problem` (a rule broken), the first of each is kept.
class StrictSchema {
 public:
  Value rebuild(const Value& schema, EmptyObject empty = EmptyObject::refused) {
    const Object* members = schema.as_object();
    if (members == nullptr) {
      return malform("one of `type`, `anyOf`, `$ref` field is required");
    }
    if (const Value* type = members->find("type")) {
      return type->as_array() != nullptr ? type_list(*members, *type->as_array()) : typed(*members, *type, empty);
    }
    if (const Value* options = members->find("anyOf")) {
      return any_of(*members, *options);
    }
    if (const Value* reference = members->find("$ref")) {
      const std::string* target = reference->as_string();
      return target != nullptr ? Value(Object{{"$ref", *target}}) : malform("`$ref` is a string");
    }
    return malform("one of `type`, `anyOf`, `$ref` field is required");
  }

  [[nodiscard]] const std::optional<std::string>& malformed() const { return malformed_; }
  [[nodiscard]] const std::optional<std::string>& problem() const { return problem_; }

 private:
  Value malform(std::string what) {
    if (!malformed_) {
      malformed_ = std::move(what);
    }
    return {};
  }

  void refuse(std::string_view what) {
    if (!problem_) {
      problem_ = what;
    }
  }

  /// Copies `key` when present and not null; `fits` tells whether the model allows the value.
  template <class Fits>
  void copy(const Object& from, std::string_view key, Object& to, Fits fits) {
    const Value* value = from.find(key);
    if (value == nullptr || value->is_null()) {
      return;
    }
    if (!fits(*value)) {
      malform("`" + std::string(key) + "` must not be " + std::string(value->type_name()) + " of this kind");
      return;
    }
    to.append(std::string(key), *value);
  }

  void copy_text(const Object& from, std::string_view key, Object& to) {
    copy(from, key, to, [](const Value& value) { return value.as_string() != nullptr; });
  }

  Value type_list(const Object& members, const Array& types) {
    for (const Value& type : types) {
      const std::string* name = type.as_string();
      if (name == nullptr || !contains(kListedTypes, *name)) {
        return malform("a list of types names string, number, integer, boolean and null");
      }
    }
    Object out{{"type", types}};
    copy_text(members, "description", out);
    return out;
  }

  Value any_of(const Object& members, const Value& options) {
    const Array* items = options.as_array();
    if (items == nullptr) {
      return malform("`anyOf` is a list");
    }
    Array rebuilt;
    for (const Value& item : *items) {
      const Value* type = item.find("type");
      if (type == nullptr || type->as_string() == nullptr) {
        return malform("every schema of `anyOf` needs a `type`");
      }
      rebuilt.push_back(rebuild(item));
    }
    Object out{{"anyOf", std::move(rebuilt)}};
    copy_text(members, "description", out);
    return out;
  }

  Value typed(const Object& members, const Value& type, EmptyObject empty) {
    const std::string* name = type.as_string();
    if (name == nullptr) {
      return malform("`type` is a string or a list of strings");
    }
    if (*name == "object") {
      return object(members, empty);
    }
    Object out{{"type", *name}};
    if (*name == "string") {
      string(members, out);
    } else if (*name == "number" || *name == "integer") {
      number(members, *name == "integer", out);
    } else if (*name == "array") {
      array(members, out);
    } else if (*name == "boolean" || *name == "null") {
      copy_text(members, "description", out);
    } else {
      return malform("unknown type `" + *name + "`");
    }
    return out;
  }

  void string(const Object& members, Object& out) {
    copy_text(members, "description", out);
    copy_text(members, "pattern", out);
    copy(members, "format", out, [](const Value& value) { return value.as_string() != nullptr && contains(kFormats, *value.as_string()); });
    copy(members, "enum", out, [](const Value& value) {
      const Array* items = value.as_array();
      return items != nullptr && std::ranges::all_of(*items, [](const Value& item) { return item.as_string() != nullptr; });
    });
  }

  void number(const Object& members, bool is_integer, Object& out) {
    copy_text(members, "description", out);
    for (const std::string_view keyword : kNumberKeywords) {
      copy(members, keyword, out, [is_integer](const Value& value) {
        const json::Number* number = value.as_number();
        return number != nullptr && (!is_integer || (number->as_int64().has_value() && number->text != "-0"));
      });
    }
  }

  void array(const Object& members, Object& out) {
    const Value* items = members.find("items");
    if (items == nullptr) {
      malform("an array needs `items`");
      return;
    }
    out.append("items", rebuild(*items));
    copy_text(members, "description", out);
  }

  Value object(const Object& members, EmptyObject empty) {
    Object properties;
    if (const Value* given = members.find("properties"); given != nullptr && !given->is_null()) {
      if (given->as_object() == nullptr) {
        return malform("`properties` is an object");
      }
      for (const auto& [key, schema] : *given->as_object()) {
        properties.append(key, rebuild(schema));
      }
    }
    judge_object(members, properties, empty);
    Array required;
    for (const auto& [key, schema] : properties) {
      required.emplace_back(key);
    }
    Object out{{"type", "object"}};
    out.append("properties", std::move(properties));
    out.append("additionalProperties", false);
    out.append("required", std::move(required));
    copy_text(members, "description", out);
    return out;
  }

  void judge_object(const Object& members, const Object& properties, EmptyObject empty) {
    if (properties.empty() && empty == EmptyObject::refused) {
      refuse(kEmptyObject);
    }
    judge_required(members, properties);
    const Value* additional = members.find("additionalProperties");
    if (additional == nullptr || additional->is_null()) {
      return;
    }
    if (additional->as_bool() == nullptr) {
      malform("`additionalProperties` is a boolean");
    } else if (*additional->as_bool()) {
      refuse("additionalProperties should not be true");
    }
  }

  void judge_required(const Object& members, const Object& properties) {
    const Value* given = members.find("required");
    if (given == nullptr || given->is_null()) {
      return;
    }
    if (given->as_array() == nullptr) {
      malform("`required` is a list");
      return;
    }
    std::vector<std::string_view> seen;
    for (const Value& item : *given->as_array()) {
      const std::string* name = item.as_string();
      if (name == nullptr) {
        malform("`required` is a list of strings");
        return;
      }
      if (properties.find(*name) == nullptr) {
        refuse("Required property '" + *name + "' not found in object");
      } else if (std::ranges::find(seen, *name) != seen.end()) {
        refuse("Duplicate required property '" + *name + "'");
      }
      seen.push_back(*name);
    }
    if (seen.size() != properties.size()) {
      refuse("Required properties must match all properties in the object");
    }
  }

  std::optional<std::string> malformed_;
  std::optional<std::string> problem_;
};

struct Wording {
  std::string_view malformed;
  std::string_view not_an_object;
  bool shape_first;  ///< the top level is judged before its parts
};

/// Adds the definitions that references of the schema may mean, rebuilt like the rest.
void add_definitions(const Value& schema, StrictSchema& strict, Value& out) {
  for (const std::string_view key : {"$defs", "definitions"}) {
    const Value* given = schema.find(key);
    if (given == nullptr || given->as_object() == nullptr || out.as_object() == nullptr) {
      continue;
    }
    Object definitions;
    for (const auto& [name, definition] : *given->as_object()) {
      definitions.append(name, strict.rebuild(definition));
    }
    out.as_object()->append(std::string(key), std::move(definitions));
  }
}

std::expected<Value, RequestError> rebuild_top_level(const Value& schema, EmptyObject empty, const Wording& wording,
                                                     Conformance conformance) {
  StrictSchema strict;
  Value out = strict.rebuild(schema, empty);
  if (conformance == Conformance::improved) {
    add_definitions(schema, strict, out);
  }
  if (strict.malformed()) {
    return reject(std::string(wording.malformed) + *strict.malformed());
  }
  const Value* type = out.find("type");
  const bool is_object = type != nullptr && *type == Value("object");
  if (!is_object && (wording.shape_first || !strict.problem())) {
    return reject(std::string(wording.not_an_object));
  }
  if (strict.problem()) {
    return reject(*strict.problem());
  }
  return out;
}

}  // namespace

std::expected<Value, RequestError> strict_parameters(const std::optional<Value>& parameters, Conformance conformance) {
  constexpr Wording kWording{"Invalid tool parameters schema : ", "The top level of the function parameters schema must be an object.",
                             true};
  if (!parameters) {
    return rebuild_top_level(Object{{"type", "object"}}, EmptyObject::allowed, kWording, conformance);
  }
  return rebuild_top_level(*parameters, EmptyObject::allowed, kWording, conformance);
}

std::expected<Value, RequestError> strict_response_schema(const Value& schema, Conformance conformance) {
  constexpr Wording kWording{"Invalid json schema: ", "The top level of the json schema must be an object.", false};
  return rebuild_top_level(schema, EmptyObject::refused, kWording, conformance);
}

}  // namespace deepinfer::recipe
