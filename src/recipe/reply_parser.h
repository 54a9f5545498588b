// From the text of a reply, in any pieces, to deltas: reasoning, content, calls, end (spec/recipe.md sections 3.1 and 3.2).
// Knows neither tokens (token_segments.h) nor JSON events (chat_chunks.h and its siblings).
//
// A piece whose end could still belong to a literal waits as a whole; everything else is passed on in the pieces it came in.
// Only what waits is copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/delta.h"
#include "recipe/parsing_options.h"
#include "recipe/reply_stages.h"
#include "recipe/special_tokens.h"

namespace deepinfer::recipe {

/// One piece of a reply: the text of a text chunk, of a run of ordinary ids, or of one control id.
struct Segment {
  std::string_view text;
  SegmentKind kind = SegmentKind::text;
  std::uint64_t source = 0;  ///< name of the segment, ascending; comes back in the deltas
};

class ReplyParser {
 public:
  ReplyParser(const ParsingOptions& options, const SpecialTokens& tokens);

  /// The deltas that are now certain. They and their texts live until the next call. Nothing after the reply is finished.
  [[nodiscard]] std::span<const Delta> feed(const Segment& segment);
  /// The end of the reply: what waits, then Finished. Nothing when the reply is finished already.
  [[nodiscard]] std::span<const Delta> finish(BackendFinish reason);

  /// Finished was given.
  [[nodiscard]] bool finished() const { return finished_; }
  /// The oldest segment that deltas to come may name; `next` when none waits.
  [[nodiscard]] std::uint64_t oldest_source(std::uint64_t next) const;

 private:
  struct Waiting {
    std::string text;
    std::uint64_t source = 0;
  };
  /// A literal that ended in the segment being fed.
  struct Found {
    const Rule* rule = nullptr;
    std::size_t end = 0;     ///< offset after it in the segment
    std::size_t length = 0;  ///< its bytes with the newlines before it
    std::size_t before = 0;  ///< bytes of the stage before it
  };
  /// What a literal adds to the reply, not yet passed on.
  struct Held {
    Effect effect = Effect::nothing;
    char bracket = 0;
    std::uint64_t source = 0;
  };

  void begin_call();
  [[nodiscard]] bool is_marker(std::string_view control_token) const;
  [[nodiscard]] bool follows_json() const { return is_improved_ && stage_ == Stage::json; }
  [[nodiscard]] bool ends_json(char byte);
  void release_at_end();
  [[nodiscard]] std::optional<Found> find_literal(const Segment& segment, std::size_t begin);
  [[nodiscard]] std::optional<Found> find_control(const Segment& segment, std::size_t begin);
  [[nodiscard]] std::optional<Found> advance(char byte, SegmentKind kind);
  void leave_stage(const Found& found, const Segment& segment, std::size_t begin);
  void enter_stage(const Rule& rule);
  void settle(std::string_view rest, std::uint64_t source);
  void take_empty(std::uint64_t source);
  void wait(std::string_view text, std::uint64_t source);

  [[nodiscard]] std::size_t withheld() const;
  void release_front();
  void release_held();
  void emit_text(std::string_view text, std::uint64_t source);
  void emit_held(const Held& held);
  void emit_escaped(std::string_view text);
  void emit_raw_value();
  void start_call();
  void emit_arguments(std::string_view text) {
    if (!skips_call_) {
      deltas_.emplace_back(CallArguments{.index = num_calls_ - 1, .text = text});
    }
  }
  [[nodiscard]] std::string& scratch();

  [[nodiscard]] const StageRules& rules() const { return stages_[static_cast<std::size_t>(stage_)]; }

  bool parse_json_output_;
  bool is_improved_;
  std::optional<std::int32_t> max_calls_;
  std::array<std::string, 2> markers_;  // control tokens that mean something in a reply
  Rule json_end_;                       // improved: what a bracket that closes the JSON value does
  std::array<StageRules, kNumStages> stages_;

  Stage stage_ = Stage::content;
  std::vector<Match> matches_;   // one per rule of the stage
  std::size_t stage_bytes_ = 0;  // bytes of the stage so far
  bool at_start_ = true;         // leading newlines are dropped and nothing else has come
  bool quiet_ = true;            // no literal has begun, and no newlines before one
  bool is_first_stage_ = true;   // no literal has been found yet

  std::deque<Waiting> waiting_;  // slots are reused; [first_waiting_, num_waiting_) wait, oldest first
  std::size_t first_waiting_ = 0;
  std::size_t num_waiting_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::optional<Held> held_;  // stands before everything that waits

  std::string name_;  // of the call being read
  std::int32_t num_calls_ = 0;
  bool has_parameters_ = false;
  bool value_is_string_ = false;

  // Improved only.
  bool skips_call_ = false;        // its name cannot be called
  std::string raw_value_;          // a value that says it is JSON, until it is known whether it is
  std::string prose_;              // JSON mode: text before the value, given only when none comes
  std::size_t json_depth_ = 0;     // open brackets of the value
  bool json_in_string_ = false;
  bool json_escaped_ = false;
  bool finished_ = false;

  std::vector<Delta> deltas_;        // of this call
  std::deque<std::string> scratch_;  // texts of this call that are not views of the input; reused
  std::size_t num_scratch_ = 0;
};

}  // namespace deepinfer::recipe
