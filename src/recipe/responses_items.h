// The output items of a Responses reply and their JSON (spec/recipe.md section 3.7). The order of events is responses_events.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "recipe/convert.h"
#include "recipe/custom_tool_input.h"

namespace deepinfer::recipe {

enum class ItemKind : std::uint8_t { reasoning, message, function_call, custom_tool_call, tool_search_call };
enum class ItemStatus : std::uint8_t { in_progress, completed, incomplete };  ///< of an item, and of the response

struct ResponsesItem {
  ItemKind kind = ItemKind::message;
  ItemStatus status = ItemStatus::in_progress;
  std::string id;
  std::string encrypted_content;  ///< reasoning
  std::string text;               ///< the text, the arguments or the custom input so far
  bool has_part = false;          ///< reasoning, message: the content part has been announced
  std::string logprobs = "[]";    ///< message: JSON array
  bool is_commentary = false;     ///< message: a call follows
  std::string call_id;
  std::string name;        ///< of the function, local to its namespace
  std::string name_space;  ///< empty: none
  CustomToolInput custom_input;
};

[[nodiscard]] std::string_view status_name(ItemStatus status);

/// The item that a call of `name` becomes.
[[nodiscard]] ResponsesItem make_call_item(std::string_view name, const ResponsesDetails& details);
/// Sets the ids of the item at place `index` of response `response_id`.
void name_item(ResponsesItem& item, std::string_view response_id, std::size_t index);

/// Appends the item as it is.
void append_item(std::string& out, const ResponsesItem& item);
/// Appends the content part of a reasoning or message item.
void append_part(std::string& out, const ResponsesItem& item);

}  // namespace deepinfer::recipe
