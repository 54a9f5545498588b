#include "backends/cpu/fast/thread_pool.h"

#include <hwy/cache_control.h>
#include <sched.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/container_limits.h"
#include "base/check.h"

namespace deepinfer::cpu {
namespace {

constexpr std::uint64_t kTaskBits = 20;
constexpr std::uint64_t kTaskMask = (std::uint64_t{1} << kTaskBits) - 1;
constexpr std::uint64_t kRound = std::uint64_t{1} << (2 * kTaskBits);

// About 50 us: longer than the gap between two operations of a forward, shorter than what a sleeping core would miss.
constexpr std::int32_t kSpinsBeforeSleep = 2000;
// A worker that lost its core needs the scheduler, not our spinning.
constexpr std::int32_t kSpinsBeforeYield = 4000;

std::uint64_t next_task(std::uint64_t ticket) { return ticket & kTaskMask; }
std::uint64_t task_count(std::uint64_t ticket) { return ticket >> kTaskBits & kTaskMask; }

}  // namespace

std::int32_t usable_threads() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const bool known = sched_getaffinity(0, sizeof(mask), &mask) == 0;
  const std::int32_t allowed = known ? CPU_COUNT(&mask) : static_cast<std::int32_t>(std::thread::hardware_concurrency());
  const double quota = container_limits().processors;
  return std::max(1, quota > 0 ? std::min(allowed, static_cast<std::int32_t>(std::lround(quota))) : allowed);
}

ThreadPool::ThreadPool(std::int32_t num_threads) {
  check(num_threads >= 1, "a pool has at least the calling thread");
  threads_.reserve(static_cast<std::size_t>(num_threads) - 1);
  for (std::int32_t worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this, worker] { serve(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool ThreadPool::has_tasks() const {
  const std::uint64_t ticket = ticket_.load();
  return next_task(ticket) < task_count(ticket);
}

void ThreadPool::take_tasks(std::int32_t worker) {
  std::uint64_t ticket = ticket_.load();
  while (next_task(ticket) < task_count(ticket)) {
    if (ticket_.compare_exchange_weak(ticket, ticket + 1)) {
      call_(context_, static_cast<std::int32_t>(next_task(ticket)), worker);
      unfinished_.fetch_sub(1, std::memory_order_release);
      ticket = ticket_.load();
    }
  }
}

void ThreadPool::dispatch(std::int32_t num_tasks, Call call, const void* context) {
  check(num_tasks >= 0 && num_tasks <= kMaxTasks, "the tasks of one run fit the ticket");
  if (threads_.empty() || num_tasks <= 1) {
    for (std::int32_t task = 0; task < num_tasks; ++task) {
      call(context, task, 0);
    }
    return;
  }
  call_ = call;
  context_ = context;
  unfinished_.store(num_tasks, std::memory_order_relaxed);
  const std::uint64_t round = ticket_.load(std::memory_order_relaxed) / kRound + 1;
  ticket_.store(round * kRound | static_cast<std::uint64_t>(num_tasks) << kTaskBits);
  if (sleepers_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  take_tasks(0);
  for (std::int32_t spins = 0; unfinished_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpinsBeforeYield) {
      hwy::Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::serve(std::int32_t worker) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    take_tasks(worker);
    for (std::int32_t spins = 0; spins < kSpinsBeforeSleep && !has_tasks(); ++spins) {
      hwy::Pause();
    }
    if (has_tasks()) {
      continue;
    }
    // Announce first, look again, then sleep: a caller that misses the announcement has already made its tasks visible.
    sleepers_.fetch_add(1);
    const std::uint32_t seen = wake_.load();
    if (!has_tasks() && !stopping_.load()) {
      wake_.wait(seen);
    }
    sleepers_.fetch_sub(1);
  }
}

}  // namespace deepinfer::cpu
