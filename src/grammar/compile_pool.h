// Compiles constraints beside everything else: a few threads, a bounded queue, a cache. A request waits for its constraint, nobody
// else does (structured_output.md, "Faults and limits"). Not here: how to compile (composite.h), what a request needs (server).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "grammar/cache.h"
#include "grammar/composite.h"

namespace deepinfer::grammar {

class Vocabulary;

struct CompilePoolOptions {
  std::int32_t num_threads = 2;
  std::size_t max_waiting = 1024;               ///< jobs that wait for a thread
  std::chrono::milliseconds max_delay{20'000};  ///< from submit() to the result, waiting included
  std::size_t cache_bytes = Limits{}.cache_bytes;
};

/// What a pool counted.
struct CompileCounters {
  std::uint64_t num_hits = 0;    ///< results that were known
  std::uint64_t num_misses = 0;  ///< results that had to be compiled, errors included
  std::size_t cache_bytes = 0;   ///< warm runtimes included
};

/// Cancels its job when it goes: the job's result is then of no use to anybody.
class CompileTicket {
 public:
  CompileTicket() = default;
  explicit CompileTicket(std::shared_ptr<std::atomic<bool>> is_cancelled) : is_cancelled_(std::move(is_cancelled)) {}
  CompileTicket(CompileTicket&&) noexcept = default;
  CompileTicket& operator=(CompileTicket&& other) noexcept {
    cancel();
    is_cancelled_ = std::move(other.is_cancelled_);
    return *this;
  }
  ~CompileTicket() { cancel(); }

  void cancel() {
    if (is_cancelled_) {
      is_cancelled_->store(true, std::memory_order_relaxed);
    }
  }

 private:
  std::shared_ptr<std::atomic<bool>> is_cancelled_;
};

class CompilePool {
 public:
  /// Called once, on a thread of the pool; must not block. Of a cancelled job perhaps never.
  using Done = std::move_only_function<void(CompileResult&&)>;

  /// `vocabulary`: the one that matchers will use; compiled grammars are made ready for it.
  CompilePool(std::shared_ptr<const Vocabulary> vocabulary, const CompilePoolOptions& options);
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;
  /// Cancels what is unfinished; no Done is called any more once this returns.
  ~CompilePool();

  /// The result when it is known already.
  [[nodiscard]] std::optional<CompileResult> find(const CompositeJob& job);
  /// nullopt when max_waiting jobs wait; `done` is then not called. The job's own is_cancelled is not looked at.
  [[nodiscard]] std::optional<CompileTicket> submit(CompositeJob job, Done done);
  [[nodiscard]] std::size_t cache_bytes() const { return cache_.bytes(); }
  [[nodiscard]] CompileCounters counters() const;

 private:
  struct Task {
    CompositeJob job;
    Done done;
    std::chrono::steady_clock::time_point deadline;
    std::shared_ptr<std::atomic<bool>> is_cancelled;
  };

  void run(const std::stop_token& stop);
  [[nodiscard]] CompileResult result_of(const Task& task);

  std::shared_ptr<const Vocabulary> vocabulary_;
  CompilePoolOptions options_;
  CompileCache cache_;
  std::atomic<std::uint64_t> num_hits_{0};
  std::atomic<std::uint64_t> num_misses_{0};
  BoundedQueue<Task> tasks_;
  std::vector<std::shared_ptr<std::atomic<bool>>> running_;  // the flag of each thread's current job
  std::mutex running_mutex_;
  std::vector<std::jthread> threads_;
};

}  // namespace deepinfer::grammar
