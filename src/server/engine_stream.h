// One request at the engine, seen from the thread of its client: outputs wait in an inbox, the engine thread only appends to it.
// Not here: what tokens mean (completion.h, text_completion.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine_thread.h"

namespace deepinfer::server {

/// Called when outputs wait, on the engine thread; must not block and must not call back into what it wakes.
using Wake = std::function<void()>;

/// What the engine says about the beginning of a request; all its outputs say the same.
struct AdmissionReport {
  Duration queue_time{};
  std::string_view prefix_miss = "unknown";  ///< scheduler::name_of
  std::int32_t first_prefix_miss = 0;
};
[[nodiscard]] AdmissionReport admission_report(const engine::Output& output);

class EngineStream {
 public:
  /// One stream per seed, each a reply to the same prompt, which is computed once. Errors: those of
  /// EngineThread::submit_choices.
  static Result<std::vector<std::unique_ptr<EngineStream>>> submit_choices(const std::shared_ptr<engine::EngineThread>& engine,
                                                                           engine::GenerationRequest request,
                                                                           std::span<const std::uint64_t> seeds, const Wake& wake);
  EngineStream(const EngineStream&) = delete;
  EngineStream& operator=(const EngineStream&) = delete;
  /// Cancels what is unfinished; the wake is not called any more once this returns.
  ~EngineStream();

  /// What has come since the last call.
  [[nodiscard]] std::vector<engine::Output> take();
  /// Generation ends within one step; outputs may still come.
  void cancel();

 private:
  struct Inbox;
  explicit EngineStream(std::shared_ptr<engine::EngineThread> engine) : engine_(std::move(engine)) {}

  std::shared_ptr<engine::EngineThread> engine_;
  std::shared_ptr<Inbox> inbox_;
  std::optional<RequestId> request_;  ///< while the engine may work on it
};

}  // namespace deepinfer::server
