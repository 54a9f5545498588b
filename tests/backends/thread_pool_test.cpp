#include "backends/cpu/fast/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace deepinfer::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskExactlyOnce) {
  for (const std::int32_t threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const std::int32_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<std::int32_t>> count(static_cast<std::size_t>(tasks));
      pool.run(tasks, [&](std::int32_t task, std::int32_t worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        count[static_cast<std::size_t>(task)].fetch_add(1);
      });
      for (const auto& runs : count) {
        EXPECT_EQ(runs.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, SeesWhatTasksWroteAfterEveryOfManyShortRuns) {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(8);
  for (std::int32_t round = 0; round < 5000; ++round) {
    pool.run(8, [&](std::int32_t task, std::int32_t) { values[static_cast<std::size_t>(task)] += task; });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 5000 * 28);
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far longer than workers spin
    std::atomic<std::int32_t> others{0};
    std::atomic<bool> go{false};
    // The caller's task waits for the other one, so the run ends only if the worker wakes.
    pool.run(2, [&](std::int32_t, std::int32_t worker) {
      if (worker == 0) {
        while (!go.load()) {
          std::this_thread::yield();
        }
      } else {
        others.fetch_add(1);
        go.store(true);
      }
    });
    EXPECT_GE(others.load(), 1);
  }
}

TEST(ThreadPool, StopsWhileWorkersSleepOrSpin) {
  for (int round = 0; round < 20; ++round) {
    ThreadPool pool(4);
    pool.run(4, [](std::int32_t, std::int32_t) {});
    if (round % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST(ThreadPool, RespectsTheAffinityMask) {
  EXPECT_GE(usable_threads(), 1);
  EXPECT_LE(usable_threads(), static_cast<std::int32_t>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace deepinfer::cpu
