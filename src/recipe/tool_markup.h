// The DSML markup of tools in prompts, which differs between V4 and V4.1 only in tag names and a blank.
// Parsing of the model's own markup: reply parser.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "recipe/conversation.h"
#include "recipe/json_style.h"
#include "recipe/prompt_builder.h"
#include "recipe/special_tokens.h"

namespace deepinfer::recipe {

struct MarkupStyle {
  std::string_view calls_tag;       ///< after the DSML token: " calls" or "tool_calls"
  std::string_view invoke_tag;      ///< " invoke" or "invoke"
  std::string_view parameter_tag;   ///< " parameter" or "parameter"
  bool has_line_for_no_parameters;  ///< an invoke without parameters has an empty line between its tags
  bool has_line_for_no_schemas;     ///< an empty list of schemas leaves an empty line
  void (*append_json)(std::string& out, const json::Value& value);
};

inline constexpr MarkupStyle kV41Markup{" calls", " invoke", " parameter", true, true, append_python_json};
inline constexpr MarkupStyle kV4Markup{"tool_calls", "invoke", "parameter", false, false, append_spaced_json};

/// "\n\n## Tools…" up to and with its last newline. Deferred tools are left out.
void append_tools_text(PromptBuilder& out, std::span<const Tool> tools, const MarkupStyle& style, const SpecialTokens& tokens);

/// The schema lines of `tools`, one per line, no newline at the end.
void append_schema_lines(PromptBuilder& out, std::span<const Tool> tools, const MarkupStyle& style);

/// "\n\n## Response Format:…" with the schema.
void append_schema_format(PromptBuilder& out, const json::Value& schema, const MarkupStyle& style);

/// The block of one assistant turn's calls.
void append_calls(PromptBuilder& out, std::span<const ToolCall> calls, const MarkupStyle& style, const SpecialTokens& tokens);

/// "\n\n<｜DSML｜ calls>\n": the block that a required choice makes the model begin with.
void append_calls_opener(PromptBuilder& out, const MarkupStyle& style, const SpecialTokens& tokens);

}  // namespace deepinfer::recipe
