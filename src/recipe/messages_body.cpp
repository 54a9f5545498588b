#include "recipe/messages_body.h"

#include <array>
#include <string_view>
#include <utility>

namespace deepinfer::recipe {

namespace {

enum class BlockType {
  text,
  image,
  document,
  thinking,
  server_tool_use,
  tool_use,
  tool_result,
  web_search_tool_result,
  tool_addition,
};
constexpr std::array kBlockTypes{
    Choice<BlockType>{"text", BlockType::text},
    Choice<BlockType>{"image", BlockType::image},
    Choice<BlockType>{"document", BlockType::document},
    Choice<BlockType>{"thinking", BlockType::thinking},
    Choice<BlockType>{"server_tool_use", BlockType::server_tool_use},
    Choice<BlockType>{"tool_use", BlockType::tool_use},
    Choice<BlockType>{"tool_result", BlockType::tool_result},
    Choice<BlockType>{"web_search_tool_result", BlockType::web_search_tool_result},
    Choice<BlockType>{"tool_addition", BlockType::tool_addition},
};

enum class ResultBlockType { text, image, document, tool_reference };
constexpr std::array kResultBlockTypes{
    Choice<ResultBlockType>{"text", ResultBlockType::text},
    Choice<ResultBlockType>{"image", ResultBlockType::image},
    Choice<ResultBlockType>{"document", ResultBlockType::document},
    Choice<ResultBlockType>{"tool_reference", ResultBlockType::tool_reference},
};

using ImageSourceType = MessagesImage::Source;
constexpr std::array kSourceTypes{
    Choice<ImageSourceType>{"base64", ImageSourceType::base64},
    Choice<ImageSourceType>{"url", ImageSourceType::url},
    Choice<ImageSourceType>{"file", ImageSourceType::file},
};

constexpr std::array kMediaTypes{
    Choice<std::string_view>{"image/jpeg", "image/jpeg"}, Choice<std::string_view>{"image/jpg", "image/jpeg"},
    Choice<std::string_view>{"image/png", "image/png"},   Choice<std::string_view>{"image/gif", "image/gif"},
    Choice<std::string_view>{"image/webp", "image/webp"},
};

constexpr std::array kRoles{
    Choice<MessagesRole>{"user", MessagesRole::user},
    Choice<MessagesRole>{"assistant", MessagesRole::assistant},
    Choice<MessagesRole>{"system", MessagesRole::system},
};

using ChoiceKind = RequestedToolChoice::Kind;
/// `any` does not force a call: it is the same as `auto`.
enum class ChoiceType { automatic, any, tool, none };
constexpr std::array kChoiceTypes{
    Choice<ChoiceType>{"auto", ChoiceType::automatic},
    Choice<ChoiceType>{"any", ChoiceType::any},
    Choice<ChoiceType>{"tool", ChoiceType::tool},
    Choice<ChoiceType>{"none", ChoiceType::none},
};

struct TextType {};
constexpr std::array kTextType{Choice<TextType>{"text", {}}};
struct ReferenceType {};
constexpr std::array kReferenceType{Choice<ReferenceType>{"tool_reference", {}}};

MessagesImage read_image_source(Reader reader) {
  const Fields fields(reader);
  MessagesImage image;
  image.source = fields.tag<ImageSourceType>("type", kSourceTypes);
  if (image.source == ImageSourceType::base64) {
    image.media_type = fields.choice<std::string_view>("media_type", kMediaTypes);
    image.data = fields.text("data");
  } else if (image.source == ImageSourceType::url) {
    image.data = fields.text("url");
  }
  return image;
}

MessagesImage read_image(const Fields& fields) { return fields.required("source", read_image_source); }

MessagesDocument read_document(const Fields& fields) {
  return {.media_type = fields.required("source", [](Reader source) { return Fields(source).optional_text("media_type"); })};
}

MessagesResultBlock read_result_block(Reader reader) {
  const Fields fields(reader);
  switch (fields.tag<ResultBlockType>("type", kResultBlockTypes)) {
    case ResultBlockType::text:
      return MessagesText{fields.text("text")};
    case ResultBlockType::image:
      return read_image(fields);
    case ResultBlockType::document:
      return read_document(fields);
    case ResultBlockType::tool_reference:
      return MessagesToolReference{fields.text("tool_name")};
  }
  std::unreachable();
}

std::vector<MessagesResultBlock> read_result_content(Reader reader) {
  if (std::string* text = reader.value().as_string()) {
    std::vector<MessagesResultBlock> content;
    content.emplace_back(MessagesText{std::move(*text)});
    return content;
  }
  return reader.list(read_result_block);
}

MessagesBlock read_block(Reader reader) {
  const Fields fields(reader);
  switch (fields.tag<BlockType>("type", kBlockTypes)) {
    case BlockType::text:
      return MessagesText{fields.text("text")};
    case BlockType::image:
      return read_image(fields);
    case BlockType::document:
      return read_document(fields);
    case BlockType::thinking:
      fields.optional_text("signature");
      return MessagesThinkingBlock{fields.text("thinking")};
    case BlockType::server_tool_use:
      fields.text("id");
      fields.text("name");
      fields.required("input", [](Reader) { return true; });
      return MessagesServerToolUse{};
    case BlockType::tool_use:
      return MessagesToolUse{.id = fields.text("id"), .name = fields.text("name"), .input = fields.required("input", [](Reader input) {
                               return std::move(input.value());
                             })};
    case BlockType::tool_result:
      fields.optional_boolean("is_error");
      return MessagesToolResult{.tool_use_id = fields.text("tool_use_id"),
                                .content = fields.optional("content", read_result_content).value_or(std::vector<MessagesResultBlock>{})};
    case BlockType::web_search_tool_result:
      fields.text("tool_use_id");
      fields.required("content", [](Reader) { return true; });
      return MessagesWebSearchResult{};
    case BlockType::tool_addition:
      return MessagesToolAddition{fields.required("tool", [](Reader tool) {
        const Fields members(tool);
        members.tag<ReferenceType>("type", kReferenceType);
        return members.text("name");
      })};
  }
  std::unreachable();
}

std::vector<MessagesBlock> read_content(Reader reader) {
  if (std::string* text = reader.value().as_string()) {
    std::vector<MessagesBlock> content;
    content.emplace_back(MessagesText{std::move(*text)});
    return content;
  }
  return reader.list(read_block);
}

MessagesMessage read_message(Reader reader) {
  const Fields fields(reader);
  return {.role = fields.choice<MessagesRole>("role", kRoles), .content = fields.required("content", read_content)};
}

MessagesSystem read_system(Reader reader) {
  if (std::string* text = reader.value().as_string()) {
    return {.blocks = {std::move(*text)}, .is_list = false};
  }
  return {.blocks = reader.list([](Reader block) {
            const Fields fields(block);
            fields.tag<TextType>("type", kTextType);
            return fields.text("text");
          }),
          .is_list = true};
}

/// A `type` of any kind makes it a server tool.
MessagesTool read_tool(Reader reader) {
  const Fields fields(reader);
  if (fields.find("type") != nullptr) {
    return MessagesServerTool{.type = fields.text("type"), .name = fields.optional_text("name")};
  }
  return ToolDeclaration{.name = fields.text("name"),
                         .description = fields.optional_text("description"),
                         .parameters = fields.any("input_schema").value_or(json::Value()),
                         .strict = std::nullopt,
                         .defer_loading = fields.optional_boolean("defer_loading").value_or(false)};
}

RequestedToolChoice read_tool_choice(Reader reader) {
  const Fields fields(reader);
  const ChoiceType type = fields.tag<ChoiceType>("type", kChoiceTypes);
  if (type == ChoiceType::none) {
    return {.kind = ChoiceKind::none, .name = {}};
  }
  fields.optional_boolean("disable_parallel_tool_use");
  if (type == ChoiceType::tool) {
    return {.kind = ChoiceKind::named, .name = fields.text("name")};
  }
  return {};
}

}  // namespace

MessagesBody read_messages_body(Reader reader) {
  const Fields fields(reader);
  MessagesBody body;
  body.model = fields.text("model");
  body.messages = fields.required("messages", [](Reader messages) { return messages.list(read_message); });
  body.system = fields.optional("system", read_system);
  body.stream = fields.optional_boolean("stream");
  body.tools = fields.optional("tools", [](Reader tools) { return tools.list(read_tool); });
  body.tool_choice = fields.optional("tool_choice", read_tool_choice);
  body.thinking = fields.optional("thinking", [](Reader thinking) {
    const Fields members(thinking);
    members.optional_integer<std::uint64_t>("budget_tokens");
    return members.choice<ThinkingMode>("type", thinking_choices());
  });
  const auto read_effort = [](Reader config) { return Fields(config).optional_choice<RequestedEffort>("effort", effort_choices()); };
  body.effort = fields.optional("output_config", read_effort).value_or(std::nullopt);
  fields.optional("metadata", [](Reader metadata) { return Fields(metadata).optional_text("user_id"); });
  body.max_tokens = fields.optional_integer<std::uint32_t>("max_tokens");
  body.temperature = fields.optional_number("temperature");
  body.top_p = fields.optional_number("top_p");
  body.stop_sequences = fields.optional("stop_sequences", [](Reader stops) { return stops.list([](Reader stop) { return stop.text(); }); });
  return body;
}

}  // namespace deepinfer::recipe
