#include "recipe/schema_check.h"

namespace deepinfer::recipe {

std::optional<std::string> schema_problem(const json::Value& schema) {
  if (schema.as_object() == nullptr && schema.as_bool() == nullptr) {
    return "a JSON Schema is an object or a boolean";
  }
  return std::nullopt;
}

}  // namespace deepinfer::recipe
