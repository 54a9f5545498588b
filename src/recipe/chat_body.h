// The Chat Completions request as its JSON spells it: types and required members, no meaning. Meaning: chat_convert.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "recipe/body_reader.h"
#include "recipe/conversation.h"
#include "recipe/request_settings.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

struct ChatTextPart {
  std::string text;
};
struct ChatImagePart {
  std::string url;
  ImageDetail detail = ImageDetail::high;
};
struct ChatFilePart {
  std::optional<std::string> file_id;
  std::optional<std::string> file_data;
  std::optional<std::string> filename;
};
using ChatPart = std::variant<std::monostate, ChatTextPart, ChatImagePart, ChatFilePart>;
using ChatContent = std::vector<ChatPart>;  ///< a string is one text part

enum class ChatRole { system, user, assistant, tool, latest_reminder };

struct ChatMessage {
  ChatRole role = ChatRole::user;
  std::optional<ChatContent> content;               ///< absent only in assistant messages
  std::optional<std::string> reasoning_content;     ///< assistant
  std::optional<std::vector<ToolCall>> tool_calls;  ///< assistant
  bool prefix = false;                              ///< assistant
  std::string tool_call_id;                         ///< tool
};

struct ChatFormat {
  enum class Kind { text, json_object, json_schema, regex };
  Kind kind = Kind::text;
  json::Value schema;
  bool strict = false;
  std::string regex;
};

struct ChatBody {
  std::string model;
  std::vector<ChatMessage> messages;
  std::optional<bool> stream;
  std::optional<std::optional<bool>> include_usage;  ///< outer: stream_options was given
  std::optional<ThinkingMode> thinking;
  std::optional<RequestedEffort> reasoning_effort;
  std::optional<std::vector<ToolDeclaration>> tools;
  std::optional<RequestedToolChoice> tool_choice;
  std::optional<ChatFormat> response_format;
  std::optional<std::uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::uint8_t> n;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<bool> logprobs;
  std::optional<std::uint8_t> top_logprobs;
  std::optional<std::uint64_t> seed;
  std::optional<StopSetting> stop;
};

[[nodiscard]] ChatBody read_chat_body(Reader reader);

}  // namespace deepinfer::recipe
