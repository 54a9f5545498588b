#include "recipe/responses_input.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "recipe/content_builder.h"
#include "recipe/image_source.h"
#include "recipe/json_style.h"
#include "recipe/responses_tools.h"

namespace deepinfer::recipe {

namespace {

constexpr std::string_view kUnsupportedDocument = "[Unsupported Document]";

/// Collects assistant items until another kind of item ends the turn; then its calls must be answered directly.
class ResponsesMessages {
 public:
  ResponsesMessages(const FoundFunctions& found, ModelVersion version, std::string_view image_token, Conformance conformance)
      : found_(found), version_(version), image_token_(image_token), conformance_(conformance) {}

  void add_system(std::string text) { out_.emplace_back(SystemMessage{.content = plain_content(std::move(text)), .tools = std::nullopt}); }
  void add_user(std::string text) { out_.emplace_back(UserMessage{plain_content(std::move(text))}); }

  Verdict add_items(std::vector<ResponsesItem>& items) {
    for (index_ = 0; index_ < items.size(); ++index_) {
      if (Verdict verdict = std::visit([this](auto& item) { return add(item); }, items[index_]); !verdict) {
        return verdict;
      }
    }
    return end_turn();
  }

  std::vector<Message> take() && { return std::move(out_); }

 private:
  /// The assistant turn being collected.
  struct Turn {
    std::string content;
    std::string reasoning;
    std::vector<ToolCall> calls;
    std::vector<std::optional<ToolMessage>> outputs;  ///< one per call
    std::vector<SystemMessage> found;                 ///< functions that its tool searches found
    bool has_message = false;
  };

  [[nodiscard]] std::string place() const { return "input[" + std::to_string(index_) + "]"; }

  [[nodiscard]] Verdict check_call_id(const std::string& call_id) const {
    if (call_id.empty()) {
      return reject("Invalid '" + place() +
                    ".call_id': empty string. Expected a string with minimum length 1, but got an empty string instead.");
    }
    return {};
  }

  [[nodiscard]] bool has_open_call() const {
    return std::ranges::any_of(turn_.outputs, [](const auto& output) { return !output.has_value(); });
  }

  /// Every known item but an output: calls of the turn that have begun to be answered, or are followed by something else, must be answered.
  Verdict check_answered() const {
    for (std::size_t i = 0; i < turn_.calls.size(); ++i) {
      if (!turn_.outputs[i]) {
        return reject("No tool output found for tool call " + turn_.calls[i].id + ".");
      }
    }
    return {};
  }

  /// Writes the collected turn.
  Verdict end_turn() {
    if (Verdict verdict = check_answered(); !verdict) {
      return verdict;
    }
    if (turn_.has_message || !turn_.reasoning.empty() || !turn_.calls.empty()) {
      AssistantMessage message{.content = std::move(turn_.content), .reasoning_content = std::nullopt, .tool_calls = std::nullopt};
      if (!turn_.reasoning.empty()) {
        message.reasoning_content = std::move(turn_.reasoning);
      }
      if (!turn_.calls.empty()) {
        message.tool_calls = std::move(turn_.calls);
      }
      out_.emplace_back(std::move(message));
    }
    for (std::optional<ToolMessage>& output : turn_.outputs) {
      out_.emplace_back(std::move(*output));
    }
    for (SystemMessage& system : turn_.found) {
      out_.emplace_back(std::move(system));
    }
    turn_ = Turn{};
    return {};
  }

  /// Items of unknown types are as if they were not there: calls may still be answered behind them.
  static Verdict add(ResponsesUnknownItem&) { return {}; }

  Verdict add(ResponsesMessage& item) {
    if (item.role == ResponsesRole::assistant) {
      return add_assistant(item);
    }
    if (Verdict verdict = end_turn(); !verdict) {
      return verdict;
    }
    std::expected<Content, RequestError> content = build_content(item.content, "content", item.role);
    if (!content) {
      return std::unexpected(std::move(content.error()));
    }
    const bool is_system = item.role == ResponsesRole::system || (item.role == ResponsesRole::developer && version_ == ModelVersion::v4_1);
    if (is_system) {
      out_.emplace_back(SystemMessage{.content = std::move(*content), .tools = std::nullopt});
    } else {
      out_.emplace_back(UserMessage{std::move(*content)});
    }
    return {};
  }

  Verdict add_assistant(ResponsesMessage& item) {
    if (!turn_.calls.empty()) {
      if (Verdict verdict = end_turn(); !verdict) {
        return verdict;
      }
    }
    std::expected<Content, RequestError> content = build_content(item.content, "content", item.role);
    if (!content) {
      return std::unexpected(std::move(content.error()));
    }
    turn_.has_message = true;
    if (!content->text.empty()) {
      turn_.content += (turn_.content.empty() ? "" : "\n\n") + content->text;
    }
    return {};
  }

  Verdict add(ResponsesReasoning& item) {
    if (turn_.has_message || !turn_.calls.empty()) {
      if (Verdict verdict = end_turn(); !verdict) {
        return verdict;
      }
    }
    std::string text;
    for (const std::string& part : item.texts) {
      text += (&part == &item.texts.front() ? "" : "\n") + part;
    }
    turn_.reasoning += (turn_.reasoning.empty() ? "" : "\n") + text;
    return {};
  }

  Verdict add(ResponsesFunctionCall& item) {
    std::string name = item.name_space ? qualified_name(*item.name_space, item.name, version_) : std::move(item.name);
    return add_call(ToolCall{.id = std::move(item.call_id), .name = std::move(name), .arguments = std::move(item.arguments)});
  }

  Verdict add(ResponsesCustomCall& item) {
    std::string arguments = "{\"input\":";
    json::append_string(arguments, item.input);
    return add_call(ToolCall{.id = std::move(item.call_id), .name = std::move(item.name), .arguments = arguments + "}"});
  }

  /// V4 models know nothing of tool search.
  Verdict add(ResponsesToolSearchCall& item) {
    if (version_ == ModelVersion::v4) {
      return {};
    }
    return add_call(ToolCall{.id = std::move(item.call_id), .name = "tool_search", .arguments = compact_json(item.arguments)});
  }

  Verdict add_call(ToolCall call) {
    if (Verdict verdict = check_call_id(call.id); !verdict) {
      return verdict;
    }
    if (!call_ids_.insert(call.id).second) {
      return reject("Duplicate 'call_id': " + call.id + ".");
    }
    const bool has_outputs = std::ranges::any_of(turn_.outputs, [](const auto& output) { return output.has_value(); });
    if (has_outputs) {
      if (Verdict verdict = end_turn(); !verdict) {
        return verdict;
      }
    }
    const bool is_sorted = conformance_ == Conformance::official;
    turn_.calls.insert(is_sorted ? std::ranges::upper_bound(turn_.calls, call.id, {}, &ToolCall::id) : turn_.calls.end(), std::move(call));
    turn_.outputs.emplace_back();
    return {};
  }

  Verdict add(ResponsesCallOutput& item) {
    if (!item.call_id) {
      return add_free_output(item);
    }
    std::expected<std::size_t, RequestError> slot = find_call(*item.call_id);
    if (!slot) {
      return std::unexpected(std::move(slot.error()));
    }
    std::expected<Content, RequestError> content = build_content(item.output, "output", ResponsesRole::user);
    if (!content) {
      return std::unexpected(std::move(content.error()));
    }
    turn_.outputs[*slot] = ToolMessage{.content = std::move(*content), .tool_call_id = std::move(item.call_id)};
    return {};
  }

  /// An output that names no call stands on its own.
  Verdict add_free_output(ResponsesCallOutput& item) {
    if (Verdict verdict = end_turn(); !verdict) {
      return verdict;
    }
    std::expected<Content, RequestError> content = build_content(item.output, "output", ResponsesRole::user);
    if (!content) {
      return std::unexpected(std::move(content.error()));
    }
    out_.emplace_back(ToolMessage{.content = std::move(*content), .tool_call_id = std::nullopt});
    return {};
  }

  Verdict add(ResponsesToolSearchOutput& item) {
    if (version_ == ModelVersion::v4) {
      return {};
    }
    std::expected<std::size_t, RequestError> slot = find_call(item.call_id);
    if (!slot) {
      return std::unexpected(std::move(slot.error()));
    }
    Result<std::string> text = tool_search_text(item.tools);
    if (!text) {
      return reject(place() + ": " + text.error().message);
    }
    turn_.outputs[*slot] = ToolMessage{.content = plain_content(std::move(*text)), .tool_call_id = std::move(item.call_id)};
    const std::vector<std::string>& names = found_[num_searches_++];
    if (!names.empty()) {
      std::vector<Tool> tools;
      std::ranges::transform(names, std::back_inserter(tools), named_tool);
      turn_.found.push_back(SystemMessage{.content = {}, .tools = std::move(tools)});
    }
    return {};
  }

  /// The place of a call in the turn that gets its output now.
  std::expected<std::size_t, RequestError> find_call(const std::string& call_id) {
    if (Verdict verdict = check_call_id(call_id); !verdict) {
      return std::unexpected(std::move(verdict.error()));
    }
    if (answered_ids_.contains(call_id)) {
      return reject("Duplicate tool output for call_id: " + call_id + ".");
    }
    const auto call = std::ranges::find(turn_.calls, call_id, &ToolCall::id);
    if (call == turn_.calls.end()) {
      return reject("No tool call found for tool output with call_id " + call_id + ".");
    }
    answered_ids_.insert(call_id);
    return static_cast<std::size_t>(call - turn_.calls.begin());
  }

  // Content.

  std::expected<Content, RequestError> build_content(ResponsesContent& parts, std::string_view member, ResponsesRole role) const {
    if (version_ == ModelVersion::v4_1) {
      if (Verdict verdict = check_images(parts, member); !verdict) {
        return std::unexpected(std::move(verdict.error()));
      }
    }
    ContentBuilder builder(image_token_);
    for (ResponsesPart& part : parts) {
      if (auto* text = std::get_if<ResponsesText>(&part)) {
        builder.add_text(std::move(text->text));
      } else if (std::holds_alternative<ResponsesFile>(part)) {
        builder.add_text(std::string(kUnsupportedDocument));
      } else if (version_ == ModelVersion::v4) {
        builder.add_text(std::string(kUnsupportedImage));
      } else if (role == ResponsesRole::assistant) {
        return reject(place() + ": Image in assistant message is unsupported");
      } else {
        auto& image = std::get<ResponsesImage>(part);
        auto source = image_from_url(std::move(*image.image_url), image.detail, place());
        if (!source) {
          return std::unexpected(std::move(source.error()));
        }
        builder.add_image(std::move(*source));
      }
    }
    return std::move(builder).take();
  }

  /// Exactly one source per image, a link of bearable length or inline data.
  [[nodiscard]] Verdict check_images(const ResponsesContent& parts, std::string_view member) const {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto* image = std::get_if<ResponsesImage>(&parts[i]);
      if (image == nullptr) {
        continue;
      }
      const std::string part_place = place() + "." + std::string(member) + "[" + std::to_string(i) + "]";
      const bool has_url = image->image_url && !image->image_url->empty();
      const bool has_file = image->file_id && !image->file_id->empty();
      if (!has_url && !has_file) {
        return reject(part_place + ": input_image must have image_url or file_id");
      }
      if (has_url && has_file) {
        return reject(part_place + ": input_image cannot have both image_url and file_id");
      }
      if (has_file) {
        return reject_file_id(part_place);
      }
      if (const std::optional<std::string> problem = link_length_problem(*image->image_url)) {
        return reject(part_place + ": image_url " + *problem);
      }
    }
    return {};
  }

  const FoundFunctions& found_;
  ModelVersion version_;
  std::string_view image_token_;
  Conformance conformance_;  ///< officially the calls of a turn are in the order of their ids
  std::size_t index_ = 0;
  std::size_t num_searches_ = 0;
  Turn turn_;
  std::unordered_set<std::string> call_ids_;
  std::unordered_set<std::string> answered_ids_;  // of calls whose output came
  std::vector<Message> out_;
};

}  // namespace

std::expected<std::vector<Message>, RequestError> convert_responses_input(ResponsesBody& body, const FoundFunctions& found,
                                                                          ModelVersion version, std::string_view image_token,
                                                                          Conformance conformance) {
  ResponsesMessages messages(found, version, image_token, conformance);
  const bool has_instructions = body.instructions && !body.instructions->empty();
  if (!body.input && !has_instructions) {
    return reject("Either input or instructions must be provided");
  }
  if (has_instructions) {
    messages.add_system(*body.instructions);
  }
  if (!body.input) {
    return std::move(messages).take();
  }
  if (auto* text = std::get_if<std::string>(&*body.input)) {
    messages.add_user(std::move(*text));
    return std::move(messages).take();
  }
  auto& items = std::get<std::vector<ResponsesItem>>(*body.input);
  if (items.empty()) {
    return reject("Input items array must not be empty");
  }
  if (Verdict verdict = messages.add_items(items); !verdict) {
    return std::unexpected(std::move(verdict.error()));
  }
  return std::move(messages).take();
}

}  // namespace deepinfer::recipe
