// The settings of run and chat as flags, and the Chat Completions body they stand for. What a flag does not set is left to the API.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace CLI {
class App;
}

namespace deepinfer::apps {

struct ChatFlags {
  std::string system;
  std::filesystem::path tools_file;
  std::filesystem::path response_format_file;
  std::filesystem::path json_schema_file;  ///< at most one of these four
  std::string regex;
  std::filesystem::path grammar_file;
  std::string thinking;  ///< "on", "off" or empty
  std::string effort;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<double> repetition_penalty;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::int64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool strict_official = false;  ///< of the model that answers (ServedSettings): no setting of the request
};

void add_chat_flags(CLI::App& command, ChatFlags& flags);

enum class ReplyForm { stream, whole };

/// A body without messages: model, stream and what the flags say. Errors: those of reading the files.
[[nodiscard]] Result<json::Object> chat_settings(const ChatFlags& flags, const std::string& model, ReplyForm form);

/// `settings` with `messages`, as the text of a request body.
[[nodiscard]] std::string chat_body(json::Object settings, json::Array messages);

/// {"role": ROLE, "content": TEXT}
[[nodiscard]] json::Value chat_message(std::string_view role, std::string_view content);

/// A message of the user with the images in `files`, WebP, PNG, JPEG or GIF. Errors: those of read_file; invalid_argument for other files.
[[nodiscard]] Result<json::Value> user_message(std::string_view text, std::span<const std::filesystem::path> files);

/// A list of messages, or an object with a member "messages". Errors: invalid_argument naming `origin`.
[[nodiscard]] Result<json::Array> messages_of(json::Value value, const std::string& origin);

}  // namespace deepinfer::apps
