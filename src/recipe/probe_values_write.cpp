// The writing half of probe_values.h.
#include <array>
#include <string_view>
#include <utility>

#include "recipe/base64.h"
#include "recipe/json_style.h"
#include "recipe/probe_names.h"
#include "recipe/probe_values.h"

namespace deepinfer::recipe {

namespace {

using json::Array;
using json::Object;
using json::Value;

template <class E, std::size_t n>
Value name_in(const std::array<Choice<E>, n>& choices, E value) {
  for (const Choice<E>& choice : choices) {
    if (choice.value == value) {
      return choice.name;
    }
  }
  return nullptr;
}

template <class T>
Value or_null(const std::optional<T>& value) {
  return value ? Value(*value) : Value();
}

Value or_null(const std::optional<std::uint32_t>& value) { return value ? Value(std::uint64_t{*value}) : Value(); }

/// Numbers the way the official package reports them: beyond 64 bits they are doubles.
Value with_official_numbers(const Value& value) { return json::parse(compact_json(value), {.max_depth = 256}).value_or(value); }

Array images_json(const std::vector<ImageSource>& images) {
  Array out;
  for (const ImageSource& image : images) {
    out.push_back(to_json(image));
  }
  return out;
}

Array tools_json(const std::vector<Tool>& tools) {
  Array out;
  for (const Tool& tool : tools) {
    out.emplace_back(Object{{"name", tool.name},
                            {"description", or_null(tool.description)},
                            {"parameters", with_official_numbers(tool.parameters)},
                            {"strict", or_null(tool.strict)},
                            {"defer_loading", tool.defer_loading}});
  }
  return out;
}

Value calls_json(const std::optional<std::vector<ToolCall>>& calls) {
  if (!calls) {
    return nullptr;
  }
  Array out;
  for (const ToolCall& call : *calls) {
    out.emplace_back(Object{{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return out;
}

struct MessageWriter {
  Value operator()(const SystemMessage& message) const {
    return Object{{"role", "system"},
                  {"content", message.content.text},
                  {"image_sources", images_json(message.content.images)},
                  {"tools", message.tools ? Value(tools_json(*message.tools)) : Value()}};
  }
  Value operator()(const UserMessage& message) const {
    return Object{{"role", "user"}, {"content", message.content.text}, {"image_sources", images_json(message.content.images)}};
  }
  Value operator()(const AssistantMessage& message) const {
    return Object{{"role", "assistant"},
                  {"content", message.content},
                  {"reasoning_content", or_null(message.reasoning_content)},
                  {"tool_calls", calls_json(message.tool_calls)},
                  {"prefix", message.prefix}};
  }
  Value operator()(const ToolMessage& message) const {
    return Object{{"role", "tool"},
                  {"content", message.content.text},
                  {"image_sources", images_json(message.content.images)},
                  {"tool_call_id", or_null(message.tool_call_id)}};
  }
  Value operator()(const LatestReminderMessage& message) const { return Object{{"role", "latest_reminder"}, {"content", message.content}}; }
};

}  // namespace

std::string_view name_of(ModelVersion version) { return version == ModelVersion::v4 ? "v4" : "v4.1"; }

Value to_json(const Conversation& conversation) {
  constexpr std::array<std::string_view, 4> kFormats{"text", "json_object", "json_schema", "regex"};
  Array messages;
  for (const Message& message : conversation.messages) {
    messages.push_back(std::visit(MessageWriter{}, message));
  }
  const auto* schema = std::get_if<JsonSchemaFormat>(&conversation.response_format);
  const auto* regex = std::get_if<RegexFormat>(&conversation.response_format);
  const std::optional<ReasoningEffort> effort = conversation.reasoning_effort;
  return Object{{"messages", std::move(messages)},
                {"thinking_mode", conversation.thinking_mode == ThinkingMode::on},
                {"tools", tools_json(conversation.tools)},
                {"tool_choice", name_in(kToolChoices, conversation.tool_choice)},
                {"reasoning_effort", effort ? name_in(kEfforts, *effort) : Value()},
                {"response_format", kFormats[conversation.response_format.index()]},
                {"response_schema", schema != nullptr ? with_official_numbers(schema->schema) : Value()},
                {"response_regex", regex != nullptr ? Value(regex->pattern) : Value()}};
}

Value to_json(const ImageSource& image) {
  Object out{{"kind", name_in(kImageKinds, image.kind)}, {"detail", name_in(kDetails, image.detail)}, {"path", image.path}};
  switch (image.kind) {
    case ImageKind::data_url:
      out.append("data_url", image.data);
      break;
    case ImageKind::url:
      out.append("url", image.data);
      break;
    case ImageKind::bytes:
      out.append("data_base64", encode_base64(image.data));
      break;
  }
  return out;
}

Value to_json(const InferenceOptions& options) {
  const std::optional<OutputConstraint>& constraint = options.output_constraint;
  return Object{{"max_tokens", or_null(options.max_tokens)},
                {"temperature", double{options.temperature}},
                {"top_p", double{options.top_p}},
                {"logprobs", options.logprobs},
                {"top_logprobs", or_null(options.top_logprobs)},
                {"seed", or_null(options.seed)},
                {"output_constraint",
                 constraint ? Value(Object{{"kind", name_in(kConstraints, constraint->kind)}, {"schema", constraint->schema}}) : Value()}};
}

Value to_json(const ParsingOptions& options) {
  Array stops;
  for (const std::string& stop : options.stop_sequences) {
    stops.emplace_back(stop);
  }
  return Object{{"parse_tool_calls", options.parse_tool_calls},
                {"starts_in_tool_calls", options.starts_in_tool_calls},
                {"parse_json_output", options.parse_json_output},
                {"thinking_initial_stage", name_in(kStages, options.thinking_initial_stage)},
                {"stop_sequences", std::move(stops)}};
}

Value to_json(const ResponsesEcho& echo) {
  return Object{{"instructions", or_null(echo.instructions)},       {"max_output_tokens", or_null(echo.max_output_tokens)},
                {"temperature", double{echo.temperature}},          {"top_p", double{echo.top_p}},
                {"top_logprobs", std::uint64_t{echo.top_logprobs}}, {"user", or_null(echo.user)}};
}

Value to_json(const RequestError& error) {
  switch (error.stage) {
    case RequestError::Stage::json:
      return Object{{"stage", "json"}, {"message", error.message}};
    case RequestError::Stage::body:
      return Object{{"stage", "body"}, {"message", error.message}};
    case RequestError::Stage::convert:
      return Object{{"stage", "convert"}, {"status", error.status}, {"body", error.body}};
  }
  std::unreachable();
}

}  // namespace deepinfer::recipe
