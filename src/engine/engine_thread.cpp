// The mutex guards what callers and engine thread share, once per command, per step and per finished request; never per token, and
// never while a sink runs.
#include "engine/engine_thread.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

constexpr std::chrono::hours kIdleWait{1};  // commands and close() wake the thread, this only bounds one wait

/// Between two looks at the queue a step can end every request and callers can fill the engine again: at most one Start and one Cancel
/// for each of the new requests, beside one Cancel for each of the old ones.
std::size_t queue_capacity(std::int32_t max_unfinished) { return 3 * static_cast<std::size_t>(max_unfinished); }

}  // namespace

EngineThread::EngineThread(std::unique_ptr<Engine> engine)
    : limits_(engine->limits()),
      max_unfinished_(engine->max_unfinished()),
      stats_(engine->stats()),
      commands_(queue_capacity(max_unfinished_)),
      engine_(std::move(engine)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

EngineThread::~EngineThread() {
  {
    const std::scoped_lock lock(mutex_);
    accepting_ = false;
  }
  thread_.request_stop();
  commands_.close();
  thread_.join();
}

Result<RequestId> EngineThread::submit(GenerationRequest request, OutputSink sink) {
  if (auto checked = check_request(request, limits_); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  const std::scoped_lock lock(mutex_);
  if (auto room = check_room(1); !room) {
    return std::unexpected(std::move(room.error()));
  }
  const RequestId id = new_id_locked();
  const bool pushed = commands_.try_push(Start{.id = id, .request = std::move(request), .sink = std::move(sink)});
  check(pushed, "the command queue has room for every unfinished request");
  return id;
}

Result<std::vector<RequestId>> EngineThread::submit_choices(GenerationRequest request, std::vector<Choice> choices) {
  check(!choices.empty(), "there is at least one choice");
  if (auto checked = check_request(request, limits_); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  const std::scoped_lock lock(mutex_);
  if (auto room = check_room(choices.size()); !room) {
    return std::unexpected(std::move(room.error()));
  }
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    ids.push_back(new_id_locked());
  }
  const bool pushed = commands_.try_push(StartChoices{.ids = ids, .request = std::move(request), .choices = std::move(choices)});
  check(pushed, "the command queue has room for every unfinished request");
  return ids;
}

Result<void> EngineThread::check_room(std::size_t num_requests) const {
  if (!accepting_) {
    return fail(ErrorKind::cancelled, "the engine is shutting down and takes no more requests");
  }
  if (!stats_.fault.empty()) {
    return fail(ErrorKind::cancelled, stats_.fault + "; nothing can be computed until the server is started again");
  }
  if (unfinished_.size() + num_requests > static_cast<std::size_t>(max_unfinished_)) {
    return queue_is_full(max_unfinished_);
  }
  return {};
}

RequestId EngineThread::new_id_locked() {
  const RequestId id{++last_id_};
  unfinished_.emplace(id, Phase::running);
  ++num_undelivered_;
  return id;
}

void EngineThread::cancel(RequestId request) {
  const std::scoped_lock lock(mutex_);
  cancel_locked(request);
}

/// One command per request, so that callers cannot fill the queue.
void EngineThread::cancel_locked(RequestId request) {
  const auto found = unfinished_.find(request);
  if (found == unfinished_.end() || std::exchange(found->second, Phase::cancelling) == Phase::cancelling) {
    return;
  }
  const bool pushed = commands_.try_push(Cancel{.id = request});
  check(pushed || !accepting_, "the command queue has room for every cancel");
}

EngineStats EngineThread::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void EngineThread::drain(Duration timeout) {
  std::unique_lock lock(mutex_);
  accepting_ = false;
  const auto done = [this] { return num_undelivered_ == 0; };
  if (!all_delivered_.wait_for(lock, timeout, done)) {
    for (auto& [id, phase] : unfinished_) {
      cancel_locked(id);
    }
    all_delivered_.wait(lock, done);
  }
}

void EngineThread::run(const std::stop_token& stop) {
  while (true) {
    auto commands = commands_.drain();
    for (Command& command : commands) {
      std::visit([this](auto& of_kind) { execute(std::move(of_kind)); }, command);
    }
    if (!commands.empty()) {
      publish();  // before anything of a new request goes out: who has seen a token sees its request in the figures
    }
    if (stop.stop_requested()) {
      engine_->cancel_all();
    }
    if (engine_->step()) {
      publish();
    } else if (stop.stop_requested()) {
      return;
    } else {
      commands_.wait(kIdleWait);
    }
  }
}

OutputSink EngineThread::counted(RequestId id, OutputSink&& sink) {
  return [this, id, sink = std::move(sink)](Output&& output) mutable {
    if (output.finish) {
      ++num_delivered_;
      const std::scoped_lock lock(mutex_);
      unfinished_.erase(id);  // before the sink: who sees the end may submit the next
    }
    sink(std::move(output));
  };
}

void EngineThread::execute(Start&& command) {
  engine_->start(command.id, std::move(command.request), counted(command.id, std::move(command.sink)));
}

void EngineThread::execute(StartChoices&& command) {
  for (std::size_t i = 0; i < command.ids.size(); ++i) {
    command.choices[i].sink = counted(command.ids[i], std::move(command.choices[i].sink));
  }
  engine_->start_choices(command.ids, command.request, std::move(command.choices));
}

void EngineThread::execute(Cancel&& command) { engine_->cancel(command.id); }

void EngineThread::publish() {
  const EngineStats stats = engine_->stats();
  const std::scoped_lock lock(mutex_);
  stats_ = stats;
  num_undelivered_ -= std::exchange(num_delivered_, 0);
  if (num_undelivered_ == 0) {
    all_delivered_.notify_all();
  }
}

}  // namespace deepinfer::engine
