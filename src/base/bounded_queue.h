// A queue between threads with a limit that is enforced, not advised. Many producers, many consumers.
// Not for per-token traffic: one lock per call.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace deepinfer {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  /// False when the queue is full or closed; `item` is then lost, so a caller that needs it keeps a copy.
  [[nodiscard]] bool try_push(T item) {
    {
      const std::scoped_lock lock(mutex_);
      if (closed_ || items_.size() >= capacity_) {
        return false;
      }
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  /// Everything that waits, oldest first; empty when nothing does. Never blocks.
  [[nodiscard]] std::vector<T> drain() {
    const std::scoped_lock lock(mutex_);
    std::vector<T> out(std::make_move_iterator(items_.begin()), std::make_move_iterator(items_.end()));
    items_.clear();
    return out;
  }

  /// Waits for one item; nullopt when `timeout` passes or the queue is closed and empty.
  [[nodiscard]] std::optional<T> pop(Duration timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) {
      return std::nullopt;
    }
    std::optional<T> out(std::move(items_.front()));
    items_.pop_front();
    return out;
  }

  /// Waits until something is there, the queue is closed, or `timeout` passes.
  void wait(Duration timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [this] { return closed_ || !items_.empty(); });
  }

  /// No more pushes; waiting consumers wake up and may take what is left.
  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  [[nodiscard]] std::size_t size() const {
    const std::scoped_lock lock(mutex_);
    return items_.size();
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace deepinfer
