// How FastOps cuts work into tasks: the templates that its source files share. Not here: what a task computes (kernels.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/fast/fast_ops.h"

namespace deepinfer::cpu {

// A task should take a microsecond and a half at least: much longer than handing it over (about 0.3 us). The unit of costs is what a core does
// twenty times in a nanosecond: multiply-adds of vectors that are at hand.
inline constexpr std::int64_t kTaskCost = 32768;
// More tasks than this per thread only add overhead.
inline constexpr std::int32_t kTasksPerThread = 8;
// Columns of an FP8 weight that share a scale, so that a piece starts at a block.
inline constexpr std::int32_t kColumnStep = kWeightBlock;

[[nodiscard]] constexpr std::int32_t divide_up(std::int64_t a, std::int64_t b) { return static_cast<std::int32_t>((a + b - 1) / b); }

[[nodiscard]] constexpr Range piece(std::int32_t index, std::int32_t step, std::int32_t size) {
  return {index * step, std::min(size, (index + 1) * step)};
}

/// Into how many tasks work of some cost is cut: when they are few, every thread gets as many.
[[nodiscard]] constexpr std::int32_t tasks_worth(std::int64_t cost, std::int32_t num_threads) {
  const std::int64_t wanted = std::clamp<std::int64_t>((cost + kTaskCost / 2) / kTaskCost, 1, std::int64_t{num_threads} * kTasksPerThread);
  return wanted == 1 ? 1 : divide_up(wanted, num_threads) * num_threads;
}

template <class Work>
void FastOps::for_tasks(std::int32_t num_tasks, const Work& work) {
  pool_.run(num_tasks, [&](std::int32_t task, std::int32_t worker) {
    Scratch& scratch = scratch_[static_cast<std::size_t>(worker)];
    scratch.reset();
    work(task, scratch);
  });
}

template <class Work>
void FastOps::for_rows(std::int32_t num_rows, RowCost cost, const Work& work) {
  if (num_rows <= 0) {
    return;
  }
  const std::int32_t even = divide_up(num_rows, tasks_worth(num_rows * cost.per_row, pool_.num_threads()));
  const std::int32_t shared = std::min(cost.together, divide_up(num_rows, pool_.num_threads()));
  const std::int32_t step = std::min(cost.most_rows, std::max(even, shared));
  for_tasks(divide_up(num_rows, step), [&](std::int32_t task, Scratch& scratch) { work(piece(task, step, num_rows), scratch); });
}

}  // namespace deepinfer::cpu
