// Counts of durations as values: fixed bounds, no allocation, so that statistics can be copied every step.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace deepinfer::engine {

struct TimeHistogram {
  /// Seconds: from the host work of one step to a long queue.
  static constexpr std::array kBounds = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                         0.05,    0.1,      0.25,    0.5,    1.0,     2.5,    5.0,   10.0,   30.0,  60.0, 300.0};

  std::array<std::int64_t, kBounds.size() + 1> counts{};  ///< of durations at most each bound and above the one before; the last: longer
  double sum_seconds = 0;

  void add(Duration duration) {
    const double seconds = std::chrono::duration<double>(duration).count();
    ++counts[static_cast<std::size_t>(std::ranges::lower_bound(kBounds, seconds) - kBounds.begin())];
    sum_seconds += seconds;
  }
};

/// What a step computed.
enum class StepKind : std::uint8_t { prefill, decode, mixed };
inline constexpr std::size_t kNumStepKinds = 3;

/// Of one kind of steps: from launch to result, and the rest of the step, which the device does not cover.
struct StepTimes {
  TimeHistogram forward;
  TimeHistogram host;
};

}  // namespace deepinfer::engine
