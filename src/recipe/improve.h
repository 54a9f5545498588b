// What conversion does better than the official component, on top of its result: see docs/recipe.md. Not the reply parser's part.
#pragma once

#include "base/json.h"
#include "recipe/convert.h"
#include "recipe/request_error.h"

namespace deepinfer::recipe {

/// Whether the body asks for one call at a time: `parallel_tool_calls` (Chat, Responses) or `tool_choice.disable_parallel_tool_use`
/// (Messages).
[[nodiscard]] bool asks_for_single_calls(Api api, const json::Value& body);

/// Keeps the reasoning of a running tool loop whose request omits the tools, and turns later system messages of V4 into reminders at
/// their place. Error: the history calls a function by a name that would break the markup of the prompt.
[[nodiscard]] Verdict improve(ConvertedRequest& request);

}  // namespace deepinfer::recipe
