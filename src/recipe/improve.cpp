#include "recipe/improve.h"

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

#include "recipe/call_names.h"

namespace deepinfer::recipe {

namespace {

bool has_calls(const AssistantMessage& message) { return message.tool_calls && !message.tool_calls->empty(); }

Verdict check_call_names(const Conversation& conversation) {
  for (const Message& message : conversation.messages) {
    const auto* assistant = std::get_if<AssistantMessage>(&message);
    if (assistant == nullptr || !has_calls(*assistant)) {
      continue;
    }
    const auto bad = std::ranges::find_if_not(*assistant->tool_calls, [](const ToolCall& call) { return is_plain_call_name(call.name); });
    if (bad != assistant->tool_calls->end()) {
      return reject("Invalid name '" + bad->name +
                    "' of a called function: expected at least one character and no quotes, angle brackets or control characters.");
    }
  }
  return {};
}

/// Turns with calls after the last user message: the model is still at work on that message and needs what it thought.
void keep_running_reasoning(Conversation& conversation) {
  for (Message& message : std::views::reverse(conversation.messages)) {
    if (std::holds_alternative<UserMessage>(message)) {
      return;
    }
    auto* assistant = std::get_if<AssistantMessage>(&message);
    if (assistant != nullptr && has_calls(*assistant)) {
      assistant->keeps_reasoning = true;
    }
  }
}

/// V4 knows one system text, at the front. What comes later is said where it comes, in the form that Messages uses for it.
void turn_late_systems_into_reminders(Conversation& conversation) {
  const auto is_system = [](const Message& message) { return std::holds_alternative<SystemMessage>(message); };
  const auto first_turn = std::ranges::find_if_not(conversation.messages, is_system);
  for (Message& message : std::ranges::subrange(first_turn, conversation.messages.end())) {
    if (auto* system = std::get_if<SystemMessage>(&message)) {
      Content content;  // V4 has no images
      content.text = "<system-reminder>\n" + system->content.text + "\n</system-reminder>";
      message = UserMessage{std::move(content)};
    }
  }
}

bool is_false(const json::Value* value) { return value != nullptr && value->as_bool() != nullptr && !*value->as_bool(); }
bool is_true(const json::Value* value) { return value != nullptr && value->as_bool() != nullptr && *value->as_bool(); }

}  // namespace

bool asks_for_single_calls(Api api, const json::Value& body) {
  if (api != Api::messages) {
    return is_false(body.find("parallel_tool_calls"));
  }
  const json::Value* choice = body.find("tool_choice");
  return choice != nullptr && is_true(choice->find("disable_parallel_tool_use"));
}

Verdict improve(ConvertedRequest& request) {
  if (Verdict verdict = check_call_names(request.conversation); !verdict) {
    return verdict;
  }
  if (request.conversation.thinking_mode == ThinkingMode::on) {
    keep_running_reasoning(request.conversation);
  }
  if (request.version == ModelVersion::v4) {
    turn_late_systems_into_reminders(request.conversation);
  }
  return {};
}

}  // namespace deepinfer::recipe
