// The V4.1 prompt: a header with effort, first system message, tools and format, then turns (spec/recipe.md 2.1 to 2.9).
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "recipe/prompt_dialects.h"
#include "recipe/tool_markup.h"

namespace deepinfer::recipe {

namespace {

/// "1-100" as the text for the model says; absent effort counts as high.
int effort_number(std::optional<ReasoningEffort> effort) {
  switch (effort.value_or(ReasoningEffort::high)) {
    case ReasoningEffort::low:
      return 50;
    case ReasoningEffort::high:
    case ReasoningEffort::xhigh:
      return 75;
    case ReasoningEffort::max:
      return 100;
  }
  std::unreachable();
}

bool is_user_or_tool(const Message& message) {
  return std::holds_alternative<UserMessage>(message) || std::holds_alternative<ToolMessage>(message);
}

/// Sorts the tool messages of one run of user and tool messages by the place of their calls. Other messages keep their slots.
void sort_results(std::span<const Message*> run, const std::vector<ToolCall>& calls) {
  const auto position = [&calls](const Message* message) { return call_position(calls, *std::get<ToolMessage>(*message).tool_call_id, 0); };
  std::vector<std::size_t> slots;
  MessageOrder results;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const auto* tool = std::get_if<ToolMessage>(run[i]);
    if (tool != nullptr && tool->tool_call_id) {
      slots.push_back(i);
      results.push_back(run[i]);
    }
  }
  std::ranges::stable_sort(results, {}, position);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    run[slots[i]] = results[i];
  }
}

MessageOrder order_messages(const std::vector<Message>& messages) {
  MessageOrder order;
  order.reserve(messages.size());
  std::ranges::transform(messages, std::back_inserter(order), [](const Message& message) { return &message; });
  const std::vector<ToolCall>* calls = nullptr;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && is_user_or_tool(*order[end])) {
      ++end;
    }
    if (calls != nullptr && end - begin > 1) {
      sort_results(std::span(order).subspan(begin, end - begin), *calls);
    }
    if (end < order.size()) {
      const auto* assistant = std::get_if<AssistantMessage>(order[end]);
      if (assistant != nullptr && assistant->tool_calls && !assistant->tool_calls->empty()) {
        calls = &*assistant->tool_calls;
      }
      ++end;
    }
    begin = end;
  }
  return order;
}

class V41Renderer {
 public:
  V41Renderer(const Conversation& conversation, const SpecialTokens& tokens)
      : conversation_(conversation),
        tokens_(tokens),
        tools_(active_tools(conversation)),
        is_thinking_(conversation.thinking_mode == ThinkingMode::on),
        out_(expected_prompt_bytes(conversation)) {}

  Prompt render() && {
    const MessageOrder order = order_messages(conversation_.messages);
    const bool has_own_system = !order.empty() && std::holds_alternative<SystemMessage>(*order.front());
    out_.token(tokens_.bos);
    header(has_own_system ? &std::get<SystemMessage>(*order.front()) : nullptr);
    bool is_first = !has_own_system && !has_system_text();
    const Message* previous = nullptr;
    for (std::size_t i = has_own_system ? 1 : 0; i < order.size(); ++i) {
      turn(*order[i], previous, is_first);
      is_first = false;
      previous = order[i];
    }
    end_of_prompt();
    return std::move(out_).take();
  }

 private:
  /// Text that a system message at the front carries beside its own.
  [[nodiscard]] bool has_system_text() const {
    return !tools_.empty() || std::holds_alternative<JsonObjectFormat>(conversation_.response_format) ||
           std::holds_alternative<JsonSchemaFormat>(conversation_.response_format);
  }

  void header(const SystemMessage* system) {
    const bool has_effort = is_thinking_ && (!conversation_.messages.empty() || has_system_text());
    if (system == nullptr && !has_system_text() && !has_effort) {
      return;
    }
    out_.token(tokens_.system);
    if (has_effort) {
      out_.text("Reasoning Effort: ");
      out_.text(std::to_string(effort_number(conversation_.reasoning_effort)));
      out_.text(" (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
    }
    if (system != nullptr) {
      out_.content(system->content);
    }
    if (!tools_.empty()) {
      append_tools_text(out_, tools_, kV41Markup, tokens_);
    }
    response_format();
    if (system != nullptr) {
      updated_tools(*system);
    }
  }

  void response_format() {
    if (std::holds_alternative<JsonObjectFormat>(conversation_.response_format)) {
      append_schema_format(out_, json::Object{{"type", "json_object"}}, kV41Markup);
    } else if (const auto* schema = std::get_if<JsonSchemaFormat>(&conversation_.response_format)) {
      append_schema_format(out_, schema->schema, kV41Markup);
    }
  }

  void updated_tools(const SystemMessage& system) {
    if (system.tools && !system.tools->empty()) {
      out_.text("\n\n### Updated Tool Schemas\n\n");
      append_schema_lines(out_, *system.tools, kV41Markup);
    }
  }

  void turn(const Message& message, const Message* previous, bool is_first) {
    if (const auto* system = std::get_if<SystemMessage>(&message)) {
      out_.token(tokens_.system);
      out_.content(system->content);
      updated_tools(*system);
    } else if (const auto* user = std::get_if<UserMessage>(&message)) {
      user_opener(previous);
      out_.content(user->content);
    } else if (const auto* tool = std::get_if<ToolMessage>(&message)) {
      user_opener(previous);
      out_.text("<tool_result>");
      out_.content(tool->content);
      out_.text("</tool_result>");
    } else if (const auto* reminder = std::get_if<LatestReminderMessage>(&message)) {
      out_.token(tokens_.latest_reminder);
      out_.text(reminder->content);
    } else {
      assistant(std::get<AssistantMessage>(message), is_first);
    }
  }

  void user_opener(const Message* previous) {
    if (previous != nullptr && is_user_or_tool(*previous)) {
      out_.text("\n\n");
    } else {
      out_.token(tokens_.user);
    }
  }

  /// Reasoning is shown when a tool loop may need it and where the reply continues it; never in the very first message.
  void assistant(const AssistantMessage& message, bool is_first) {
    out_.token(tokens_.assistant);
    const bool shows_reasoning = is_thinking_ && !is_first && (message.prefix || message.keeps_reasoning || !tools_.empty());
    if (message.generated && !message.prefix && shows_reasoning == (message.generated->thinking_mode == ThinkingMode::on)) {
      out_.token(shows_reasoning ? tokens_.thinking_start : tokens_.thinking_end);
      out_.generated(message.generated);
      out_.token(tokens_.eos);
      return;
    }
    if (shows_reasoning) {
      out_.token(tokens_.thinking_start);
      if (message.reasoning_content) {
        out_.text(*message.reasoning_content);
      }
      if (message.prefix && message.content.empty()) {
        return;
      }
    }
    out_.token(tokens_.thinking_end);
    out_.text(message.content);
    if (message.tool_calls && !message.tool_calls->empty()) {
      out_.text("\n\n");
      append_calls(out_, *message.tool_calls, kV41Markup, tokens_);
    }
    if (!message.prefix) {
      out_.token(tokens_.eos);
    }
  }

  void end_of_prompt() {
    const auto* last = conversation_.messages.empty() ? nullptr : std::get_if<AssistantMessage>(&conversation_.messages.back());
    if (last == nullptr || !last->prefix) {
      out_.token(tokens_.assistant);
      out_.token(is_thinking_ ? tokens_.thinking_start : tokens_.thinking_end);
    }
    if (conversation_.tool_choice == ToolChoice::required && !tools_.empty()) {
      append_calls_opener(out_, kV41Markup, tokens_);
    }
  }

  const Conversation& conversation_;
  const SpecialTokens& tokens_;
  std::span<const Tool> tools_;
  bool is_thinking_;
  PromptBuilder out_;
};

}  // namespace

Prompt render_v41(const Conversation& conversation, const SpecialTokens& tokens) { return V41Renderer(conversation, tokens).render(); }

}  // namespace deepinfer::recipe
