// Tool declarations and tool choice: name rules, uniqueness, schemas, what a choice leaves.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "recipe/conformance.h"
#include "recipe/conversation.h"
#include "recipe/request_error.h"

namespace deepinfer::recipe {

/// A function tool as declared. Absent parameters are those of a function without any.
struct ToolDeclaration {
  std::string name;
  std::optional<std::string> description;
  std::optional<json::Value> parameters;
  std::optional<bool> strict;
  bool defer_loading = false;
};

struct RequestedToolChoice {
  enum class Kind { automatic, none, required, named };
  Kind kind = Kind::automatic;
  std::string name;  ///< of a named choice
};

/// `place` is how the refusal names the member, "tools[0].function.name".
[[nodiscard]] Verdict check_tool_name(std::string_view name, std::string_view place);

/// Schemas checked, strict ones rebuilt. Order of checks: per tool its name's uniqueness, then its schema.
[[nodiscard]] std::expected<std::vector<Tool>, RequestError> build_tools(std::vector<ToolDeclaration> declarations,
                                                                              Conformance conformance);

/// Puts `tools` and the choice into the conversation. A named choice keeps one tool; required is refused in thinking mode.
[[nodiscard]] Verdict apply_tool_choice(Conversation& conversation, std::vector<Tool> tools, const RequestedToolChoice& choice);

/// A tool of which only the name matters yet: settle_system_tools() fills it in.
[[nodiscard]] Tool named_tool(std::string name);

/// Gives the tools that system messages name their full form, once the conversation's tools are known. Names that the tool choice
/// removed go; a system message that was only there for them goes too.
void settle_system_tools(Conversation& conversation);

[[nodiscard]] std::unexpected<RequestError> reject_unknown_function(std::string_view name);

/// All tools strict or none; strict ones only without a response format.
[[nodiscard]] Verdict check_strict_mix(std::span<const Tool> tools, bool has_response_format);

}  // namespace deepinfer::recipe
