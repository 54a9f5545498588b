// Comparison of probe answers with the recorded answers of the official package (spec/recipe_probe.md sections 1 and 6).
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace deepinfer::recipe::testing {

/// Where two answers to a `stream` line differ, for a person; nullopt when they are equal by the rules of the protocol:
/// objects unordered, integers and floats apart, generated call ids by their order of appearance, times as 0.
std::optional<std::string> stream_difference(json::Value expected, json::Value answer);

/// Where two JSON values differ: objects unordered, integers and floats apart, floats as doubles. `path` names the place.
std::optional<std::string> json_difference(const json::Value& expected, const json::Value& answer, const std::string& path);

}  // namespace deepinfer::recipe::testing
