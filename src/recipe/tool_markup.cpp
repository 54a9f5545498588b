#include "recipe/tool_markup.h"

#include <optional>
#include <string>

#include "base/json.h"

namespace deepinfer::recipe {

namespace {

/// Levels of an arguments text, the outer object included, that are still read as JSON.
constexpr json::ParseLimits kArgumentLimits{.max_depth = 127, .finite_numbers = true};

/// Writes tags: "<｜DSML｜ invoke" and "</｜DSML｜ invoke>".
class Markup {
 public:
  Markup(PromptBuilder& out, const MarkupStyle& style, const SpecialTokens& tokens) : out_(out), style_(style), tokens_(tokens) {}

  [[nodiscard]] PromptBuilder& out() const { return out_; }
  [[nodiscard]] const MarkupStyle& style() const { return style_; }

  void open(std::string_view tag) const { begin("<", tag); }
  void close(std::string_view tag) const {
    begin("</", tag);
    out_.text(">");
  }

 private:
  void begin(std::string_view bracket, std::string_view tag) const {
    out_.text(bracket);
    out_.token(tokens_.dsml);
    out_.text(tag);
  }

  PromptBuilder& out_;
  const MarkupStyle& style_;
  const SpecialTokens& tokens_;
};

void append_example(const Markup& markup) {
  PromptBuilder& out = markup.out();
  const MarkupStyle& style = markup.style();
  markup.open(style.calls_tag);
  out.text(">\n");
  markup.open(style.invoke_tag);
  out.text(" name=\"$TOOL_NAME\">\n");
  markup.open(style.parameter_tag);
  out.text(" name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE");
  markup.close(style.parameter_tag);
  out.text("\n...\n");
  markup.close(style.invoke_tag);
  out.text("\n");
  markup.open(style.invoke_tag);
  out.text(" name=\"$TOOL_NAME2\">\n...\n");
  markup.close(style.invoke_tag);
  out.text("\n");
  markup.close(style.calls_tag);
}

void append_parameter(const Markup& markup, std::string_view key, const json::Value& value) {
  PromptBuilder& out = markup.out();
  const std::string* text = value.as_string();
  markup.open(markup.style().parameter_tag);
  out.text(" name=\"");
  out.text(key);
  out.text(text != nullptr ? "\" string=\"true\">" : "\" string=\"false\">");
  if (text != nullptr) {
    out.text(*text);
  } else {
    markup.style().append_json(out.buffer(), value);
  }
  markup.close(markup.style().parameter_tag);
}

/// The arguments as an object; text that is none is itself the one argument.
json::Object arguments_of(const ToolCall& call) {
  Result<json::Value> parsed = json::parse(call.arguments, kArgumentLimits);
  if (parsed && parsed->as_object() != nullptr) {
    return std::move(*parsed->as_object());
  }
  return json::Object{{"arguments", call.arguments}};
}

void append_invoke(const Markup& markup, const ToolCall& call) {
  PromptBuilder& out = markup.out();
  markup.open(markup.style().invoke_tag);
  out.text(" name=\"");
  out.text(call.name);
  out.text("\">\n");
  const json::Object arguments = arguments_of(call);
  for (const auto& [key, value] : arguments) {
    append_parameter(markup, key, value);
    out.text("\n");
  }
  if (arguments.empty() && markup.style().has_line_for_no_parameters) {
    out.text("\n");
  }
  markup.close(markup.style().invoke_tag);
  out.text("\n");
}

void append_schema_line(PromptBuilder& out, const Tool& tool, const MarkupStyle& style) {
  out.text("{\"name\": ");
  json::append_string(out.buffer(), tool.name);
  out.text(", \"description\": ");
  json::append_string(out.buffer(), tool.description ? std::string_view(*tool.description) : std::string_view());
  out.text(", \"parameters\": ");
  style.append_json(out.buffer(), tool.parameters);
  out.text("}");
}

}  // namespace

void append_tools_text(PromptBuilder& out, std::span<const Tool> tools, const MarkupStyle& style, const SpecialTokens& tokens) {
  const Markup markup(out, style, tokens);
  out.text("\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing a \"");
  markup.open(style.calls_tag);
  out.text(">\" block like the following:\n\n");
  append_example(markup);
  out.text(
      "\n\nString parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, arrays, "
      "objects), pass the value in JSON format and set `string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by ");
  out.token(tokens.thinking_start);
  out.text("), you MUST output your complete reasoning inside ");
  out.token(tokens.thinking_start);
  out.text("...");
  out.token(tokens.thinking_end);
  out.text(" BEFORE any tool calls or final response.\n\nOtherwise, output directly after ");
  out.token(tokens.thinking_end);
  out.text(" with tool calls or final response.\n\n### Available Tool Schemas\n\n");
  bool has_schemas = false;
  for (const Tool& tool : tools) {
    if (!tool.defer_loading) {
      append_schema_line(out, tool, style);
      out.text("\n");
      has_schemas = true;
    }
  }
  if (!has_schemas && style.has_line_for_no_schemas) {
    out.text("\n");
  }
  out.text("\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n");
}

void append_schema_lines(PromptBuilder& out, std::span<const Tool> tools, const MarkupStyle& style) {
  std::string_view separator;
  for (const Tool& tool : tools) {
    out.text(separator);
    separator = "\n";
    append_schema_line(out, tool, style);
  }
}

void append_schema_format(PromptBuilder& out, const json::Value& schema, const MarkupStyle& style) {
  out.text("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n");
  style.append_json(out.buffer(), schema);
}

void append_calls(PromptBuilder& out, std::span<const ToolCall> calls, const MarkupStyle& style, const SpecialTokens& tokens) {
  const Markup markup(out, style, tokens);
  markup.open(style.calls_tag);
  out.text(">\n");
  for (const ToolCall& call : calls) {
    append_invoke(markup, call);
  }
  markup.close(style.calls_tag);
}

void append_calls_opener(PromptBuilder& out, const MarkupStyle& style, const SpecialTokens& tokens) {
  out.text("\n\n");
  Markup(out, style, tokens).open(style.calls_tag);
  out.text(">\n");
}

}  // namespace deepinfer::recipe
