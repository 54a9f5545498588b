// Tool turns as the model wrote them, by the ids of their calls: when a client sends a call again in its own spelling, the prompt
// repeats the ids that were generated, and everything cached for them stays valid. Bounded; the longest unused turn goes first.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "recipe/conversation.h"
#include "recipe/convert.h"
#include "recipe/reply_stream.h"

namespace deepinfer::server {

struct TurnStoreLimits {
  std::size_t max_turns = 10'000;
  std::size_t max_bytes = std::size_t{64} << 20;
};

/// Any thread.
class TurnStore {
 public:
  explicit TurnStore(TurnStoreLimits limits = {}) : limits_(limits) {}

  /// Keeps a reply that ended with calls. `owner`: who may have it restored.
  void keep(std::string_view owner, const recipe::ReplyStream::Turn& said, recipe::GeneratedTurn generated);

  /// Sets AssistantMessage::generated where a message is a kept turn: the same calls in the same order with equal names and arguments
  /// (as JSON values), the same content, and the same reasoning or none.
  void restore(std::string_view owner, recipe::Conversation& conversation);

  [[nodiscard]] std::size_t num_turns() const;
  [[nodiscard]] std::size_t num_bytes() const;

 private:
  struct Kept {
    std::string owner;
    recipe::ReplyStream::Turn said;
    std::shared_ptr<const recipe::GeneratedTurn> generated;
    std::size_t bytes = 0;
  };
  using Turns = std::list<Kept>;

  void forget_oldest();

  const TurnStoreLimits limits_;
  mutable std::mutex mutex_;
  Turns turns_;  // most recently used first
  std::unordered_map<std::string, Turns::iterator> by_first_call_;
  std::size_t num_bytes_ = 0;
};

}  // namespace deepinfer::server
