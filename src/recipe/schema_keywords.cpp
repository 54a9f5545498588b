#include "recipe/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "recipe/json_style.h"
#include "recipe/regex_check.h"

namespace deepinfer::recipe {

namespace {

using json::Array;
using json::Object;
using json::Value;
using Problem = std::optional<std::string>;

constexpr unsigned kD4 = 1;
constexpr unsigned kD7 = 4;
constexpr unsigned k2019 = 8;
constexpr unsigned k2020 = 16;
constexpr unsigned kFrom2019 = k2019 | k2020;
constexpr unsigned kFrom7 = kD7 | kFrom2019;
constexpr unsigned kFrom6 = 2 | kFrom7;
constexpr unsigned kAll = kD4 | kFrom6;

/// Sorted by name; a name with several meanings has one row per group of drafts.
constexpr std::array kKeywords{
    Keyword{"$anchor", kFrom2019, Shape::anchor},
    Keyword{"$comment", kFrom7, Shape::text},
    Keyword{"$defs", kFrom2019, Shape::schema_map, Reach::never},
    Keyword{"$dynamicAnchor", k2020, Shape::anchor},
    Keyword{"$dynamicRef", k2020, Shape::text},
    Keyword{"$id", kFrom6 & ~kFrom2019, Shape::text},
    Keyword{"$id", kFrom2019, Shape::identifier},
    Keyword{"$recursiveAnchor", k2019, Shape::boolean},
    Keyword{"$recursiveAnchor", k2020, Shape::anchor},
    Keyword{"$recursiveRef", kFrom2019, Shape::text},
    Keyword{"$ref", kAll, Shape::text},
    Keyword{"$schema", kAll, Shape::text},
    Keyword{"$vocabulary", kFrom2019, Shape::boolean_map},
    Keyword{"additionalItems", kD4, Shape::schema_or_boolean, Reach::after_item_list},
    Keyword{"additionalItems", kFrom6 & ~k2020, Shape::schema, Reach::after_item_list},
    Keyword{"additionalProperties", kD4, Shape::schema_or_boolean},
    Keyword{"additionalProperties", kFrom6, Shape::schema},
    Keyword{"allOf", kAll, Shape::schema_list},
    Keyword{"anyOf", kAll, Shape::schema_list},
    Keyword{"contains", kFrom6, Shape::schema},
    Keyword{"contentEncoding", kFrom6, Shape::text},
    Keyword{"contentMediaType", kFrom6, Shape::text},
    Keyword{"contentSchema", kFrom2019, Shape::schema, Reach::never},
    Keyword{"definitions", kAll, Shape::schema_map, Reach::never},
    Keyword{"dependencies", kAll, Shape::dependencies},
    Keyword{"dependentRequired", kFrom2019, Shape::names_map},
    Keyword{"dependentSchemas", kFrom2019, Shape::schema_map},
    Keyword{"deprecated", kFrom2019, Shape::boolean},
    Keyword{"description", kAll, Shape::text},
    Keyword{"else", kFrom7, Shape::schema, Reach::with_if},
    Keyword{"enum", kAll, Shape::list},
    Keyword{"examples", kFrom6, Shape::list},
    Keyword{"exclusiveMaximum", kD4, Shape::bound_flag},
    Keyword{"exclusiveMaximum", kFrom6, Shape::number},
    Keyword{"exclusiveMinimum", kD4, Shape::bound_flag},
    Keyword{"exclusiveMinimum", kFrom6, Shape::number},
    Keyword{"format", kAll, Shape::text},
    Keyword{"id", kD4, Shape::text},
    Keyword{"if", kFrom7, Shape::schema, Reach::with_if},
    Keyword{"items", kAll & ~k2020, Shape::schema_or_list},
    Keyword{"items", k2020, Shape::schema},
    Keyword{"maxContains", kFrom2019, Shape::count},
    Keyword{"maxItems", kAll, Shape::count},
    Keyword{"maxLength", kAll, Shape::count},
    Keyword{"maxProperties", kAll, Shape::count},
    Keyword{"maximum", kAll, Shape::number},
    Keyword{"minContains", kFrom2019, Shape::count},
    Keyword{"minItems", kAll, Shape::count},
    Keyword{"minLength", kAll, Shape::count},
    Keyword{"minProperties", kAll, Shape::count},
    Keyword{"minimum", kAll, Shape::number},
    Keyword{"multipleOf", kAll, Shape::positive_number},
    Keyword{"not", kAll, Shape::schema},
    Keyword{"oneOf", kAll, Shape::schema_list},
    Keyword{"pattern", kAll, Shape::regex},
    Keyword{"patternProperties", kAll, Shape::pattern_map},
    Keyword{"prefixItems", k2020, Shape::schema_list},
    Keyword{"properties", kAll, Shape::schema_map},
    Keyword{"propertyNames", kFrom6, Shape::schema},
    Keyword{"readOnly", kFrom7, Shape::boolean},
    Keyword{"required", kAll, Shape::names},
    Keyword{"then", kFrom7, Shape::schema, Reach::with_if},
    Keyword{"title", kAll, Shape::text},
    Keyword{"type", kAll, Shape::types},
    Keyword{"unevaluatedItems", kFrom2019, Shape::schema},
    Keyword{"unevaluatedProperties", kFrom2019, Shape::schema},
    Keyword{"uniqueItems", kAll, Shape::boolean},
    Keyword{"writeOnly", kFrom7, Shape::boolean},
};
static_assert(std::ranges::is_sorted(kKeywords, {}, &Keyword::name));

constexpr std::array<std::string_view, 7> kTypes{"array", "boolean", "integer", "null", "number", "object", "string"};

bool is_text(const Value& value) { return value.as_string() != nullptr; }

bool is_type(const Value& value) { return is_text(value) && std::ranges::find(kTypes, *value.as_string()) != kTypes.end(); }

/// Strings only, none twice; draft 4 wants at least one.
bool are_names(const Value& value, Draft draft) {
  const Array* items = value.as_array();
  if (items == nullptr || (draft == Draft::d4 && items->empty())) {
    return false;
  }
  std::unordered_set<std::string_view> seen;
  return std::ranges::all_of(*items, [&seen](const Value& item) { return is_text(item) && seen.insert(*item.as_string()).second; });
}

bool are_types(const Value& value, Draft draft) {
  if (is_type(value)) {
    return true;
  }
  const Array* items = value.as_array();
  return items != nullptr && !items->empty() && are_names(value, draft) && std::ranges::all_of(*items, is_type);
}

bool is_count(const Value& value, Draft draft) {
  const json::Number* number = value.as_number();
  if (number == nullptr || (draft == Draft::d4 && !number->is_integer())) {
    return false;
  }
  const double count = number->as_double();
  return count >= 0 && std::floor(count) == count;
}

/// ^[A-Za-z_][-A-Za-z0-9._]*$; 2019-09 allows a colon and no underscore at the start.
bool is_anchor(const Value& value, Draft draft) {
  if (!is_text(value) || value.as_string()->empty()) {
    return false;
  }
  const bool is_older = draft == Draft::d2019;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_other = [is_older](char c) { return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || (is_older && c == ':'); };
  const std::string& text = *value.as_string();
  return (is_letter(text[0]) || (!is_older && text[0] == '_')) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || is_other(c); });
}

bool is_identifier(const Value& value) {
  return is_text(value) &&
         (value.as_string()->find('#') == std::string::npos || value.as_string()->find('#') + 1 == value.as_string()->size());
}

bool is_schema(const Value& value, Draft draft) {
  return value.as_object() != nullptr || (draft != Draft::d4 && value.as_bool() != nullptr);
}

bool all_members(const Value& value, const std::function<bool(const Value&)>& fits) {
  const Object* members = value.as_object();
  return members != nullptr && std::ranges::all_of(*members, [&fits](const auto& member) { return fits(member.second); });
}

bool all_items(const Value& value, const std::function<bool(const Value&)>& fits) {
  const Array* items = value.as_array();
  return items != nullptr && std::ranges::all_of(*items, fits);
}

bool has_bound(const Object& schema, std::string_view exclusive) {
  return schema.find(exclusive == "exclusiveMaximum" ? "maximum" : "minimum") != nullptr;
}

bool has_shape(const Keyword& keyword, const Value& value, const Object& schema, Draft draft) {
  const auto is_subschema = [draft](const Value& item) { return is_schema(item, draft); };
  switch (keyword.shape) {
    case Shape::text:
      return is_text(value);
    case Shape::boolean:
      return value.as_bool() != nullptr;
    case Shape::number:
      return value.as_number() != nullptr;
    case Shape::positive_number:
      return value.as_number() != nullptr && value.as_number()->as_double() > 0;
    case Shape::count:
      return is_count(value, draft);
    case Shape::list:
      return value.as_array() != nullptr;
    case Shape::regex:
      return is_text(value) && is_valid_regex(*value.as_string());
    case Shape::anchor:
      return is_anchor(value, draft);
    case Shape::identifier:
      return is_identifier(value);
    case Shape::names:
      return are_names(value, draft);
    case Shape::names_map:
      return all_members(value, [draft](const Value& names) { return are_names(names, draft); });
    case Shape::boolean_map:
      return all_members(value, [](const Value& item) { return item.as_bool() != nullptr; });
    case Shape::types:
      return are_types(value, draft);
    case Shape::schema:
      return is_subschema(value);
    case Shape::schema_or_boolean:
      return is_subschema(value) || value.as_bool() != nullptr;
    case Shape::schema_list:
      return value.as_array() != nullptr && !value.as_array()->empty() && all_items(value, is_subschema);
    case Shape::schema_or_list:
      return is_subschema(value) || (value.as_array() != nullptr && !value.as_array()->empty() && all_items(value, is_subschema));
    case Shape::schema_map:
      return all_members(value, is_subschema);
    case Shape::pattern_map:
      return all_members(value, is_subschema) &&
             std::ranges::all_of(*value.as_object(), [](const auto& member) { return is_valid_regex(member.first); });
    case Shape::dependencies:
      return all_members(value, [&](const Value& item) { return is_subschema(item) || are_names(item, draft); });
    case Shape::bound_flag:
      return value.as_bool() != nullptr && has_bound(schema, keyword.name);
  }
  return true;
}

bool is_reached(const Keyword& keyword, const Object& schema) {
  switch (keyword.reach) {
    case Reach::always:
      return true;
    case Reach::never:
      return false;
    case Reach::with_if:
      return schema.find("if") != nullptr && (schema.find("then") != nullptr || schema.find("else") != nullptr);
    case Reach::after_item_list: {
      const Value* items = schema.find("items");
      return items != nullptr && items->as_array() != nullptr;
    }
  }
  return true;
}

bool holds_schemas(Shape shape) {
  return shape == Shape::schema || shape == Shape::schema_or_boolean || shape == Shape::schema_list || shape == Shape::schema_or_list ||
         shape == Shape::schema_map || shape == Shape::pattern_map || shape == Shape::dependencies;
}

/// The schemas in the value of a keyword; parts of another shape are passed over.
Problem visit_value(const Keyword& keyword, const Value& value, Draft draft, const std::function<Problem(const Value&)>& visit) {
  if (is_schema(value, draft) &&
      (keyword.shape == Shape::schema || keyword.shape == Shape::schema_or_boolean || keyword.shape == Shape::schema_or_list)) {
    return visit(value);
  }
  if (const Array* items = value.as_array()) {
    for (const Value& item : *items) {
      if (Problem problem = visit(item)) {
        return problem;
      }
    }
  } else if (const Object* members = value.as_object()) {
    for (const auto& [key, member] : *members) {
      if (member.as_array() != nullptr) {
        continue;  // names of a dependency
      }
      if (Problem problem = visit(member)) {
        return problem;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

const Keyword* find_keyword(std::string_view name, Draft draft) {
  const auto [begin, end] = std::ranges::equal_range(kKeywords, name, {}, &Keyword::name);
  for (auto keyword = begin; keyword != end; ++keyword) {
    if ((keyword->drafts & static_cast<unsigned>(draft)) != 0) {
      return &*keyword;
    }
  }
  return nullptr;
}

Problem shape_problem(const Value& schema, Draft draft) {
  if (schema.as_bool() != nullptr) {
    return std::nullopt;
  }
  const Object* members = schema.as_object();
  if (members == nullptr) {
    return compact_json(schema) + " is not a schema: neither an object nor a boolean";
  }
  for (const auto& [name, value] : *members) {
    const Keyword* keyword = find_keyword(name, draft);
    if (keyword != nullptr && !has_shape(*keyword, value, *members, draft)) {
      return compact_json(value) + " is not a valid value of `" + name + "`";
    }
  }
  return visit_subschemas(*members, draft, Subschemas::all, [draft](const Value& subschema) { return shape_problem(subschema, draft); });
}

Problem visit_subschemas(const Object& schema, Draft draft, Subschemas which, const std::function<Problem(const Value&)>& visit) {
  for (const auto& [name, value] : schema) {
    const Keyword* keyword = find_keyword(name, draft);
    if (keyword == nullptr || !holds_schemas(keyword->shape) || (which == Subschemas::reached && !is_reached(*keyword, schema))) {
      continue;
    }
    if (Problem problem = visit_value(*keyword, value, draft, visit)) {
      return problem;
    }
  }
  return std::nullopt;
}

}  // namespace deepinfer::recipe
