// Counters of an engine: what metrics, health checks and statistics lines are made of.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace deepinfer::engine {

struct EngineStats {
  // Since the engine was made.
  std::int64_t num_steps = 0;
  std::int64_t num_prefill_tokens = 0;    ///< rows of prompts, those computed again after a preemption included
  std::int64_t num_generated_tokens = 0;  ///< sampled, EOS not counted
  std::int64_t num_finished = 0;          ///< requests
  std::int64_t num_failed = 0;            ///< of these, with FinishReason::failed
  std::int64_t num_preemptions = 0;
  // Now.
  std::int32_t num_running = 0;  ///< requests
  std::int32_t num_waiting = 0;
  std::int32_t num_blocks_used = 0;  ///< of num_blocks; serves every cache group that grows with the tokens
  std::int32_t num_blocks = 0;       ///< block 0 is not counted
  std::int32_t num_slots_used = 0;   ///< of num_slots; serves every cache group of fixed size per request
  std::int32_t num_slots = 0;        ///< slot 0 is not counted
  TimePoint last_progress{};         ///< end of the last step; of the construction before the first
};

}  // namespace deepinfer::engine
