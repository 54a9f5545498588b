// The life of a request as a variant: each state holds exactly what exists then, transitions consume the old state.
// Not here: when a transition happens (scheduler.h), the request's tokens (engine).
#pragma once

#include <compare>
#include <cstdint>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "kvcache/cache_pool.h"
#include "scheduler/prefix_use.h"
#include "scheduler/whole_spans.h"

namespace deepinfer::scheduler {

/// Submitted, nothing computed, nothing held.
struct Waiting {
  std::int32_t num_overtaken = 0;  ///< younger requests admitted before it although it did not fit
};

/// Some of the known tokens are computed; the cache covers all of them.
struct Prefilling {
  kvcache::Holding cache;
  std::int32_t num_computed = 0;  ///< positions [0, num_computed) are in the cache
  std::int32_t first_valid = 0;   ///< window rows before this position do not exist (model.md 10.3)
  std::int32_t stored_until = 0;  ///< blocks before this position are shared and must not be written
  std::int32_t checkpoint = 0;    ///< a chunk ends here, so that the state at this position can be kept; 0: nowhere
};

/// All known tokens but the last are computed.
struct Decoding {
  kvcache::Holding cache;
  std::int32_t num_drafts = 0;  ///< proposed tokens behind the last known one that the next step verifies, as far as there is room
};

/// What a running request had when it was preempted, as in Prefilling.
struct Progress {
  std::int32_t num_computed = 0;
  std::int32_t first_valid = 0;
  std::int32_t stored_until = 0;
  std::int32_t checkpoint = 0;
};

/// Gave its cache back to an older request; all known tokens are computed again after admission, unless what was in the cache is saved.
struct Preempted {
  std::int32_t num_overtaken = 0;
  Progress progress = {};
  bool is_saved = false;  ///< the caller has kept the contents of the cache and puts them into the next one
};

/// Nothing held; forgotten by the next plan.
struct Finished {};

using State = std::variant<Waiting, Prefilling, Decoding, Preempted, Finished>;

/// Who comes first: the higher priority, then the earlier arrival. Everything the scheduler says about older and younger requests
/// is about this order.
struct Rank {
  std::int32_t priority = 0;
  std::uint64_t arrival = 0;

  friend bool operator==(const Rank&, const Rank&) = default;
  /// Less: comes first.
  friend std::strong_ordering operator<=>(const Rank& a, const Rank& b) {
    return a.priority != b.priority ? b.priority <=> a.priority : a.arrival <=> b.arrival;
  }
};

/// One request as the scheduler knows it: counts and state.
struct Request {
  RequestId id;
  Rank rank = {};
  std::int32_t num_prompt = 0;                    ///< tokens known at submission
  std::int32_t num_tokens = 0;                    ///< known tokens: prompt and outputs so far
  std::int32_t max_positions = 0;                 ///< positions that are ever computed; the last output token is not
  std::vector<kvcache::BlockHash> prefixes = {};  ///< of the blocks that the known tokens fill
  std::vector<WholeSpan> whole_spans = {};        ///< of its images, ascending
  std::int32_t num_published = 0;                 ///< leading blocks of this holding that others may find
  std::int32_t saved_end = 0;                     ///< position that the holding's saved state stands for
  bool was_admitted = false;
  bool scores_prompt = false;
  State state;
};

/// Positions in the cache; 0 for states without one.
[[nodiscard]] std::int32_t num_computed(const Request& request);
/// Positions that must be computed before the next token can be sampled.
[[nodiscard]] inline std::int32_t num_uncomputed(const Request& request) { return request.num_tokens - num_computed(request); }
/// The cache of a running request; nullptr in other states.
[[nodiscard]] const kvcache::Holding* holding(const Request& request);
[[nodiscard]] kvcache::Holding* holding(Request& request);
/// Overtakings of a queued request; nullptr in other states.
[[nodiscard]] std::int32_t* num_overtaken(Request& request);

/// Waiting or Preempted → Prefilling.
[[nodiscard]] Prefilling admit(State&& queued, kvcache::Holding&& cache, const PrefixUse& use = {});
/// Prefilling → Decoding, when all known tokens are computed and one more is known.
[[nodiscard]] Decoding start_decoding(Prefilling&& state);
/// Where a running request stands.
[[nodiscard]] Progress progress_of(const Request& request);
/// Prefilling or Decoding → Preempted.
[[nodiscard]] Preempted preempt(State&& running, const Progress& progress, kvcache::CachePool& pool);
/// Any state → Finished.
[[nodiscard]] Finished finish(State&& state, kvcache::CachePool& pool);

}  // namespace deepinfer::scheduler
