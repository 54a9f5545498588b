// Whether a JSON value is a valid JSON Schema of the draft it names: keyword shapes, regular expressions, references.
// Not here: validating instances, building grammars.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace deepinfer::recipe {

/// What makes `schema` no JSON Schema; nullopt when it is one.
[[nodiscard]] std::optional<std::string> schema_problem(const json::Value& schema);

}  // namespace deepinfer::recipe
