// JSON text in the spellings of the official recipe: Python's json.dumps in prompts, compact in constraints and error texts.
// Numbers lose their own spelling on the way: integers outside [-2^63, 2^64) and all others are written as the nearest double.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace deepinfer::recipe {

/// Separators `, ` and `: `, doubles as Python's repr (1e-05, 1e+16).
void append_python_json(std::string& out, const json::Value& value);
[[nodiscard]] std::string python_json(const json::Value& value);

/// Separators as Python's, doubles as in compact text: what V4 prompts have.
void append_spaced_json(std::string& out, const json::Value& value);

/// Separators `,` and `:`, doubles in shortest form (0.00001, 1.5e-7, 1e+16).
void append_compact_json(std::string& out, const json::Value& value);
[[nodiscard]] std::string compact_json(const json::Value& value);

}  // namespace deepinfer::recipe
