// Responses: the events of a stream and the complete response (spec/recipe.md section 3.7).
// Not parsing, counting or timing: reply_stream.h feeds it. The items themselves are responses_items.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/convert.h"
#include "recipe/delta.h"
#include "recipe/reply_events.h"
#include "recipe/responses_items.h"

namespace deepinfer::recipe {

class ResponsesEvents {
 public:
  /// `details`: settings to report and kinds of the tools. `unix_time` gives the time of completion, seconds.
  ResponsesEvents(ReplyIdentity identity, ResponsesDetails details, std::function<std::int64_t()> unix_time);

  /// Before everything else, once. Responses reports no fingerprint, and usage at the end only.
  void start(const Usage& prompt, const std::optional<std::string>& system_fingerprint, EventBuffer& out);

  // `logprobs`: JSON array of the ids behind the text, empty for none.
  void add(const ReasoningText& delta, std::string_view logprobs, EventBuffer& out);
  void add(const ContentText& delta, std::string_view logprobs, EventBuffer& out);
  void add(const CallStart& delta, std::string_view call_id, EventBuffer& out);
  void add(const CallArguments& delta, EventBuffer& out);
  void finish(const Finished& end, const Usage& usage, EventBuffer& out);

  /// The `response` object of everything so far.
  [[nodiscard]] std::string response() const;

 private:
  void report_settings(const ResponsesEcho& echo);
  [[nodiscard]] bool is_open(ItemKind kind) const;
  void open_item(ResponsesItem item, EventBuffer& out);
  void close_item(ItemStatus status, EventBuffer& out);
  void close_content(EventBuffer& out);
  void close_arguments(EventBuffer& out);
  void add_content_delta(std::string_view text, std::string_view logprobs, EventBuffer& out);
  void add_call_delta(std::string_view text, EventBuffer& out);

  void add_item_event(std::string_view name, EventBuffer& out);
  void add_part_event(std::string_view name, EventBuffer& out);
  void add_response_event(std::string_view name, EventBuffer& out);
  void append_item_id(std::string& event) const;
  void append_output_index(std::string& event) const;
  void append_sequence_number(std::string& event);
  void append_response(std::string& out) const;

  ReplyIdentity identity_;
  ResponsesDetails details_;
  std::function<std::int64_t()> unix_time_;

  // Settings as JSON members, in the places where the response has them.
  std::string settings_before_output_;
  std::string settings_before_usage_;
  std::string user_;

  std::vector<ResponsesItem> items_;  // the last one is open until another begins or the reply ends
  ItemStatus status_ = ItemStatus::in_progress;
  std::string incomplete_reason_;
  std::optional<std::int64_t> completed_at_;
  std::optional<Usage> usage_;
  std::uint64_t sequence_number_ = 0;
};

}  // namespace deepinfer::recipe
