// The V4 prompt: effort and all system texts in front, then turns (spec/recipe.md 2.10).
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "recipe/prompt_dialects.h"
#include "recipe/tool_markup.h"

namespace deepinfer::recipe {

namespace {

/// What the model was trained on; low effort has no text.
std::string_view effort_text(std::optional<ReasoningEffort> effort) {
  switch (effort.value_or(ReasoningEffort::high)) {
    case ReasoningEffort::low:
      return "";
    case ReasoningEffort::high:
    case ReasoningEffort::xhigh:
      return "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
             "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
             "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
             "Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, "
             "and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
    case ReasoningEffort::max:
      return "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
             "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
             "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause "
             "rather than any surface symptom.\n"
             "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no "
             "assumption remains unchecked and no error remains undiscovered.\n\n";
  }
  std::unreachable();
}

/// The results right after an assistant message with n calls, the first n of them, in the order of the calls.
MessageOrder order_messages(const std::vector<Message>& messages) {
  MessageOrder order;
  order.reserve(messages.size());
  std::ranges::transform(messages, std::back_inserter(order), [](const Message& message) { return &message; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto* assistant = std::get_if<AssistantMessage>(order[i]);
    if (assistant == nullptr || !assistant->tool_calls) {
      continue;
    }
    const std::vector<ToolCall>& calls = *assistant->tool_calls;
    const std::span<const Message*> after = std::span(order).subspan(i + 1);
    const auto is_tool = [](const Message* message) { return std::holds_alternative<ToolMessage>(*message); };
    if (after.size() < calls.size() || !std::ranges::all_of(after.first(calls.size()), is_tool)) {
      continue;
    }
    // A result without an id comes first, one with an unknown id last.
    std::ranges::stable_sort(after.first(calls.size()), {}, [&calls](const Message* message) -> std::size_t {
      const auto& id = std::get<ToolMessage>(*message).tool_call_id;
      return id ? 1 + call_position(calls, *id, calls.size()) : 0;
    });
  }
  return order;
}

class V4Renderer {
 public:
  V4Renderer(const Conversation& conversation, const SpecialTokens& tokens)
      : conversation_(conversation),
        tokens_(tokens),
        tools_(active_tools(conversation)),
        is_thinking_(conversation.thinking_mode == ThinkingMode::on),
        out_(expected_prompt_bytes(conversation)) {}

  Prompt render() && {
    out_.token(tokens_.bos);
    if (is_thinking_) {
      out_.text(effort_text(conversation_.reasoning_effort));
    }
    system_texts();
    MessageOrder order = order_messages(conversation_.messages);
    std::erase_if(order, [](const Message* message) { return std::holds_alternative<SystemMessage>(*message); });
    const auto* last = order.empty() ? nullptr : std::get_if<AssistantMessage>(order.back());
    continued_ = last != nullptr && last->prefix ? last : nullptr;
    const Message* previous = nullptr;
    for (const Message* message : order) {
      turn(*message, previous);
      previous = message;
    }
    end_of_prompt();
    return std::move(out_).take();
  }

 private:
  void system_texts() {
    std::string_view separator;
    for (const Message& message : conversation_.messages) {
      const auto* system = std::get_if<SystemMessage>(&message);
      if (system != nullptr && !system->content.text.empty()) {
        out_.text(separator);
        separator = "\n\n";
        out_.content(system->content);
      }
    }
    if (!tools_.empty()) {
      append_tools_text(out_, tools_, kV4Markup, tokens_);
    }
    if (std::holds_alternative<JsonObjectFormat>(conversation_.response_format)) {
      out_.text("\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.");
    } else if (const auto* schema = std::get_if<JsonSchemaFormat>(&conversation_.response_format)) {
      append_schema_format(out_, schema->schema, kV4Markup);
    }
  }

  void turn(const Message& message, const Message* previous) {
    const bool follows_tool = previous != nullptr && std::holds_alternative<ToolMessage>(*previous);
    const bool follows_user = previous != nullptr && std::holds_alternative<UserMessage>(*previous);
    if (const auto* user_message = std::get_if<UserMessage>(&message)) {
      if (!follows_user) {
        user_opener(follows_tool);
        user_has_text_ = false;
      }
      user(*user_message);
    } else if (const auto* tool = std::get_if<ToolMessage>(&message)) {
      user_opener(follows_tool);
      out_.text("<tool_result>");
      out_.content(tool->content);
      out_.text("</tool_result>");
    } else if (const auto* reminder = std::get_if<LatestReminderMessage>(&message)) {
      out_.token(tokens_.latest_reminder);
      out_.text(reminder->content);
    } else {
      assistant(std::get<AssistantMessage>(message));
    }
  }

  void user_opener(bool joins_results) {
    if (joins_results) {
      out_.text("\n\n");
    } else {
      out_.token(tokens_.user);
    }
  }

  /// User messages in a row are one turn; empty ones leave no gap in it.
  void user(const UserMessage& message) {
    if (!message.content.text.empty()) {
      out_.text(user_has_text_ ? "\n\n" : "");
      user_has_text_ = true;
    }
    out_.content(message.content);
  }

  void assistant(const AssistantMessage& message) {
    out_.token(tokens_.assistant);
    if (message.reasoning_content && (message.prefix || message.keeps_reasoning || !tools_.empty())) {
      out_.token(tokens_.thinking_start);
      out_.text(*message.reasoning_content);
    }
    if (!message.prefix || !is_thinking_ || !message.content.empty()) {
      out_.token(tokens_.thinking_end);
    }
    out_.text(message.content);
    if (message.tool_calls) {
      out_.text("\n\n");
      append_calls(out_, *message.tool_calls, kV4Markup, tokens_);
    }
    if (&message != continued_) {
      out_.token(tokens_.eos);
    }
  }

  void end_of_prompt() {
    if (continued_ == nullptr) {
      out_.token(tokens_.assistant);
      out_.token(is_thinking_ ? tokens_.thinking_start : tokens_.thinking_end);
    }
    if (conversation_.tool_choice == ToolChoice::required && !tools_.empty()) {
      append_calls_opener(out_, kV4Markup, tokens_);
    }
  }

  const Conversation& conversation_;
  const SpecialTokens& tokens_;
  std::span<const Tool> tools_;
  bool is_thinking_;
  PromptBuilder out_;
  const AssistantMessage* continued_ = nullptr;  ///< the last turn, when the reply continues it
  bool user_has_text_ = false;                   ///< the user turn being written has text
};

}  // namespace

Prompt render_v4(const Conversation& conversation, const SpecialTokens& tokens) { return V4Renderer(conversation, tokens).render(); }

}  // namespace deepinfer::recipe
