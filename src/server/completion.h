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
  Duration queue_time{};                     ///< at the engine
  Duration compile_time{};                   ///< of its constraint; zero: none, or known already
  std::string_view prefix_miss = "unknown";  ///< why no more of the prompt was cached: scheduler::name_of; "unknown" before it began
  std::int32_t first_prefix_miss = 0;        ///< prompt token from which nothing was cached
  std::string_view finish = "unfinished";    ///< "stop", "length", "cancelled", "failed"
};

class Completion {
 public:
  using EventSink = std::function<void(const recipe::Event&)>;
  /// preparing: of a Reply whose constraint is being compiled; a failure now is a refusal, nothing of the reply exists.
  enum class State { preparing, running, finished, failed };

  /// Submits the choices of `request`, at least one; the seed of choice i is the request's plus i.
  /// Refused, all together: a full queue (429), what the engine refuses.
  static std::expected<std::vector<std::unique_ptr<Completion>>, Refusal> start_choices(const std::shared_ptr<const ServedModel>& model,
                                                                                        const PreparedRequest& request, const Wake& wake);
  /// prepare(), its constraint compiled on this thread, and start_choices() of one.
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
  AdmissionReport admission_;
  std::vector<TokenId> generated_;
  TimePoint started_;
  TimePoint first_token_;
  TimePoint last_token_;
};

}  // namespace deepinfer::server
