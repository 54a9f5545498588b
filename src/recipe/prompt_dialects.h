// The two prompt formats behind render(), and what they share. Internal to the room.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/prompt_builder.h"
#include "recipe/special_tokens.h"

namespace deepinfer::recipe {

[[nodiscard]] Prompt render_v4(const Conversation& conversation, const SpecialTokens& tokens);
[[nodiscard]] Prompt render_v41(const Conversation& conversation, const SpecialTokens& tokens);

/// Messages in the order in which they are rendered; they belong to the conversation.
using MessageOrder = std::vector<const Message*>;

/// The conversation's tools, none when the choice is none.
[[nodiscard]] std::span<const Tool> active_tools(const Conversation& conversation);

/// A generous guess of the prompt's size, so that its text is allocated once.
[[nodiscard]] std::size_t expected_prompt_bytes(const Conversation& conversation);

/// Position of `id` among the calls; `unknown` when it is none of theirs.
[[nodiscard]] std::size_t call_position(const std::vector<ToolCall>& calls, const std::string& id, std::size_t unknown);

}  // namespace deepinfer::recipe
