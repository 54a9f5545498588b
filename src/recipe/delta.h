// What the reply parser says about a reply: plain values, in the order of the reply. Not JSON: that is chat_chunks.h and its siblings.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace deepinfer::recipe {

/// What the backend says about the end of a reply. `end_of_input`: it said nothing, the input just ended.
enum class BackendFinish { stop, length, content_filter, end_of_input };

/// Why a reply ended. `tool_calls`: the backend stopped and at least one call name was complete.
enum class FinishReason { stop, tool_calls, length, content_filter, stop_sequence, end_of_input };

// Texts are views that live until the next call of the parser that gave them. `source` names the segment they come from.

struct ReasoningText {
  std::string_view text;
  std::uint64_t source = 0;

  friend bool operator==(const ReasoningText&, const ReasoningText&) = default;
};

struct ContentText {
  std::string_view text;
  std::uint64_t source = 0;

  friend bool operator==(const ContentText&, const ContentText&) = default;
};

/// A call whose name is complete. `index` counts the calls of the reply from 0.
struct CallStart {
  std::int32_t index = 0;
  std::string_view name;

  friend bool operator==(const CallStart&, const CallStart&) = default;
};

/// A piece of the JSON text of the arguments of call `index`, the last one that started.
struct CallArguments {
  std::int32_t index = 0;
  std::string_view text;

  friend bool operator==(const CallArguments&, const CallArguments&) = default;
};

/// The end; nothing follows.
struct Finished {
  FinishReason reason = FinishReason::stop;
  std::string_view stop_sequence;  ///< the text that was found, for FinishReason::stop_sequence

  friend bool operator==(const Finished&, const Finished&) = default;
};

using Delta = std::variant<ReasoningText, ContentText, CallStart, CallArguments, Finished>;

}  // namespace deepinfer::recipe
