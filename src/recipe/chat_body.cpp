#include "recipe/chat_body.h"

#include <array>
#include <utility>

namespace deepinfer::recipe {

namespace {

enum class PartType { text, image_url, file };
constexpr std::array kPartTypes{
    Choice<PartType>{"text", PartType::text},
    Choice<PartType>{"image_url", PartType::image_url},
    Choice<PartType>{"file", PartType::file},
};

constexpr std::array kRoles{
    Choice<ChatRole>{"system", ChatRole::system},
    Choice<ChatRole>{"user", ChatRole::user},
    Choice<ChatRole>{"assistant", ChatRole::assistant},
    Choice<ChatRole>{"tool", ChatRole::tool},
    Choice<ChatRole>{"latest_reminder", ChatRole::latest_reminder},
};

using FormatKind = ChatFormat::Kind;
constexpr std::array kFormatKinds{
    Choice<FormatKind>{"json_object", FormatKind::json_object},
    Choice<FormatKind>{"json_schema", FormatKind::json_schema},
    Choice<FormatKind>{"regex", FormatKind::regex},
    Choice<FormatKind>{"text", FormatKind::text},
};

using ChoiceKind = RequestedToolChoice::Kind;
constexpr std::array kChoiceKinds{
    Choice<ChoiceKind>{"none", ChoiceKind::none},
    Choice<ChoiceKind>{"auto", ChoiceKind::automatic},
    Choice<ChoiceKind>{"required", ChoiceKind::required},
};

struct FunctionType {};
constexpr std::array kFunctionType{Choice<FunctionType>{"function", {}}};

ChatImagePart read_image_url(Reader reader) {
  const Fields fields(reader);
  return {.url = fields.text("url"),
          .detail = fields.optional_choice<ImageDetail>("detail", image_detail_choices()).value_or(ImageDetail::high)};
}

ChatPart read_part(Reader reader) {
  const Fields fields(reader);
  switch (fields.tag<PartType>("type", kPartTypes)) {
    case PartType::text:
      return ChatTextPart{fields.text("text")};
    case PartType::image_url:
      return fields.required("image_url", read_image_url);
    case PartType::file:
      return ChatFilePart{.file_id = fields.optional_text("file_id"),
                          .file_data = fields.optional_text("file_data"),
                          .filename = fields.optional_text("filename")};
  }
  std::unreachable();
}

ChatContent read_content(Reader reader) {
  if (std::string* text = reader.value().as_string()) {
    ChatContent content;
    content.emplace_back(ChatTextPart{std::move(*text)});
    return content;
  }
  return reader.list(read_part);
}

ToolCall read_tool_call(Reader reader) {
  const Fields fields(reader);
  ToolCall call{.id = fields.text("id"), .name = {}, .arguments = {}};
  fields.choice<FunctionType>("type", kFunctionType);
  return fields.required("function", [&call](Reader function) {
    const Fields members(function);
    call.name = members.text("name");
    call.arguments = members.text("arguments");
    return std::move(call);
  });
}

ChatMessage read_message(Reader reader) {
  const Fields fields(reader);
  ChatMessage message;
  message.role = fields.tag<ChatRole>("role", kRoles);
  switch (message.role) {
    case ChatRole::system:
    case ChatRole::user:
      message.content = fields.required("content", read_content);
      fields.optional_text("name");
      break;
    case ChatRole::assistant:
      message.content = fields.optional("content", read_content);
      fields.optional_text("name");
      message.reasoning_content = fields.optional_text("reasoning_content");
      message.tool_calls = fields.optional("tool_calls", [](Reader calls) { return calls.list(read_tool_call); });
      message.prefix = fields.optional_boolean("prefix").value_or(false);
      break;
    case ChatRole::tool:
      message.content = fields.required("content", read_content);
      message.tool_call_id = fields.text("tool_call_id");
      break;
    case ChatRole::latest_reminder:
      message.content.emplace().emplace_back(ChatTextPart{fields.text("content")});
      break;
  }
  return message;
}

ToolDeclaration read_function(Reader reader) {
  const Fields fields(reader);
  return {.name = fields.text("name"),
          .description = fields.optional_text("description"),
          .parameters = fields.any("parameters"),
          .strict = fields.optional_boolean("strict")};
}

ToolDeclaration read_tool(Reader reader) {
  const Fields fields(reader);
  fields.choice<FunctionType>("type", kFunctionType);
  return fields.required("function", read_function);
}

RequestedToolChoice read_tool_choice(Reader reader) {
  if (reader.value().as_string() != nullptr) {
    return {.kind = reader.tag<ChoiceKind>(kChoiceKinds), .name = {}};
  }
  const Fields fields(reader);
  fields.choice<FunctionType>("type", kFunctionType);
  return {.kind = ChoiceKind::named, .name = fields.required("function", [](Reader function) { return Fields(function).text("name"); })};
}

ChatFormat read_format(Reader reader) {
  const Fields fields(reader);
  ChatFormat format;
  format.kind = fields.tag<FormatKind>("type", kFormatKinds);
  if (format.kind == FormatKind::regex) {
    format.regex = fields.text("regex");
  } else if (format.kind == FormatKind::json_schema) {
    return fields.required("json_schema", [&format](Reader json_schema) {
      const Fields members(json_schema);
      members.optional_text("name");
      format.schema = members.required("schema", [](Reader schema) { return std::move(schema.value()); });
      format.strict = members.optional_boolean("strict").value_or(false);
      return std::move(format);
    });
  }
  return format;
}

StopSetting read_stop(Reader reader) {
  if (std::string* text = reader.value().as_string()) {
    return {.sequences = {std::move(*text)}, .is_list = false};
  }
  return {.sequences = reader.list([](Reader item) { return item.text(); }), .is_list = true};
}

}  // namespace

ChatBody read_chat_body(Reader reader) {
  const Fields fields(reader);
  ChatBody body;
  body.model = fields.text("model");
  body.messages = fields.required("messages", [](Reader messages) { return messages.list(read_message); });
  body.stream = fields.optional_boolean("stream");
  body.include_usage = fields.optional("stream_options", [](Reader options) { return Fields(options).optional_boolean("include_usage"); });
  body.thinking = fields.optional("thinking", [](Reader thinking) {
    const Fields members(thinking);
    members.optional_integer<std::uint64_t>("budget_tokens");
    return members.choice<ThinkingMode>("type", thinking_choices());
  });
  body.reasoning_effort = fields.optional_choice<RequestedEffort>("reasoning_effort", effort_choices());
  body.tools = fields.optional("tools", [](Reader tools) { return tools.list(read_tool); });
  body.tool_choice = fields.optional("tool_choice", read_tool_choice);
  body.response_format = fields.optional("response_format", read_format);
  body.max_tokens = fields.optional_integer<std::uint32_t>("max_tokens");
  body.temperature = fields.optional_number("temperature");
  body.top_p = fields.optional_number("top_p");
  body.n = fields.optional_integer<std::uint8_t>("n");
  body.presence_penalty = fields.optional_number("presence_penalty");
  body.frequency_penalty = fields.optional_number("frequency_penalty");
  body.logprobs = fields.optional_boolean("logprobs");
  body.top_logprobs = fields.optional_integer<std::uint8_t>("top_logprobs");
  body.seed = fields.optional_integer<std::uint64_t>("seed");
  body.stop = fields.optional("stop", read_stop);
  fields.optional_boolean("parallel_tool_calls");
  return body;
}

}  // namespace deepinfer::recipe
