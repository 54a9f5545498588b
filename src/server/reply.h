// The reply to one request of the three APIs: its choices side by side, merged into one stream or one body, and kept for later turns
// when they are complete. Not here: one choice (completion.h), HTTP (generation.h).
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/completion.h"
#include "server/pending_constraint.h"
#include "server/prepared_request.h"

namespace deepinfer::server {

class Reply {
 public:
  using State = Completion::State;

  /// Submits every choice, at once or when the constraint is compiled. Refused: as prepare() and Completion::start, a constraint that
  /// is known to be bad; then no choice runs.
  static std::expected<std::unique_ptr<Reply>, Refusal> start(const std::shared_ptr<const ServedModel>& model,
                                                              const CompletionRequest& request, const Wake& wake);
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  [[nodiscard]] const std::string& id() const { return request_.id; }
  [[nodiscard]] bool wants_stream() const { return request_.converted.stream; }
  /// Gives what has come since the last call to `sink`. Failed as soon as one choice is.
  State advance(const Completion::EventSink& sink);
  [[nodiscard]] State state() const { return state_; }
  void cancel();
  /// The complete body (JSON).
  [[nodiscard]] std::string response() const;
  /// Why the state is failed: the failure of the first choice that failed.
  [[nodiscard]] const Refusal& failure() const { return failure_; }
  /// As the model saw it.
  [[nodiscard]] std::string prompt_text() const;
  /// Sums over the choices; times from the first to begin to the last to end.
  [[nodiscard]] CompletionStatistics statistics() const;

 private:
  Reply(PreparedRequest prepared, const CompletionRequest& request);
  std::expected<void, Refusal> begin(const Wake& wake);
  std::expected<void, Refusal> start_choices(const Wake& wake);
  std::expected<void, Refusal> constrain(const grammar::CompileResult& compiled, const Wake& wake);
  void emit(std::size_t choice, const recipe::Event& event, const Completion::EventSink& sink);
  void keep(const ServedModel& model) const;
  [[nodiscard]] recipe::GeneratedTurn generated_turn(const ServedModel& model, const Completion& completion) const;

  PreparedRequest request_;
  std::string owner_;
  TurnStore* turns_;
  ResponseStore* responses_;
  std::shared_ptr<const ServedModel> model_;
  std::unique_ptr<PendingConstraint> pending_;  ///< while preparing
  Wake wake_;                                   ///< of the choices, while preparing
  TimePoint compile_begin_;
  Duration compile_time_{};
  std::vector<std::unique_ptr<Completion>> choices_;
  State state_ = State::running;
  Refusal failure_;
  std::size_t num_ended_ = 0;          ///< choices whose last chunk was given
  std::optional<json::Object> usage_;  ///< of the choices that have ended, together
};

}  // namespace deepinfer::server
