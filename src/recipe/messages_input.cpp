#include "recipe/messages_input.h"

#include <algorithm>
#include <set>
#include <utility>

#include "recipe/base64.h"
#include "recipe/content_builder.h"
#include "recipe/image_source.h"
#include "recipe/json_style.h"

namespace deepinfer::recipe {

namespace {

std::string document_text(const MessagesDocument& document) {
  return "[Unsupported document type: " + document.media_type.value_or("unknown") + "]";
}

/// `block_path` begins an error, `image_path` is what the image remembers.
std::expected<ImageSource, RequestError> image_of(MessagesImage& image, const std::string& block_path, const std::string& image_path) {
  ImageSource out{.kind = ImageKind::url, .data = {}, .detail = ImageDetail::high, .path = image_path};
  switch (image.source) {
    case MessagesImage::Source::file:
      return reject_file_id(block_path);
    case MessagesImage::Source::base64:
      if (!is_strict_base64(image.data)) {
        return reject(block_path + ": base64 decode error");
      }
      out.kind = ImageKind::data_url;
      out.data = "data:" + image.media_type + ";base64," + image.data;
      return out;
    case MessagesImage::Source::url:
      break;
  }
  if (!is_link(image.data)) {
    return reject(block_path + ": invalid url: \"" + image.data + "\"");
  }
  if (const std::optional<std::string> problem = link_length_problem(image.data)) {
    return reject(block_path + ": " + *problem);
  }
  out.data = std::move(image.data);
  return out;
}

/// Claude Code puts a line for the provider's accounting in front of its system prompt.
bool is_billing_header(std::string_view block) {
  constexpr std::string_view kHeader = "x-anthropic-billing-header";
  const auto is_same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b; };
  return block.size() >= kHeader.size() && std::ranges::equal(block.substr(0, kHeader.size()), kHeader, is_same);
}

std::string comma_separated(const std::set<std::string>& ids) {
  std::string out;
  for (const std::string& id : ids) {
    out += (out.empty() ? "" : ", ") + id;
  }
  return out;
}

/// Converts the messages of one request in order; every block is checked where it stands.
class MessagesMessages {
 public:
  /// `known_tools`: what references and additions may name.
  MessagesMessages(MessagesBody& body, std::span<const ToolDeclaration> known_tools, ModelVersion version, const ConvertOptions& options)
      : body_(body), known_tools_(known_tools), version_(version), options_(options) {}

  std::expected<std::vector<Message>, RequestError> convert() {
    if (body_.messages.empty()) {
      return reject("messages: at least one message is required");
    }
    if (body_.system) {
      add_system_setting(*body_.system);
    }
    for (index_ = 0; index_ < body_.messages.size(); ++index_) {
      if (Verdict verdict = convert_message(body_.messages[index_]); !verdict) {
        return std::unexpected(std::move(verdict.error()));
      }
    }
    if (Verdict verdict = check_all_answered(body_.messages.size()); !verdict) {
      return std::unexpected(std::move(verdict.error()));
    }
    return std::move(out_);
  }

 private:
  void add_system_setting(MessagesSystem& system) {
    ContentBuilder builder(options_.special_tokens.image);
    const bool has_billing_header = system.is_list && !system.blocks.empty() && is_billing_header(system.blocks.front());
    for (std::size_t i = has_billing_header ? 1 : 0; i < system.blocks.size(); ++i) {
      builder.add_text(std::move(system.blocks[i]));
    }
    out_.emplace_back(SystemMessage{.content = std::move(builder).take(), .tools = std::nullopt});
  }

  Verdict convert_message(MessagesMessage& message) {
    switch (message.role) {
      case MessagesRole::user:
        return convert_user(message);
      case MessagesRole::assistant:
        return convert_assistant(message);
      case MessagesRole::system:
        return convert_system(message);
    }
    std::unreachable();
  }

  [[nodiscard]] std::string place() const { return "messages." + std::to_string(index_); }
  [[nodiscard]] std::string block_place(std::size_t block) const { return place() + ".content[" + std::to_string(block) + "]"; }
  [[nodiscard]] std::string dotted_block_place(std::size_t block) const { return place() + ".content." + std::to_string(block); }

  [[nodiscard]] std::unexpected<RequestError> reject_empty() const {
    return reject(place() + ": all messages must have non-empty content");
  }

  /// `where` is "messages.2: ", "messages.1.1: " or, when results are missing at the end, "messages.1:".
  [[nodiscard]] std::unexpected<RequestError> reject_unanswered(const std::string& where) const {
    return reject(where + "`tool_use` ids were found without `tool_result` blocks immediately after: " + comma_separated(awaited_) +
                  ". Each `tool_use` block must have a corresponding `tool_result` block in the next message.");
  }

  /// At the end of a message: `next` is the index of the message after it.
  [[nodiscard]] Verdict check_all_answered(std::size_t next) const {
    return awaited_.empty() ? Verdict() : reject_unanswered("messages." + std::to_string(next - 1) + ":");
  }

  // User messages.

  Verdict convert_user(MessagesMessage& message) {
    if (message.content.empty()) {
      return reject_empty();
    }
    std::vector<Tool> referenced;
    for (std::size_t i = 0; i < message.content.size(); ++i) {
      if (Verdict verdict = convert_user_block(message.content[i], i, referenced); !verdict) {
        return verdict;
      }
    }
    if (Verdict verdict = check_all_answered(index_); !verdict) {
      return verdict;
    }
    answered_.clear();
    if (!referenced.empty() && version_ == ModelVersion::v4_1) {
      out_.emplace_back(SystemMessage{.content = {}, .tools = std::move(referenced)});
    }
    return {};
  }

  Verdict convert_user_block(MessagesBlock& block, std::size_t index, std::vector<Tool>& referenced) {
    if (auto* result = std::get_if<MessagesToolResult>(&block)) {
      return convert_result(*result, index, referenced);
    }
    if (Verdict verdict = check_role_of_block(block); !verdict) {
      return verdict;
    }
    if (!awaited_.empty()) {
      return reject_unanswered(place() + ": ");
    }
    ContentBuilder builder(options_.special_tokens.image);
    if (Verdict verdict = add_block(builder, block, block_place(index), block_place(index)); !verdict) {
      return verdict;
    }
    out_.emplace_back(UserMessage{std::move(builder).take()});
    return {};
  }

  Verdict convert_result(MessagesToolResult& result, std::size_t index, std::vector<Tool>& referenced) {
    if (answered_.contains(result.tool_use_id)) {
      return reject(dotted_block_place(index) +
                    ": each tool_use must have a single result. Found multiple `tool_result` blocks with id: " + result.tool_use_id);
    }
    if (awaited_.erase(result.tool_use_id) == 0) {
      return reject("unexpected `" + dotted_block_place(index) + ": tool_use_id` found in `tool_result` blocks: " + result.tool_use_id +
                    ". Each `tool_result` block must have a corresponding `tool_use` block in the previous message.");
    }
    answered_.insert(result.tool_use_id);
    const std::string path = dotted_block_place(index) + ".tool_result";
    ContentBuilder builder(options_.special_tokens.image);
    for (std::size_t i = 0; i < result.content.size(); ++i) {
      if (auto* reference = std::get_if<MessagesToolReference>(&result.content[i])) {
        if (!is_known(reference->name)) {
          return reject(dotted_block_place(index) + ": tool reference '" + reference->name + "' not found in available tools");
        }
        referenced.push_back(named_tool(reference->name));
        builder.add_text(std::move(reference->name));
      } else if (Verdict verdict = add_block(builder, result.content[i], path + ".content[" + std::to_string(i) + "]", path); !verdict) {
        return verdict;
      }
    }
    out_.emplace_back(ToolMessage{.content = std::move(builder).take(), .tool_call_id = std::move(result.tool_use_id)});
    return {};
  }

  // Assistant messages.

  Verdict convert_assistant(MessagesMessage& message) {
    if (!awaited_.empty()) {
      return reject_unanswered(place() + ": ");
    }
    if (message.content.empty()) {
      return reject_empty();
    }
    AssistantMessage out;
    for (std::size_t i = 0; i < message.content.size(); ++i) {
      if (Verdict verdict = convert_assistant_block(message.content[i], i, out); !verdict) {
        return verdict;
      }
    }
    out_.emplace_back(std::move(out));
    return {};
  }

  Verdict convert_assistant_block(MessagesBlock& block, std::size_t index, AssistantMessage& out) {
    if (auto* use = std::get_if<MessagesToolUse>(&block)) {
      return add_call(*use, index, out);
    }
    if (const auto* thinking = std::get_if<MessagesThinkingBlock>(&block)) {
      out.reasoning_content = out.reasoning_content ? *out.reasoning_content + "\n\n" + thinking->thinking : thinking->thinking;
      return {};
    }
    if (std::holds_alternative<MessagesServerToolUse>(block) || std::holds_alternative<MessagesWebSearchResult>(block)) {
      return options_.messages_web_search == WebSearch::drop ? Verdict()
                                                             : reject("Unsupported content block: server tools are not supported");
    }
    if (Verdict verdict = check_role_of_block(block); !verdict) {
      return verdict;
    }
    if (!awaited_.empty()) {
      return reject_unanswered(place() + "." + std::to_string(index) + ": ");
    }
    ContentBuilder builder(options_.special_tokens.image);
    if (Verdict verdict = add_block(builder, block, block_place(index), place()); !verdict) {
      return verdict;
    }
    const Content content = std::move(builder).take();
    if (!content.images.empty()) {
      return reject("Image in assistant message is unsupported");
    }
    out.content += (out.content.empty() ? "" : "\n\n") + content.text;
    return {};
  }

  Verdict add_call(MessagesToolUse& use, std::size_t index, AssistantMessage& out) {
    if (!awaited_.insert(use.id).second) {
      return reject(dotted_block_place(index) + ": `tool_use` ids must be unique");
    }
    if (!out.tool_calls) {
      out.tool_calls.emplace();
    }
    out.tool_calls->push_back(ToolCall{.id = std::move(use.id), .name = std::move(use.name), .arguments = python_json(use.input)});
    return {};
  }

  // System messages.

  Verdict convert_system(MessagesMessage& message) {
    if (!awaited_.empty()) {
      return reject_unanswered(place() + ": ");
    }
    ContentBuilder builder(options_.special_tokens.image);
    std::optional<std::vector<Tool>> tools;
    for (std::size_t i = 0; i < message.content.size(); ++i) {
      if (const auto* addition = std::get_if<MessagesToolAddition>(&message.content[i])) {
        if (!is_known(addition->name)) {
          return reject(dotted_block_place(i) + ": `tool_addition` references unknown tool '" + addition->name + "'");
        }
        if (!tools) {
          tools.emplace();
        }
        tools->push_back(named_tool(addition->name));
        continue;
      }
      Verdict verdict = check_role_of_block(message.content[i]);
      if (verdict) verdict = add_block(builder, message.content[i], block_place(i), place());
      if (!verdict) {
        return verdict;
      }
    }
    Content content = std::move(builder).take();
    if (version_ == ModelVersion::v4_1) {
      out_.emplace_back(SystemMessage{.content = std::move(content), .tools = std::move(tools)});
    } else if (!content.text.empty()) {
      out_.emplace_back(UserMessage{plain_content("<system-reminder>\n" + content.text + "\n</system-reminder>")});
    }
    return {};
  }

  // Shared.

  /// Blocks that belong to messages of one role.
  Verdict check_role_of_block(const MessagesBlock& block) const {
    if (std::holds_alternative<MessagesToolUse>(block) || std::holds_alternative<MessagesServerToolUse>(block)) {
      return reject(place() + ": `tool_use` blocks can only be in `assistant` messages");
    }
    if (std::holds_alternative<MessagesWebSearchResult>(block)) {
      return reject(place() + ": `web_search_tool_result` blocks can only be in `assistant` messages");
    }
    if (std::holds_alternative<MessagesThinkingBlock>(block)) {
      return reject(place() + ".content: thinking blocks may only be in `assistant` messages");
    }
    if (std::holds_alternative<MessagesToolResult>(block)) {
      return reject(place() + ": `tool_result` blocks can only be in `user` messages");
    }
    if (std::holds_alternative<MessagesToolAddition>(block)) {
      return reject(place() + ": `tool_addition` blocks can only be in `system` messages");
    }
    return {};
  }

  /// Adds a text, image or document block.
  template <class Block>
  Verdict add_block(ContentBuilder& builder, Block& block, const std::string& block_path, const std::string& image_path) const {
    if (auto* text = std::get_if<MessagesText>(&block)) {
      builder.add_text(std::move(text->text));
    } else if (const auto* document = std::get_if<MessagesDocument>(&block)) {
      builder.add_text(document_text(*document));
    } else if (version_ == ModelVersion::v4) {
      builder.add_text(std::string(kUnsupportedImage));
    } else {
      auto image = image_of(std::get<MessagesImage>(block), block_path, image_path);
      if (!image) {
        return std::unexpected(std::move(image.error()));
      }
      builder.add_image(std::move(*image));
    }
    return {};
  }

  [[nodiscard]] bool is_known(std::string_view name) const {
    return std::ranges::find(known_tools_, name, &ToolDeclaration::name) != known_tools_.end();
  }

  MessagesBody& body_;
  std::span<const ToolDeclaration> known_tools_;
  ModelVersion version_;
  const ConvertOptions& options_;
  std::size_t index_ = 0;
  std::vector<Message> out_;
  std::set<std::string> awaited_;   ///< tool_use ids of the last assistant message without a result yet
  std::set<std::string> answered_;  ///< those with a result
};

}  // namespace

std::expected<std::vector<Message>, RequestError> convert_messages_input(MessagesBody& body, std::span<const ToolDeclaration> known_tools,
                                                                         ModelVersion version, const ConvertOptions& options) {
  return MessagesMessages(body, known_tools, version, options).convert();
}

}  // namespace deepinfer::recipe
