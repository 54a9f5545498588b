// Counters of an engine: what metrics, health checks and statistics lines are made of.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "engine/prefix_store.h"
#include "engine/swapped_requests.h"
#include "engine/time_histogram.h"
#include "scheduler/prefix_use.h"

namespace deepinfer::engine {

/// Tokens per second that the policy expects of each way of the next step (draft_policy.h); 0: not known.
struct WaySpeeds {
  double plain = 0;
  double scheduled = 0;
  double full = 0;
};

/// What came of drafts since the engine was made.
struct SpeculationStats {
  static constexpr std::size_t kPositions = 16;  ///< later ones count as the last

  std::int64_t num_draft_passes = 0;
  double draft_seconds = 0;
  std::int64_t num_rounds = 0;    ///< verifications, one request each
  std::int64_t num_verified = 0;  ///< drafts that had a row
  std::int64_t num_accepted = 0;
  std::int64_t num_forced = 0;           ///< drafts compared that a constraint proposed
  std::int64_t num_forced_accepted = 0;  ///< of these
  std::array<std::int64_t, kPositions + 1> accepted_lengths{};  ///< rounds by accepted drafts
  std::array<std::int64_t, kPositions> num_judged{};            ///< the drafter's drafts compared, by position: all before them were accepted
  std::array<std::int64_t, kPositions> num_accepted_at{};
  std::array<double, kPositions> confidence_sum{};  ///< over the judged ones
  double confidence_error = 0;                      ///< sum of |outcome − confidence| over the judged ones
  WaySpeeds expected = {};

  /// Far fewer drafts are accepted than the drafter is sure of: it does not fit the model.
  [[nodiscard]] bool seems_broken() const {
    constexpr std::int64_t kEnough = 500;
    std::int64_t judged = 0;
    std::int64_t accepted = 0;
    double sure = 0;
    for (std::size_t i = 0; i < kPositions; ++i) {
      judged += num_judged[i];
      accepted += num_accepted_at[i];
      sure += confidence_sum[i];
    }
    return judged >= kEnough && static_cast<double>(accepted) < 0.5 * sure;
  }
};

struct EngineStats {
  // Since the engine was made.
  std::int64_t num_steps = 0;
  std::int64_t num_prefill_tokens = 0;    ///< rows of prompts, those computed again after a preemption included
  std::int64_t num_generated_tokens = 0;  ///< sampled, EOS not counted
  std::int64_t num_finished = 0;          ///< requests
  std::int64_t num_failed = 0;            ///< of these, with FinishReason::failed
  std::int64_t num_timed_out = 0;         ///< of these, with FinishReason::timed_out
  std::int64_t num_preemptions = 0;
  std::int64_t num_prompt_tokens = 0;                                         ///< of requests that were admitted, each counted once
  std::int64_t num_cached_tokens = 0;                                         ///< of these, found in the prefix cache
  std::int64_t num_prefix_hits = 0;                                           ///< requests that found something
  std::array<std::int64_t, scheduler::kNumPrefixMisses> num_prefix_misses{};  ///< requests by PrefixMiss
  SpeculationStats speculation = {};
  TimeHistogram queue_time = {};                         ///< of requests, from arrival to the first admission
  TimeHistogram mask_time = {};                          ///< of rows under a constraint
  std::array<StepTimes, kNumStepKinds> step_times = {};  ///< of steps with a forward, by StepKind
  // Now.
  std::string fault = {};        ///< of the device: every request ended with it, and so does every new one; empty: none
  std::int32_t num_running = 0;  ///< requests
  std::int32_t num_waiting = 0;
  std::int32_t num_blocks_used = 0;      ///< of num_blocks; serves every cache group that grows with the tokens
  std::int32_t num_blocks = 0;           ///< block 0 is not counted
  SwapStats swap = {};                   ///< caches of preempted requests
  PrefixStoreStats tiers = {};           ///< prefixes below the device
  std::int32_t num_slots_used = 0;       ///< of num_slots; serves every cache group of fixed size per request
  std::int32_t num_slots = 0;            ///< slot 0 is not counted
  std::int32_t num_cached_prefixes = 0;  ///< blocks that later requests may find, held or not
  Duration time_per_finish{};            ///< recent mean between the ends of two requests; zero before the second
  TimePoint last_progress{};             ///< end of the last step; of the construction before the first
};

/// After how long a request that found the queue full may try again.
[[nodiscard]] inline std::chrono::seconds retry_after(const EngineStats& stats) {
  return std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(stats.time_per_finish));
}

}  // namespace deepinfer::engine
