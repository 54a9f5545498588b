// A fixed set of workers for one caller at a time: runs numbered tasks, the caller takes part, returns when all are done.
// Which worker runs a task is left to chance, so a task must not depend on it. Not here: how work is cut into tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace deepinfer::cpu {

class ThreadPool {
 public:
  /// `num_threads` workers, the caller included.
  explicit ThreadPool(std::int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::int32_t num_threads() const { return static_cast<std::int32_t>(threads_.size()) + 1; }

  /// work(task, worker) for every task in [0, num_tasks), each once; worker is in [0, num_threads), 0 the caller.
  template <class Work>
  void run(std::int32_t num_tasks, const Work& work) {
    dispatch(
        num_tasks, [](const void* context, std::int32_t task, std::int32_t worker) { (*static_cast<const Work*>(context))(task, worker); },
        &work);
  }

  static constexpr std::int32_t kMaxTasks = (1 << 20) - 1;  ///< of one run: the ticket holds 20 bits

 private:
  using Call = void (*)(const void* context, std::int32_t task, std::int32_t worker);

  void dispatch(std::int32_t num_tasks, Call call, const void* context);
  void take_tasks(std::int32_t worker);
  void serve(std::int32_t worker);
  [[nodiscard]] bool has_tasks() const;

  // Round number, number of tasks and next task in one word, so that a task is claimed for exactly the round that was seen.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::int32_t> unfinished_{0};
  alignas(64) std::atomic<std::int32_t> sleepers_{0};
  std::atomic<std::uint32_t> wake_{0};
  std::atomic<bool> stopping_{false};
  // Written by the caller while no task is unfinished, read by whoever claimed a task.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::vector<std::thread> threads_;
};

/// Threads this process may use at once: affinity mask and container quota respected, at least 1.
[[nodiscard]] std::int32_t usable_threads();

}  // namespace deepinfer::cpu
