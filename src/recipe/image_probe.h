// The image operation of the probe protocol (spec/recipe_probe.md section 7): sizes, files and sources to tokens and mean colours.
#pragma once

#include <expected>

#include "base/json.h"

namespace deepinfer::recipe {

/// The `result` of the answer, or its `error` object.
[[nodiscard]] std::expected<json::Value, json::Value> run_image_probe(const json::Value& line);

}  // namespace deepinfer::recipe
