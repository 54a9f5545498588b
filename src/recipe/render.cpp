#include "recipe/render.h"

#include <algorithm>

#include "recipe/prompt_dialects.h"

namespace deepinfer::recipe {

namespace {

std::size_t content_bytes(const Message& message) {
  return std::visit(
      [](const auto& role) {
        if constexpr (requires { role.content.text; }) {
          return role.content.text.size();
        } else {
          return role.content.size();
        }
      },
      message);
}

std::size_t assistant_bytes(const AssistantMessage& message) {
  constexpr std::size_t kMarkupBytes = 200;  // tags around one call with a few arguments
  std::size_t bytes = message.reasoning_content ? message.reasoning_content->size() : 0;
  if (message.tool_calls) {
    for (const ToolCall& call : *message.tool_calls) {
      bytes += kMarkupBytes + call.name.size() + 2 * call.arguments.size();
    }
  }
  return bytes;
}

}  // namespace

Prompt render(const Conversation& conversation, ModelVersion version, const SpecialTokens& special_tokens) {
  return version == ModelVersion::v4 ? render_v4(conversation, special_tokens) : render_v41(conversation, special_tokens);
}

std::span<const Tool> active_tools(const Conversation& conversation) {
  return conversation.tool_choice == ToolChoice::none ? std::span<const Tool>() : conversation.tools;
}

std::size_t expected_prompt_bytes(const Conversation& conversation) {
  constexpr std::size_t kFrameBytes = 2048;   // header, tools text without schemas
  constexpr std::size_t kTurnBytes = 64;      // role and thinking tokens
  constexpr std::size_t kSchemaBytes = 1024;  // a usual tool schema
  std::size_t bytes = kFrameBytes + kSchemaBytes * conversation.tools.size();
  for (const Message& message : conversation.messages) {
    bytes += kTurnBytes + content_bytes(message);
    if (const auto* assistant = std::get_if<AssistantMessage>(&message)) {
      bytes += assistant_bytes(*assistant);
    }
  }
  return bytes;
}

std::size_t call_position(const std::vector<ToolCall>& calls, const std::string& id, std::size_t unknown) {
  const auto found = std::ranges::find(calls, id, &ToolCall::id);
  return found == calls.end() ? unknown : static_cast<std::size_t>(found - calls.begin());
}

}  // namespace deepinfer::recipe
