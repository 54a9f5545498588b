#include "recipe/responses_body.h"

#include <array>
#include <utility>

#include "recipe/responses_tools.h"

namespace deepinfer::recipe {

namespace {

using json::Object;
using json::Value;

constexpr std::array kRoles{
    Choice<ResponsesRole>{"user", ResponsesRole::user},
    Choice<ResponsesRole>{"assistant", ResponsesRole::assistant},
    Choice<ResponsesRole>{"system", ResponsesRole::system},
    Choice<ResponsesRole>{"developer", ResponsesRole::developer},
};

enum class PartType { text, image, file };
constexpr std::array kContentTypes{
    Choice<PartType>{"input_text", PartType::text},
    Choice<PartType>{"output_text", PartType::text},
    Choice<PartType>{"input_image", PartType::image},
    Choice<PartType>{"input_file", PartType::file},
};
constexpr std::array kOutputTypes{
    Choice<PartType>{"input_text", PartType::text},
    Choice<PartType>{"input_image", PartType::image},
    Choice<PartType>{"input_file", PartType::file},
};

using FormatKind = ResponsesFormat::Kind;
constexpr std::array kFormatKinds{
    Choice<FormatKind>{"text", FormatKind::text},
    Choice<FormatKind>{"json_object", FormatKind::json_object},
    Choice<FormatKind>{"json_schema", FormatKind::json_schema},
};

using ChoiceKind = ResponsesToolChoice::Kind;
constexpr std::array kChoiceWords{
    Choice<ChoiceKind>{"none", ChoiceKind::none},
    Choice<ChoiceKind>{"auto", ChoiceKind::automatic},
    Choice<ChoiceKind>{"required", ChoiceKind::required},
};
constexpr std::array kChoiceTypes{
    Choice<ChoiceKind>{"function", ChoiceKind::named},
    Choice<ChoiceKind>{"custom", ChoiceKind::named},
    Choice<ChoiceKind>{"web_search", ChoiceKind::web_search},
    Choice<ChoiceKind>{"web_search_2025_08_26", ChoiceKind::web_search},
};

/// Enumerations that are only reported back stand for their own names.
using Word = Choice<std::string_view>;
constexpr std::array kSummaries{Word{"auto", "auto"}, Word{"concise", "concise"}, Word{"detailed", "detailed"}};
constexpr std::array kVerbosities{Word{"low", "low"}, Word{"medium", "medium"}, Word{"high", "high"}};
constexpr std::array kEffortWords{Word{"none", "none"}, Word{"minimal", "minimal"}, Word{"low", "low"},     Word{"medium", "medium"},
                                  Word{"high", "high"}, Word{"xhigh", "xhigh"},     Word{"ultra", "ultra"}, Word{"max", "max"}};

Value word_or_null(std::optional<std::string_view> word) { return word ? Value(*word) : Value(); }

ResponsesPart read_part(Reader reader, std::span<const Choice<PartType>> types) {
  const Fields fields(reader);
  switch (fields.tag<PartType>("type", types)) {
    case PartType::text:
      return ResponsesText{fields.text("text")};
    case PartType::image:
      return ResponsesImage{
          .image_url = fields.optional_text("image_url"),
          .file_id = fields.optional_text("file_id"),
          .detail = fields.optional_choice<ImageDetail>("detail", image_detail_choices()).value_or(ImageDetail::high),
      };
    case PartType::file:
      return ResponsesFile{};
  }
  std::unreachable();
}

ResponsesContent read_parts(Reader reader, std::span<const Choice<PartType>> types) {
  if (std::string* text = reader.value().as_string()) {
    ResponsesContent content;
    content.emplace_back(ResponsesText{std::move(*text)});
    return content;
  }
  return reader.list([types](Reader part) { return read_part(part, types); });
}

ResponsesContent read_output(Reader reader) { return read_parts(reader, kOutputTypes); }

ResponsesItem read_message(const Fields& fields) {
  return ResponsesMessage{.role = fields.choice<ResponsesRole>("role", kRoles),
                          .content = fields.required("content", [](Reader content) { return read_parts(content, kContentTypes); })};
}

ResponsesItem read_reasoning(const Fields& fields) {
  fields.optional_text("encrypted_content");
  const auto read_text = [](Reader item) { return Fields(item).text("text"); };
  return ResponsesReasoning{
      fields.optional("content", [&read_text](Reader items) { return items.list(read_text); }).value_or(std::vector<std::string>{})};
}

ResponsesItem read_tool_search_call(const Fields& fields) {
  fields.optional_choice<ToolSearchExecution>("execution", tool_search_executions());
  return ResponsesToolSearchCall{.call_id = fields.text("call_id"), .arguments = fields.required("arguments", [](Reader arguments) {
                                   if (arguments.value().as_object() == nullptr) {
                                     arguments.refuse("expected an object");
                                   }
                                   return std::move(arguments.value());
                                 })};
}

ResponsesItem read_typed_item(const Fields& fields, std::string_view type) {
  if (type == "message") {
    return read_message(fields);
  }
  if (type == "function_call") {
    return ResponsesFunctionCall{.call_id = fields.text("call_id"),
                                 .name = fields.text("name"),
                                 .arguments = fields.text("arguments"),
                                 .name_space = fields.optional_text("namespace")};
  }
  if (type == "function_call_output") {
    return ResponsesCallOutput{.call_id = fields.optional_text("call_id"), .output = fields.required("output", read_output)};
  }
  if (type == "custom_tool_call") {
    return ResponsesCustomCall{.call_id = fields.text("call_id"), .name = fields.text("name"), .input = fields.text("input")};
  }
  if (type == "custom_tool_call_output") {
    return ResponsesCallOutput{.call_id = fields.text("call_id"),
                               .output = fields.optional("output", read_output).value_or(ResponsesContent{})};
  }
  if (type == "reasoning") {
    return read_reasoning(fields);
  }
  if (type == "tool_search_call") {
    return read_tool_search_call(fields);
  }
  if (type == "tool_search_output") {
    fields.optional_choice<ToolSearchExecution>("execution", tool_search_executions());
    return ResponsesToolSearchOutput{.call_id = fields.text("call_id"), .tools = fields.required("tools", read_responses_tools)};
  }
  return ResponsesUnknownItem{};
}

/// An item without a type is a message if it has a role.
ResponsesItem read_item(Reader reader) {
  const Fields fields(reader);
  const json::Value* type = fields.find("type");
  if (type == nullptr) {
    if (fields.find("role") == nullptr) {
      reader.refuse("expected an input item with a `type`");
      return ResponsesUnknownItem{};
    }
    return read_message(fields);
  }
  const std::string name = fields.text("type");
  return reader.misfit().found() ? ResponsesUnknownItem{} : read_typed_item(fields, name);
}

ResponsesInput read_input(Reader reader) {
  if (std::string* text = reader.value().as_string()) {
    return std::move(*text);
  }
  return reader.list(read_item);
}

ResponsesToolChoice read_tool_choice(Reader reader) {
  ResponsesToolChoice choice;
  if (const std::string* word = reader.value().as_string()) {
    choice.kind = reader.tag<ChoiceKind>(kChoiceWords);
    choice.echo = *word;
    return choice;
  }
  const Fields fields(reader);
  choice.kind = fields.tag<ChoiceKind>("type", kChoiceTypes);
  if (reader.misfit().found()) {
    return choice;
  }
  Object echo{{"type", *fields.find("type")}};
  if (choice.kind == ChoiceKind::named) {
    choice.name = fields.text("name");
    echo.append("name", choice.name);
  }
  choice.echo = std::move(echo);
  return choice;
}

ResponsesFormat read_format(Reader reader) {
  const Fields fields(reader);
  ResponsesFormat format;
  format.kind = fields.tag<FormatKind>("type", kFormatKinds);
  if (format.kind == FormatKind::json_object) {
    format.echo = Object{{"type", "json_object"}};
  }
  if (format.kind != FormatKind::json_schema) {
    return format;
  }
  std::string name = fields.text("name");
  format.schema = fields.required("schema", [](Reader schema) { return std::move(schema.value()); });
  std::optional<std::string> description = fields.optional_text("description");
  const std::optional<bool> strict = fields.optional_boolean("strict");
  format.strict = strict.value_or(false);
  format.echo = Object{{"type", "json_schema"},
                       {"name", std::move(name)},
                       {"schema", format.schema},
                       {"description", description ? Value(std::move(*description)) : Value()},
                       {"strict", strict ? Value(*strict) : Value()}};
  return format;
}

void read_text_settings(Reader reader, ResponsesBody& body) {
  const Fields fields(reader);
  if (fields.find("format") != nullptr) {
    body.format = fields.required("format", read_format);
  }
  body.verbosity = word_or_null(fields.optional_choice<std::string_view>("verbosity", kVerbosities));
}

void read_reasoning_settings(Reader reader, ResponsesBody& body) {
  const Fields fields(reader);
  body.effort = fields.optional_choice<RequestedEffort>("effort", effort_choices());
  const auto effort = fields.optional_choice<std::string_view>("effort", kEffortWords);
  const auto summary = fields.optional_choice<std::string_view>("summary", kSummaries);
  const auto older_summary = fields.optional_choice<std::string_view>("generate_summary", kSummaries);
  body.reasoning_echo = Object{{"effort", word_or_null(effort)}, {"summary", word_or_null(summary ? summary : older_summary)}};
}

}  // namespace

ResponsesBody read_responses_body(Reader reader) {
  const Fields fields(reader);
  ResponsesBody body;
  const auto into = [&body](auto read) {
    return [&body, read](Reader member) {
      read(member, body);
      return true;
    };
  };
  body.model = fields.text("model");
  body.input = fields.optional("input", read_input);
  body.instructions = fields.optional_text("instructions");
  body.stream = fields.optional_boolean("stream");
  body.tools = fields.optional("tools", read_responses_tools).value_or(std::vector<ResponsesTool>{});
  body.tool_choice = fields.optional("tool_choice", read_tool_choice).value_or(ResponsesToolChoice{});
  fields.optional("text", into(read_text_settings));
  fields.optional("reasoning", into(read_reasoning_settings));
  body.temperature = fields.optional_number("temperature");
  body.top_p = fields.optional_number("top_p");
  body.top_logprobs = fields.optional_integer<std::uint8_t>("top_logprobs");
  body.max_output_tokens = fields.optional_integer<std::uint32_t>("max_output_tokens");
  body.user = fields.optional_text("user");
  return body;
}

}  // namespace deepinfer::recipe
