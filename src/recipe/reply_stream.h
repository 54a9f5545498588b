// The reply to one request: backend chunks in, events of the request's API out, and the complete response at the end.
// One object per request, one thread. Not HTTP: the caller frames events as SSE and appends Chat's `data: [DONE]`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "recipe/call_ids.h"
#include "recipe/chat_chunks.h"
#include "recipe/convert.h"
#include "recipe/messages_events.h"
#include "recipe/parsing_options.h"
#include "recipe/reply_events.h"
#include "recipe/reply_parser.h"
#include "recipe/responses_events.h"
#include "recipe/token_segments.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::recipe {

struct ReplyStreamOptions {
  Api api = Api::chat;
  std::string id;     ///< of the response
  std::string model;  ///< reported name
  ReplyOpening opening = ReplyOpening::reasoning;
  ParsingOptions parsing;
  SpecialTokens special_tokens;
  UsageMember usage_member = UsageMember::absent;   ///< Chat
  std::optional<std::string> signature;             ///< Messages: of thinking blocks; absent: the id
  ResponsesDetails responses;                       ///< Responses: settings to report, kinds of the tools
  const tokenizer::Tokenizer* tokenizer = nullptr;  ///< must outlive the stream; null: no token chunks, no count of reasoning tokens
  RandomBits random_bits;                           ///< for call ids; must be set
  std::function<std::int64_t()> unix_time;          ///< seconds, for created and completed times; must be set
};

/// The options that a converted request settles. The caller sets `id`, `tokenizer`, `random_bits` and `unix_time`.
[[nodiscard]] ReplyStreamOptions reply_stream_options(Api api, const ConvertedRequest& request);

/// What is known when generation begins.
struct ReadyInfo {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  ///< of the prompt, served from the prefix cache
  std::optional<std::string> system_fingerprint;
};

/// Every call returns the events it caused; they live until the next call. Once finished() a call does nothing.
class ReplyStream {
 public:
  explicit ReplyStream(ReplyStreamOptions options);

  /// Prompt usage and the first events. Ignored after the first chunk of any kind.
  [[nodiscard]] std::span<const Event> ready(const ReadyInfo& info);
  /// Text of `num_tokens` generated tokens. Markers count wherever they are spelled.
  [[nodiscard]] std::span<const Event> text(std::string_view text, std::uint64_t num_tokens);
  /// Generated ids, without the stop token. Markers count only as their control ids. Errors end the stream: no tokenizer, or
  /// `logprobs` (one per id; null for none) of another length.
  [[nodiscard]] Result<std::span<const Event>> tokens(std::span<const TokenId> ids, const std::vector<TokenLogprob>* logprobs = nullptr);
  /// What the usage says of a drafter's proposals; before finish(). Not part of the official API.
  void count_drafts(std::uint64_t verified, std::uint64_t accepted) {
    usage_.verified_drafts = verified;
    usage_.accepted_drafts = accepted;
  }
  /// The end of the reply.
  [[nodiscard]] std::span<const Event> finish(BackendFinish reason);

  /// The last event was given: finish() was called or a stop sequence was found.
  [[nodiscard]] bool finished() const { return parser_.finished(); }
  /// The complete response (JSON) of everything so far.
  [[nodiscard]] std::string response() const;
  /// What has been said so far, for callers that keep it.
  struct Turn {
    std::string content;
    std::string reasoning;  ///< only with a tokenizer
    std::vector<ReplyCall> calls;
  };
  [[nodiscard]] const Turn& turn() const { return turn_; }
  /// Token counts so far; reasoning tokens only when finished.
  [[nodiscard]] const Usage& usage() const { return usage_; }

 private:
  using Generator = std::variant<ChatChunks, MessagesEvents, ResponsesEvents>;
  struct SourceLogprobs {
    std::uint64_t source = 0;
    std::string json;
  };

  [[nodiscard]] static Generator make_generator(const ReplyStreamOptions& options);
  void start();
  void feed(const Segment& segment, std::string_view logprobs);
  void handle(std::span<const Delta> deltas);
  void handle(const ReasoningText& delta);
  void handle(const ContentText& delta);
  void handle(const CallStart& delta);
  void handle(const CallArguments& delta);
  void handle(const Finished& end);
  [[nodiscard]] std::string_view logprobs_of(std::uint64_t source) const;

  ReplyStreamOptions options_;
  ReplyParser parser_;
  Generator generator_;
  std::optional<TokenSegments> segments_;

  bool started_ = false;
  std::optional<std::string> fingerprint_;
  Usage usage_;
  bool has_reasoning_ = false;
  Turn turn_;
  std::uint64_t next_source_ = 1;
  std::deque<SourceLogprobs> logprobs_;  // of segments that deltas to come may name, oldest first
  EventBuffer events_;
};

}  // namespace deepinfer::recipe
