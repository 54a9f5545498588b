#include "recipe/call_arguments.h"

#include <utility>

#include "recipe/json_style.h"

namespace deepinfer::recipe {

std::optional<json::Value> parse_arguments(std::string_view arguments) {
  constexpr std::int32_t kMaxDepth = 127;  // of the official package's parser
  Result<json::Value> value = json::parse(arguments, {.max_depth = kMaxDepth, .finite_numbers = true});
  return value ? std::optional(std::move(*value)) : std::nullopt;
}

void append_parsed_arguments(std::string& out, std::string_view arguments) {
  if (const std::optional<json::Value> value = parse_arguments(arguments)) {
    append_compact_json(out, *value);
  } else {
    out += "{}";
  }
}

}  // namespace deepinfer::recipe
