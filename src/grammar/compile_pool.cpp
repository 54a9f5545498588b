#include "grammar/compile_pool.h"

#include <algorithm>
#include <utility>

#include "grammar/warm_up.h"

namespace deepinfer::grammar {
namespace {

constexpr std::chrono::hours kIdleWait{1};  // jobs and close() wake the threads, this only bounds one wait

}  // namespace

CompilePool::CompilePool(std::shared_ptr<const Vocabulary> vocabulary, const CompilePoolOptions& options)
    : vocabulary_(std::move(vocabulary)), options_(options), cache_(options.cache_bytes), tasks_(options.max_waiting) {
  for (std::int32_t i = 0; i < options.num_threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

CompilePool::~CompilePool() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
  tasks_.close();
  {
    const std::scoped_lock lock(running_mutex_);
    for (const auto& is_cancelled : running_) {
      is_cancelled->store(true, std::memory_order_relaxed);
    }
  }
  threads_.clear();
}

std::optional<CompileResult> CompilePool::find(const CompositeJob& job) {
  std::optional<CompileResult> out = cache_.find(cache_key(job));
  num_hits_.fetch_add(out ? 1 : 0, std::memory_order_relaxed);
  return out;
}

CompileCounters CompilePool::counters() const {
  return {.num_hits = num_hits_.load(std::memory_order_relaxed),
          .num_misses = num_misses_.load(std::memory_order_relaxed),
          .cache_bytes = cache_.bytes()};
}

std::optional<CompileTicket> CompilePool::submit(CompositeJob job, Done done) {
  auto is_cancelled = std::make_shared<std::atomic<bool>>(false);
  Task task{.job = std::move(job),
            .done = std::move(done),
            .deadline = std::chrono::steady_clock::now() + options_.max_delay,
            .is_cancelled = is_cancelled};
  if (!tasks_.try_push(std::move(task))) {
    return std::nullopt;
  }
  return CompileTicket(std::move(is_cancelled));
}

void CompilePool::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::optional<Task> task = tasks_.pop(kIdleWait);
    if (!task || task->is_cancelled->load(std::memory_order_relaxed)) {
      continue;
    }
    {
      const std::scoped_lock lock(running_mutex_);
      running_.push_back(task->is_cancelled);
      if (stop.stop_requested()) {  // the destructor may have looked through the running jobs before
        task->is_cancelled->store(true, std::memory_order_relaxed);
      }
    }
    CompileResult result = result_of(*task);
    {
      const std::scoped_lock lock(running_mutex_);
      std::erase(running_, task->is_cancelled);
    }
    if (!stop.stop_requested()) {
      task->done(std::move(result));
    }
  }
}

CompileResult CompilePool::result_of(const Task& task) {
  const std::string key = cache_key(task.job);
  if (auto known = cache_.find(key)) {  // somebody asked for the same while this one waited
    num_hits_.fetch_add(1, std::memory_order_relaxed);
    return *std::move(known);
  }
  num_misses_.fetch_add(1, std::memory_order_relaxed);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(task.deadline - std::chrono::steady_clock::now());
  if (left <= left.zero()) {
    return refuse({.code = ErrorCode::timeout, .message = "the constraint waited too long to be compiled"});
  }
  CompositeJob job = task.job;
  job.limits.compile_time = std::min(job.limits.compile_time, left);
  job.is_cancelled = task.is_cancelled.get();
  CompileResult result = compile_composite(job);
  if (result) {
    fill_first_masks(*result, vocabulary_);  // the engine's thread finds them, and a runtime
  }
  cache_.put(key, result);
  return result;
}

}  // namespace deepinfer::grammar
