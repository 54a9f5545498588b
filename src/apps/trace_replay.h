// Replays a trace against an engine in this thread and measures what it did: prefix hits beside the ideal ones, latencies, memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "apps/trace.h"
#include "base/result.h"
#include "engine/engine.h"

namespace deepinfer::apps {

struct ReplayOptions {
  std::int32_t divisor = 16;  ///< of token counts
  double speed = 0;           ///< times the trace's own pace; 0: the next request comes when fewer than max_unfinished are left
  std::int32_t max_unfinished = 16;
  std::int32_t max_model_len = 0;        ///< of the engine
  std::int32_t num_blocks = 0;           ///< of the engine, padding not counted
  std::optional<std::int32_t> num_states = {};  ///< of the engine beside those of running requests, when a hit needs one
  std::int32_t positions_per_block = 0;  ///< of the engine
  std::function<void(std::size_t num_ended)> on_end = {};  ///< for a progress line
};

struct ReplayReport {
  std::size_t num_requests = 0;
  std::size_t num_cut = 0;       ///< prompts longer than the context
  std::size_t num_refused = 0;   ///< the queue was full
  std::size_t num_failed = 0;    ///< did not end by length
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_ideal_tokens = 0;  ///< that an IdealCache of the same capacity has
  std::int64_t num_output_tokens = 0;
  std::array<std::int64_t, scheduler::kNumPrefixMisses> misses{};
  std::vector<double> ttft_seconds;  ///< ascending; from the time at which the trace wants the request
  std::vector<double> tpot_seconds;  ///< ascending; of requests of more than one token
  double seconds = 0;
  std::size_t resident_bytes_half = 0;  ///< of the process, when half of the requests had ended
  std::size_t resident_bytes_end = 0;

  [[nodiscard]] double hit_rate() const { return ratio(num_cached_tokens); }
  [[nodiscard]] double ideal_hit_rate() const { return ratio(num_ideal_tokens); }

 private:
  [[nodiscard]] double ratio(std::int64_t tokens) const {
    return num_prompt_tokens == 0 ? 0.0 : static_cast<double>(tokens) / static_cast<double>(num_prompt_tokens);
  }
};

/// The engine has no other requests. Errors: what it refuses, a full queue excepted.
[[nodiscard]] Result<ReplayReport> replay(engine::Engine& engine, const Trace& trace, const ReplayOptions& options);

/// The value below which `percent` of them lie; 0 without any. `ascending`: sorted.
[[nodiscard]] double percentile(const std::vector<double>& ascending, double percent);

}  // namespace deepinfer::apps
