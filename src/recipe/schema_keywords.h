// The keywords of JSON Schema, draft 4 to 2020-12: which drafts know them, what shape their values have, where subschemas are.
// This is the content of the official meta-schemas as a table. References and base URIs: schema_check.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace deepinfer::recipe {

enum class Draft : unsigned { d4 = 1, d6 = 2, d7 = 4, d2019 = 8, d2020 = 16 };

/// Shape of a keyword's value. A schema is an object or (after draft 4) a boolean.
enum class Shape {
  text,
  boolean,
  number,
  positive_number,
  count,  ///< integer >= 0; draft 4 wants no fraction in the spelling
  list,
  regex,
  anchor,
  identifier,  ///< $id of the newer drafts: no fragment
  names,       ///< list of different strings
  names_map,   ///< object of names
  boolean_map,
  types,
  schema,
  schema_or_boolean,  ///< draft 4 allows true and false only here
  schema_list,        ///< not empty
  schema_or_list,
  schema_map,
  pattern_map,   ///< schema_map whose keys are regular expressions
  dependencies,  ///< object of schemas or names
  bound_flag,    ///< draft 4's boolean exclusive bounds, which need the bound itself
};

/// Whether validation reaches the subschemas of a keyword.
enum class Reach { always, never, with_if, after_item_list };

struct Keyword {
  std::string_view name;
  unsigned drafts;  ///< sum of Draft values
  Shape shape;
  Reach reach = Reach::always;
};

/// nullptr: the draft does not know the keyword, so its value may be anything.
[[nodiscard]] const Keyword* find_keyword(std::string_view name, Draft draft);

/// The first value of `schema` and its subschemas that has not the shape its keyword asks for.
[[nodiscard]] std::optional<std::string> shape_problem(const json::Value& schema, Draft draft);

enum class Subschemas { all, reached };

/// Calls `visit` for the direct subschemas of `schema`; stops at the first problem, which it returns.
[[nodiscard]] std::optional<std::string> visit_subschemas(const json::Object& schema, Draft draft, Subschemas which,
                                                          const std::function<std::optional<std::string>(const json::Value&)>& visit);

}  // namespace deepinfer::recipe
