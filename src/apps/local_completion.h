// A completion of this process, run to its end on the calling thread. What the server does with an exchange, without one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <expected>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "server/reply.h"

namespace deepinfer::apps {

/// Sleeps until an engine thread has something to tell.
class WakeUp {
 public:
  void notify();
  /// Returns when notified since the last call, or after `timeout`.
  void wait(std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool is_due_ = false;
};

struct LocalReply {
  std::string response;  ///< the complete response body
  server::CompletionStatistics statistics;
  bool is_cancelled = false;
};

/// `body`: Chat Completions. Gives every event of the reply to `sink` as it comes. `is_interrupted` is asked about 20 times a second and
/// cancels when true.
[[nodiscard]] std::expected<LocalReply, server::Refusal> complete(const std::shared_ptr<const server::ServedModel>& model,
                                                                  const std::string& body, const server::Completion::EventSink& sink,
                                                                  const std::function<bool()>& is_interrupted);

/// "12 prompt tokens · 40 tokens in 0.31 s (129.0 tokens/s) · first token after 0.05 s · stop"
[[nodiscard]] std::string statistics_line(const server::CompletionStatistics& statistics);

}  // namespace deepinfer::apps
