// One API request from its body to the events of its reply: convert, render, encode, submit, parse. No HTTP: serve, run, chat and
// batch all go through here, so that the same request has the same text everywhere.
// An object belongs to one thread at a time; the engine thread only reaches its inbox.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/engine_thread.h"
#include "recipe/convert.h"
#include "recipe/reply_stream.h"
#include "server/served_model.h"

namespace deepinfer::server {

/// Why a request was not taken: the HTTP response to send.
struct Refusal {
  int status = 400;
  std::string body = {};     ///< exact JSON, in the form of the API
  std::string message = {};  ///< sentence for a person
};

/// A request as its API body, with what no API body can say.
struct CompletionRequest {
  recipe::Api api = recipe::Api::chat;
  std::string_view body;    ///< used during start() only
  std::int32_t top_k = -1;  ///< −1: all tokens
  bool ignore_eos = false;  ///< the reply ends by length or stop sequence only
};

/// Counts and times of a request so far.
struct CompletionStatistics {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t completion_tokens = 0;
  Duration to_first_token{};  ///< from start()
  Duration to_last_token{};
  std::string_view finish = "unfinished";  ///< "stop", "length", "cancelled", "failed"
};

class Completion {
 public:
  /// Called when outputs wait for advance(), on the engine thread; must not block and must not call the completion.
  using Wake = std::move_only_function<void()>;
  using EventSink = std::function<void(const recipe::Event&)>;
  enum class State { running, finished, failed };

  /// Submits the request to the model's engine. Refused: what conversion refuses, a prompt that does not fit, a full queue (429).
  static std::expected<std::unique_ptr<Completion>, Refusal> start(std::shared_ptr<const ServedModel> model,
                                                                   const CompletionRequest& request, Wake wake);
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  /// Cancels what is unfinished; `wake` is not called any more once this returns.
  ~Completion();

  /// Whether the client asked for events instead of one response.
  [[nodiscard]] bool wants_stream() const { return wants_stream_; }
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

 private:
  struct Inbox;

  Completion(std::shared_ptr<const ServedModel> model, recipe::ReplyStreamOptions options, recipe::Api api);
  static std::shared_ptr<Inbox> make_inbox(Wake wake);
  void take(const engine::Output& output, const EventSink& sink);
  void end(const engine::Finish& finish, const EventSink& sink);
  void fail_with(int status, std::string message);
  void stop_engine();

  std::shared_ptr<const ServedModel> model_;
  recipe::Api api_;
  recipe::ReplyStream reply_;
  std::shared_ptr<Inbox> inbox_;
  std::optional<RequestId> engine_request_;  ///< while the engine works on it
  State state_ = State::running;
  Refusal failure_;
  std::string_view finish_ = "unfinished";
  bool wants_stream_ = false;
  bool wants_logprobs_ = false;
  bool is_ready_ = false;
  std::uint64_t prompt_tokens_ = 0;
  TimePoint started_;
  TimePoint first_token_;
  TimePoint last_token_;
};

/// "chatcmpl-", "msg_" or "resp_" and 32 random hexadecimal digits.
[[nodiscard]] std::string new_response_id(recipe::Api api);

}  // namespace deepinfer::server
