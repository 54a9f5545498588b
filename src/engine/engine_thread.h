// EngineThread: an engine on a thread of its own, for callers on any thread. Commands go in through one bounded queue; outputs come
// out of the sinks, on the engine's thread. An engine without work sleeps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "engine/engine.h"

namespace deepinfer::engine {

class EngineThread {
 public:
  explicit EngineThread(std::unique_ptr<Engine> engine);
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  /// Cancels what is unfinished; every sink has had its last output when this returns. Not from a sink.
  ~EngineThread();

  /// As Engine::submit; the request starts with the next step. Errors: also cancelled, once drain() was called.
  [[nodiscard]] Result<RequestId> submit(GenerationRequest request, OutputSink sink);
  /// As Engine::submit_choices.
  [[nodiscard]] Result<std::vector<RequestId>> submit_choices(GenerationRequest request, std::vector<Choice> choices);
  /// As Engine::cancel: the request takes part in the step that runs, in no later one.
  void cancel(RequestId request);
  /// As of the end of the last step.
  [[nodiscard]] EngineStats stats() const;

  /// Accepts nothing more, waits for the unfinished requests, cancels those left after `timeout` and waits for their last output.
  /// Not from a sink.
  void drain(Duration timeout);

 private:
  struct Start {
    RequestId id;
    GenerationRequest request;
    OutputSink sink;
  };
  struct StartChoices {
    std::vector<RequestId> ids;
    GenerationRequest request;
    std::vector<Choice> choices;
  };
  struct Cancel {
    RequestId id;
  };
  using Command = std::variant<Start, StartChoices, Cancel>;

  enum class Phase { running, cancelling };

  void run(const std::stop_token& stop);
  void execute(Start&& command);
  void execute(StartChoices&& command);
  void execute(Cancel&& command);
  [[nodiscard]] Result<void> check_room(std::size_t num_requests) const;
  [[nodiscard]] RequestId new_id_locked();
  [[nodiscard]] OutputSink counted(RequestId id, OutputSink&& sink);
  void publish();
  void cancel_locked(RequestId request);

  const RequestLimits limits_;
  const std::int32_t max_unfinished_;

  mutable std::mutex mutex_;
  std::condition_variable all_delivered_;
  bool accepting_ = true;
  std::uint64_t last_id_ = 0;
  std::unordered_map<RequestId, Phase> unfinished_;  // until the engine has ended the request
  std::int32_t num_undelivered_ = 0;                 // requests whose last output is not given and in stats_ yet
  EngineStats stats_;

  BoundedQueue<Command> commands_;
  // Touched by thread_ only.
  std::unique_ptr<Engine> engine_;
  std::int32_t num_delivered_ = 0;  // last outputs of the current step

  std::jthread thread_;
};

}  // namespace deepinfer::engine
