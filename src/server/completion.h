// One choice of one API request, from the prepared request to the events of its reply: submit, parse. No HTTP: serve, run, chat and
// batch all go through here, so that the same request has the same text everywhere. Several choices: reply.h.
// An object belongs to one thread at a time; the engine thread only reaches its inbox.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "engine/request.h"
#include "recipe/convert.h"
#include "recipe/reply_stream.h"
#include "server/engine_stream.h"
#include "server/prepared_request.h"
#include "server/served_model.h"

namespace deepinfer::server {

/// Counts and times of a request so far.
struct CompletionStatistics {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t reasoning_tokens = 0;
  Duration to_first_token{};  ///< from start()
  Duration to_last_token{};
  std::string_view finish = "unfinished";  ///< "stop", "length", "cancelled", "failed"
};

class Completion {
 public:
  using EventSink = std::function<void(const recipe::Event&)>;
  /// preparing: of a Reply whose constraint is being compiled; a failure now is a refusal, nothing of the reply exists.
  enum class State { preparing, running, finished, failed };

  /// Submits choice `choice` (0 …) of `request`, whose seed is the request's plus `choice`.
  /// Refused: a full queue (429), what the engine refuses.
  static std::expected<std::unique_ptr<Completion>, Refusal> start(std::shared_ptr<const ServedModel> model, const PreparedRequest& request,
                                                                   std::int32_t choice, Wake wake);
  /// prepare(), its constraint compiled on this thread, and start() of choice 0.
  static std::expected<std::unique_ptr<Completion>, Refusal> start(std::shared_ptr<const ServedModel> model,
                                                                   const CompletionRequest& request, Wake wake);
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  /// Cancels what is unfinished; `wake` is not called any more once this returns.
  ~Completion();

  /// Parses what the engine has produced since the last call and gives each event of the reply to `sink`.
  State advance(const EventSink& sink);
  [[nodiscard]] State state() const { return state_; }
  /// Ends generation within one step; the reply stays as it is. The state becomes failed unless it was finished.
  void cancel();
  /// The complete response body (JSON); of a cancelled request what there is.
  [[nodiscard]] std::string response() const { return reply_.response(); }
  /// Why the state is failed, in the form of the API.
  [[nodiscard]] const Refusal& failure() const { return failure_; }
  [[nodiscard]] CompletionStatistics statistics() const;
  /// What was said and generated so far, for the TurnStore.
  [[nodiscard]] const recipe::ReplyStream::Turn& turn() const { return reply_.turn(); }
  [[nodiscard]] const std::vector<TokenId>& generated() const { return generated_; }

 private:
  Completion(std::shared_ptr<const ServedModel> model, recipe::ReplyStreamOptions options, const PreparedRequest& request);
  void take(const engine::Output& output, const EventSink& sink);
  [[nodiscard]] bool parse(std::span<const engine::TokenOutput> tokens, const EventSink& sink);
  void end(const engine::Finish& finish, const EventSink& sink);
  void fail_with(int status, std::string message);

  std::shared_ptr<const ServedModel> model_;
  recipe::Api api_;
  recipe::ReplyStream reply_;
  std::unique_ptr<EngineStream> stream_;
  State state_ = State::running;
  Refusal failure_;
  std::string_view finish_ = "unfinished";
  bool wants_logprobs_ = false;
  bool is_ready_ = false;
  std::uint64_t prompt_tokens_ = 0;
  std::vector<TokenId> generated_;
  TimePoint started_;
  TimePoint first_token_;
  TimePoint last_token_;
};

}  // namespace deepinfer::server
