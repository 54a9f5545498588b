// Messages: the events of a stream and the complete message (spec/recipe.md section 3.6).
// Not parsing, counting or timing: reply_stream.h feeds it. Log probabilities have no place in this API.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/delta.h"
#include "recipe/reply_events.h"

namespace deepinfer::recipe {

class MessagesEvents {
 public:
  /// `signature` closes thinking blocks.
  MessagesEvents(ReplyIdentity identity, ReplyOpening opening, std::string signature);

  /// Before everything else, once. Messages reports no fingerprint.
  void start(const Usage& prompt, const std::optional<std::string>& system_fingerprint, EventBuffer& out);

  void add(const ReasoningText& delta, std::string_view logprobs, EventBuffer& out);
  void add(const ContentText& delta, std::string_view logprobs, EventBuffer& out);
  void add(const CallStart& delta, std::string_view call_id, EventBuffer& out);
  void add(const CallArguments& delta, EventBuffer& out);
  void finish(const Finished& end, const Usage& usage, EventBuffer& out);

  /// The `message` object of everything so far.
  [[nodiscard]] std::string response() const;

 private:
  enum class BlockKind { thinking, text, tool_use };
  struct Block {
    BlockKind kind = BlockKind::text;
    bool open = true;
    std::string text;  ///< of a tool_use block: its arguments
    std::string call_id;
    std::string name;
  };

  void open_block(Block block, EventBuffer& out);
  void close_block(EventBuffer& out);
  void add_to_block(std::string_view text, EventBuffer& out);
  [[nodiscard]] bool is_open(BlockKind kind) const;
  [[nodiscard]] std::string& begin_delta(EventBuffer& out, std::string_view type_and_key) const;
  void append_head(std::string& out) const;
  void append_block(std::string& out, const Block& block) const;

  ReplyIdentity identity_;
  ReplyOpening opening_;
  std::string signature_;
  std::vector<Block> blocks_;  // at most the last one is open
  Usage usage_;
  std::string stop_reason_ = "null";  // as JSON
  std::string stop_sequence_ = "null";
};

}  // namespace deepinfer::recipe
