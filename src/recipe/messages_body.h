// The Messages request as its JSON spells it: types and required members, no meaning. Meaning: messages_convert.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "recipe/body_reader.h"
#include "recipe/request_settings.h"
#include "recipe/tools.h"

namespace deepinfer::recipe {

struct MessagesText {
  std::string text;
};
struct MessagesImage {
  enum class Source { base64, url, file };
  Source source = Source::url;
  std::string data;        ///< base64 text or link
  std::string media_type;  ///< of base64, "image/jpeg" for both spellings
};
struct MessagesDocument {
  std::optional<std::string> media_type;
};
struct MessagesThinkingBlock {
  std::string thinking;
};
struct MessagesToolUse {
  std::string id;
  std::string name;
  json::Value input;
};
/// A tool named inside a tool result.
struct MessagesToolReference {
  std::string name;
};
using MessagesResultBlock = std::variant<MessagesText, MessagesImage, MessagesDocument, MessagesToolReference>;
struct MessagesToolResult {
  std::string tool_use_id;
  std::vector<MessagesResultBlock> content;
};
struct MessagesServerToolUse {};
struct MessagesWebSearchResult {};
struct MessagesToolAddition {
  std::string name;
};
using MessagesBlock = std::variant<MessagesText, MessagesImage, MessagesDocument, MessagesThinkingBlock, MessagesToolUse,
                                   MessagesToolResult, MessagesServerToolUse, MessagesWebSearchResult, MessagesToolAddition>;

enum class MessagesRole { user, assistant, system };

struct MessagesMessage {
  MessagesRole role = MessagesRole::user;
  std::vector<MessagesBlock> content;  ///< a string is one text block
};

/// A tool with a `type` of its own, run by the server.
struct MessagesServerTool {
  std::string type;
  std::optional<std::string> name;
};
using MessagesTool = std::variant<ToolDeclaration, MessagesServerTool>;

struct MessagesSystem {
  std::vector<std::string> blocks;
  bool is_list = false;  ///< only the first block of a list may be a billing header
};

struct MessagesBody {
  std::string model;
  std::vector<MessagesMessage> messages;
  std::optional<MessagesSystem> system;
  std::optional<bool> stream;
  std::optional<std::vector<MessagesTool>> tools;
  std::optional<RequestedToolChoice> tool_choice;
  std::optional<ThinkingMode> thinking;
  std::optional<RequestedEffort> effort;
  std::optional<std::uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::vector<std::string>> stop_sequences;
};

[[nodiscard]] MessagesBody read_messages_body(Reader reader);

}  // namespace deepinfer::recipe
