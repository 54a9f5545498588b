// A small JSON Schema validator for tests: recursive, by the book, without any part of src/grammar. Knows the common keywords and says
// so when a schema uses another one.
#pragma once

#include <string>

#include "base/json.h"

namespace deepinfer::test {

/// All keywords of the schema, wherever they stand, are ones that is_valid() judges or that say nothing.
[[nodiscard]] bool knows_schema(const json::Value& schema);

/// `schema` is within knows_schema(). Numbers are compared as doubles.
[[nodiscard]] bool is_valid(const json::Value& schema, const json::Value& value);

}  // namespace deepinfer::test
