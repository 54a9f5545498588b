// Strict schemas: rebuilt from the small model that strict decoding supports, everything outside it dropped or refused.
// Officially `$defs` are dropped too, which leaves references without a target; improved keeps them.
#pragma once

#include <optional>

#include "base/json.h"
#include "recipe/conformance.h"
#include "recipe/request_error.h"

namespace deepinfer::recipe {

/// Parameters of a strict tool; missing ones become the schema of an empty object.
[[nodiscard]] std::expected<json::Value, RequestError> strict_parameters(const std::optional<json::Value>& parameters,
                                                                         Conformance conformance);

/// Schema of a strict json_schema response format.
[[nodiscard]] std::expected<json::Value, RequestError> strict_response_schema(const json::Value& schema, Conformance conformance);

}  // namespace deepinfer::recipe
