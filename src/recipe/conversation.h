// A conversation as the prompt renderer reads it: what all three APIs are converted into.
// Plain values; conversion (convert.h) establishes what a direct caller must respect itself.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace deepinfer::recipe {

/// Prompt format of a model: V4 (DeepSeek-V4-Pro) or V4.1 (DeepSeek-V4.1-Flash).
enum class ModelVersion { v4, v4_1 };

enum class ThinkingMode { off, on };
enum class ToolChoice { automatic, none, required };
enum class ReasoningEffort { low, high, xhigh, max };

enum class ImageDetail { low, high, original, automatic };
enum class ImageKind { data_url, url, bytes };

/// One image of a request, not yet fetched or decoded.
struct ImageSource {
  ImageKind kind = ImageKind::url;
  std::string data;  ///< the data URL, the link, or the encoded bytes, by kind
  ImageDetail detail = ImageDetail::high;
  std::string path;  ///< place in the request for error messages (".messages[2]"); may be empty

  friend bool operator==(const ImageSource&, const ImageSource&) = default;
};

/// Bytes [begin, end) of a text that hold the spelling of one control token.
struct SpecialRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  friend bool operator==(const SpecialRange&, const SpecialRange&) = default;
};

/// Text with images. The n-th placeholder stands for the n-th image; an image token spelled anywhere else is plain text.
/// A direct caller may have more images than placeholders.
struct Content {
  std::string text;
  std::vector<ImageSource> images;
  std::vector<SpecialRange> placeholders;  ///< ascending, disjoint, at most images.size()

  friend bool operator==(const Content&, const Content&) = default;
};

/// A function the model may call.
struct Tool {
  std::string name;
  std::optional<std::string> description;
  json::Value parameters;  ///< JSON Schema of the arguments
  std::optional<bool> strict;
  bool defer_loading = false;  ///< not shown up front; a later system message may bring it

  friend bool operator==(const Tool&, const Tool&) = default;
};

/// A call of an earlier assistant turn. `arguments` is the caller's text, a JSON object if all is well.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

struct SystemMessage {
  Content content;
  std::optional<std::vector<Tool>> tools;  ///< tools that become known here (V4.1 only)

  friend bool operator==(const SystemMessage&, const SystemMessage&) = default;
};

struct UserMessage {
  Content content;

  friend bool operator==(const UserMessage&, const UserMessage&) = default;
};

/// A turn with calls as the model wrote it: everything between the think token that opened it and the end token.
struct GeneratedTurn {
  ThinkingMode thinking_mode = ThinkingMode::on;  ///< of the reply: which think token opened it
  std::string text;
  std::vector<TokenId> ids;
};

struct AssistantMessage {
  std::string content;
  std::optional<std::string> reasoning_content;
  std::optional<std::vector<ToolCall>> tool_calls;
  bool prefix = false;           ///< the reply continues this message
  bool keeps_reasoning = false;  ///< reasoning is rendered in thinking mode even without tools
  /// V4.1: rendered, id by id, instead of reasoning, content and calls when the turn opens with the same think token again. Whoever
  /// sets it knows that the client sent this turn back unchanged.
  std::shared_ptr<const GeneratedTurn> generated = nullptr;

  friend bool operator==(const AssistantMessage&, const AssistantMessage&) = default;
};

struct ToolMessage {
  Content content;
  std::optional<std::string> tool_call_id;

  friend bool operator==(const ToolMessage&, const ToolMessage&) = default;
};

struct LatestReminderMessage {
  std::string content;

  friend bool operator==(const LatestReminderMessage&, const LatestReminderMessage&) = default;
};

using Message = std::variant<SystemMessage, UserMessage, AssistantMessage, ToolMessage, LatestReminderMessage>;

struct TextFormat {
  friend bool operator==(const TextFormat&, const TextFormat&) = default;
};
struct JsonObjectFormat {
  friend bool operator==(const JsonObjectFormat&, const JsonObjectFormat&) = default;
};
struct JsonSchemaFormat {
  json::Value schema;

  friend bool operator==(const JsonSchemaFormat&, const JsonSchemaFormat&) = default;
};
struct RegexFormat {
  std::string pattern;

  friend bool operator==(const RegexFormat&, const RegexFormat&) = default;
};
using ResponseFormat = std::variant<TextFormat, JsonObjectFormat, JsonSchemaFormat, RegexFormat>;

struct Conversation {
  std::vector<Message> messages;
  ThinkingMode thinking_mode = ThinkingMode::on;
  std::vector<Tool> tools;
  ToolChoice tool_choice = ToolChoice::automatic;
  std::optional<ReasoningEffort> reasoning_effort;
  ResponseFormat response_format;

  friend bool operator==(const Conversation&, const Conversation&) = default;
};

}  // namespace deepinfer::recipe
