// Reading the arguments that a model wrote: JSON text if all went well.
// Not their validation against a schema: that is the client's, or the grammar's while they are generated.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace deepinfer::recipe {

/// The arguments as a JSON value; nullopt when they are no JSON, or nested deeper than 127.
[[nodiscard]] std::optional<json::Value> parse_arguments(std::string_view arguments);

/// Appends the arguments as compact JSON, `{}` when they are none.
void append_parsed_arguments(std::string& out, std::string_view arguments);

}  // namespace deepinfer::recipe
