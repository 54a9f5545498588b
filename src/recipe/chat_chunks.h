// Chat Completions: the chunks of a stream and the complete response (spec/recipe.md section 3.5).
// Not parsing, counting or timing: reply_stream.h feeds it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/delta.h"
#include "recipe/reply_events.h"

namespace deepinfer::recipe {

/// Whether a chunk that is not the last one has `"usage":null`.
enum class UsageMember { absent, null };

class ChatChunks {
 public:
  ChatChunks(ReplyIdentity identity, ReplyOpening opening, UsageMember usage_member);

  /// Before everything else, once. Chat reports usage at the end only.
  void start(const Usage& prompt, const std::optional<std::string>& system_fingerprint, EventBuffer& out);

  // `logprobs`: JSON array of the ids behind the text, empty for none.
  void add(const ReasoningText& delta, std::string_view logprobs, EventBuffer& out);
  void add(const ContentText& delta, std::string_view logprobs, EventBuffer& out);
  void add(const CallStart& delta, std::string_view call_id, EventBuffer& out);
  void add(const CallArguments& delta, EventBuffer& out);
  void finish(const Finished& end, const Usage& usage, EventBuffer& out);

  /// The `chat.completion` object of everything so far; without `usage` and finish reason until finish().
  [[nodiscard]] std::string response() const;

 private:
  [[nodiscard]] std::string& begin_chunk(EventBuffer& out) const;
  void end_chunk(std::string& out) const;
  void append_logprobs_member(std::string& out, std::string_view key, std::string_view logprobs) const;
  void append_message(std::string& out) const;

  ReplyIdentity identity_;
  ReplyOpening opening_;
  bool thinking_;
  UsageMember usage_member_;

  bool started_ = false;
  std::string fingerprint_ = "null";  // as JSON
  std::string head_;                  // of every chunk, up to the delta
  std::string content_;
  std::string reasoning_;
  bool has_content_;              // otherwise the content is null
  bool has_reasoning_;            // otherwise there is no reasoning member
  std::string content_logprobs_;  // JSON arrays, or empty
  std::string reasoning_logprobs_;
  std::vector<ReplyCall> calls_;
  std::string finish_reason_;  // empty: not finished
  Usage usage_;
};

}  // namespace deepinfer::recipe
