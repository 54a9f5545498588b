// What the three event generators share: events, the buffer they are written to, usage, and who replies.
// Not the events of one API: chat_chunks.h, messages_events.h, responses_events.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::recipe {

/// One event of a reply stream. Views live until the next call of the stream that gave them.
struct Event {
  std::string_view name;  ///< SSE event name; empty for Chat, whose events have none
  std::string_view data;  ///< JSON text
};

/// Events being written, all in one text.
class EventBuffer {
 public:
  void clear();
  /// Begins an event called `name` (a literal); its JSON text is what is appended until the next begin().
  [[nodiscard]] std::string& begin(std::string_view name);
  /// All events since clear().
  [[nodiscard]] std::span<const Event> events();

 private:
  struct Begun {
    std::string_view name;
    std::size_t offset = 0;
  };
  std::string text_;
  std::vector<Begun> begun_;
  std::vector<Event> events_;
};

/// Token counts of a request.
struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  ///< of the prompt, served from the prefix cache
  std::uint64_t completion_tokens = 0;
  std::optional<std::uint64_t> reasoning_tokens;  ///< of the completion; absent outside thinking mode and without a tokenizer
  std::uint64_t verified_drafts = 0;              ///< proposals of a drafter that were checked; 0: nothing is said of drafts
  std::uint64_t accepted_drafts = 0;              ///< of these, tokens of the completion now
};

/// Who replies: members that every event or response carries.
struct ReplyIdentity {
  std::string id;
  std::string model;
  std::int64_t created = 0;  ///< Unix time, seconds
};

/// What a reply announces before its text is known.
enum class ReplyOpening {
  plain,             ///< thinking is off
  reasoning,         ///< thinking is on
  continues_content  ///< thinking is on, and the reply continues content that the request began
};

/// A call of the reply as far as it has been read.
struct ReplyCall {
  std::string id;
  std::string name;
  std::string arguments;  ///< JSON text, if the model wrote JSON
};

void append_integer(std::string& out, std::uint64_t value);
void append_integer(std::string& out, std::int64_t value);
/// Appends `items` (a JSON array) to `list` (a JSON array, or empty for none so far).
void append_items(std::string& list, std::string_view items);

}  // namespace deepinfer::recipe
