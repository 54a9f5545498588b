// The reading half of probe_values.h.
#include "recipe/probe_values.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "recipe/base64.h"
#include "recipe/body_reader.h"
#include "recipe/probe_names.h"

namespace deepinfer::recipe {

namespace {

using json::Object;
using json::Value;

enum class Role { system, user, assistant, tool, latest_reminder };
constexpr std::array kRoles{Choice<Role>{"system", Role::system}, Choice<Role>{"user", Role::user},
                            Choice<Role>{"assistant", Role::assistant}, Choice<Role>{"tool", Role::tool},
                            Choice<Role>{"latest_reminder", Role::latest_reminder}};

ImageSource read_image(Reader reader) {
  const Fields fields(reader);
  ImageSource image;
  image.kind = fields.choice<ImageKind>("kind", kImageKinds);
  image.detail = fields.optional_choice<ImageDetail>("detail", kDetails).value_or(ImageDetail::high);
  image.path = fields.optional_text("path").value_or("");
  switch (image.kind) {
    case ImageKind::data_url:
      image.data = fields.text("data_url");
      break;
    case ImageKind::url:
      image.data = fields.text("url");
      break;
    case ImageKind::bytes:
      image.data = decode_forgiving_base64(fields.text("data_base64")).value_or("");
      break;
  }
  return image;
}

/// The first spellings of the image token, one per image, are its placeholders.
Content read_content(const Fields& fields) {
  const std::string token = SpecialTokens{}.image;
  Content content{.text = fields.text("content"), .images = {}, .placeholders = {}};
  content.images =
      fields.optional("image_sources", [](Reader images) { return images.list(read_image); }).value_or(std::vector<ImageSource>{});
  std::size_t begin = 0;
  while (content.placeholders.size() < content.images.size() && (begin = content.text.find(token, begin)) != std::string::npos) {
    content.placeholders.push_back({.begin = begin, .end = begin + token.size()});
    begin += token.size();
  }
  return content;
}

Tool read_tool(Reader reader) {
  const Fields fields(reader);
  return {.name = fields.text("name"),
          .description = fields.optional_text("description"),
          .parameters = fields.any("parameters").value_or(Value()),
          .strict = fields.optional_boolean("strict"),
          .defer_loading = fields.optional_boolean("defer_loading").value_or(false)};
}

std::vector<Tool> read_tools(Reader reader) { return reader.list(read_tool); }

ToolCall read_call(Reader reader) {
  const Fields fields(reader);
  return {.id = fields.text("id"), .name = fields.text("name"), .arguments = fields.text("arguments")};
}

Message read_message(Reader reader) {
  const Fields fields(reader);
  switch (fields.choice<Role>("role", kRoles)) {
    case Role::system:
      return SystemMessage{.content = read_content(fields), .tools = fields.optional("tools", read_tools)};
    case Role::user:
      return UserMessage{read_content(fields)};
    case Role::tool:
      return ToolMessage{.content = read_content(fields), .tool_call_id = fields.optional_text("tool_call_id")};
    case Role::latest_reminder:
      return LatestReminderMessage{fields.text("content")};
    case Role::assistant:
      break;
  }
  return AssistantMessage{.content = fields.text("content"),
                          .reasoning_content = fields.optional_text("reasoning_content"),
                          .tool_calls = fields.optional("tool_calls", [](Reader calls) { return calls.list(read_call); }),
                          .prefix = fields.optional_boolean("prefix").value_or(false)};
}

ResponseFormat read_format(const Fields& fields) {
  const std::string name = fields.optional_text("response_format").value_or("text");
  std::optional<Value> schema = fields.any("response_schema");
  std::optional<std::string> regex = fields.optional_text("response_regex");
  const bool has_schema = schema && !schema->is_null();
  const bool is_json_object = name == "json_object";
  if ((has_schema && regex) || (is_json_object && (has_schema || regex))) {
    fields.refuse("at most one of json_object, response_schema and response_regex");
  }
  if (has_schema) {
    return JsonSchemaFormat{std::move(*schema)};
  }
  if (regex) {
    return RegexFormat{std::move(*regex)};
  }
  return is_json_object ? ResponseFormat(JsonObjectFormat{}) : ResponseFormat(TextFormat{});
}

Conversation read_members(Reader reader) {
  const Fields fields(reader);
  Conversation out;
  out.messages = fields.optional("messages", [](Reader messages) { return messages.list(read_message); }).value_or(std::vector<Message>{});
  out.thinking_mode = fields.optional_boolean("thinking_mode").value_or(true) ? ThinkingMode::on : ThinkingMode::off;
  out.tools = fields.optional("tools", read_tools).value_or(std::vector<Tool>{});
  out.tool_choice = fields.optional_choice<ToolChoice>("tool_choice", kToolChoices).value_or(ToolChoice::automatic);
  out.reasoning_effort = fields.optional_choice<ReasoningEffort>("reasoning_effort", kEfforts);
  out.response_format = read_format(fields);
  return out;
}

void read_versions(const Fields& fields, ConvertOptions& out) {
  const auto read = [](Reader reader) {
    std::map<std::string, ModelVersion, std::less<>> versions;
    if (const Object* members = reader.value().as_object()) {
      for (const auto& [name, version] : *members) {
        versions[name] = read_version(version).value_or(ModelVersion::v4_1);
      }
    }
    return versions;
  };
  if (auto versions = fields.optional("model_versions", read)) {
    out.model_versions = std::move(*versions);
  }
  for (auto& [name, version] : fields.optional("model_aliases", read).value_or(decltype(out.model_versions){})) {
    out.model_versions[name] = version;
  }
}

ConvertOptions read_options(Reader reader) {
  const Fields fields(reader);
  ConvertOptions out;
  out.default_thinking_mode = fields.optional_boolean("default_thinking_mode").value_or(true) ? ThinkingMode::on : ThinkingMode::off;
  out.missing_reasoning =
      fields.optional_choice<MissingReasoning>("reasoning_content_behavior", kMissingReasoning).value_or(out.missing_reasoning);
  out.responses_web_search = fields.optional_choice<WebSearch>("responses_web_search", kWebSearch).value_or(out.responses_web_search);
  out.messages_web_search = fields.optional_choice<WebSearch>("messages_web_search", kWebSearch).value_or(out.messages_web_search);
  out.thinking_max_tokens_upper_bound =
      fields.optional_integer<std::uint32_t>("thinking_max_tokens_upper_bound").value_or(out.thinking_max_tokens_upper_bound);
  out.non_thinking_max_tokens_upper_bound =
      fields.optional_integer<std::uint32_t>("non_thinking_max_tokens_upper_bound").value_or(out.non_thinking_max_tokens_upper_bound);
  read_versions(fields, out);
  out.special_tokens = read_special_tokens(&reader.value());
  return out;
}

/// `read` over a copy of `value`; a misfit is an error.
template <class Read>
auto read_copy(const Value& value, Read read) -> Result<decltype(read(std::declval<Reader>()))> {
  Value copy = value;
  const Place place;
  Misfit misfit;
  auto out = read(Reader(copy, place, misfit));
  if (misfit.found()) {
    return fail(ErrorKind::invalid_argument, misfit.message());
  }
  return out;
}

}  // namespace

Result<ConvertOptions> read_convert_options(const Value* options) {
  return options == nullptr || options->is_null() ? ConvertOptions{} : read_copy(*options, read_options);
}

SpecialTokens read_special_tokens(const Value* options) {
  SpecialTokens out;
  const Value* given = options == nullptr ? nullptr : options->find("special_tokens");
  const auto take = [given](std::string_view name, std::string& spelling) {
    const Value* value = given == nullptr ? nullptr : given->find(name);
    if (value != nullptr && value->as_string() != nullptr) {
      spelling = *value->as_string();
    }
  };
  take("bos", out.bos);
  take("eos", out.eos);
  take("thinking_start", out.thinking_start);
  take("thinking_end", out.thinking_end);
  take("system", out.system);
  take("user", out.user);
  take("assistant", out.assistant);
  take("latest_reminder", out.latest_reminder);
  take("dsml", out.dsml);
  take("image", out.image);
  return out;
}

Result<Conversation> read_conversation(const Value& value) { return read_copy(value, read_members); }

Result<std::vector<ImageSource>> read_image_sources(const Value& value) {
  return read_copy(value, [](Reader reader) { return reader.list(read_image); });
}

std::optional<ImageDetail> read_image_detail(const Value* value) {
  if (value == nullptr) {
    return ImageDetail::high;
  }
  for (const Choice<ImageDetail>& detail : kDetails) {
    if (*value == Value(detail.name)) {
      return detail.value;
    }
  }
  return std::nullopt;
}

std::optional<ModelVersion> read_version(const Value& value) {
  const std::string* name = value.as_string();
  for (const Choice<ModelVersion>& version : kVersions) {
    if (name != nullptr && *name == version.name) {
      return version.value;
    }
  }
  return std::nullopt;
}

}  // namespace deepinfer::recipe
