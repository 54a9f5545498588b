// What an admission takes from the prefix cache: exact reuse starts behind a block whose state was kept, bounded reuse (model.md 10.2,
// 10.3) a window before the end of the cached blocks. Pure arithmetic on what the pool has.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "kvcache/cache_pool.h"

namespace deepinfer::scheduler {

enum class Reuse : std::uint8_t {
  none,
  exact,    ///< a hit gives the bits of a cold start
  bounded,  ///< window rows before a hit are computed from a short run-up, and the decoder half sees the last rows of the prompt only
};

struct ReusePolicy {
  Reuse reuse = Reuse::none;
  bool bounded_replay = false;   ///< prompts are computed with bounded replay, whether prefixes are reused or not
  std::int32_t window = 0;       ///< bounded: positions of a window, itself included
  std::int32_t keep = 0;         ///< bounded: last positions of a prompt that pass the decoder half
  bool has_lower_tiers = false;  ///< what is evicted is noted for them
};

/// Why a request did not find all of its prompt that could have been found.
enum class PrefixMiss : std::uint8_t {
  none,       ///< it did
  too_short,  ///< no full block before the last token, or nothing before the part that is computed anyway
  diverged,   ///< no earlier request went on as this one does
  evicted,    ///< it was there once
  no_state,   ///< exact: the blocks are there, the state behind them is not
  disabled,
};
inline constexpr std::size_t kNumPrefixMisses = 6;
/// As metrics and logs say it: "none", "too_short", …
[[nodiscard]] std::string_view name_of(PrefixMiss miss);

/// What the cache gave a request.
struct PrefixReport {
  std::int32_t num_cached = 0;  ///< positions that are not computed
  PrefixMiss miss = PrefixMiss::none;
  std::int32_t first_miss = 0;  ///< position from which nothing was found
};

struct PrefixUse {
  std::int32_t num_shared_blocks = 0;  ///< leading blocks taken from the cache
  SlotId state{};                      ///< exact: the state to start from; 0: none
  std::int32_t first_position = 0;     ///< computing starts here
  std::int32_t first_valid = 0;
  std::int32_t stored_until = 0;
  std::int32_t checkpoint = 0;  ///< exact: where the cached blocks end without a state; 0: nowhere
  bool is_resumed = false;      ///< nothing is taken from the prefix cache: the caller puts back what it saved of a preempted request
  PrefixReport report;
};

/// `prefixes`: of the blocks that the request's `num_tokens` known tokens fill; `num_prompt` of these were submitted. At least one
/// token is left to compute.
[[nodiscard]] PrefixUse choose_prefix(const kvcache::CachePool& pool, const ReusePolicy& policy,
                                      std::span<const kvcache::BlockHash> prefixes, std::int32_t num_tokens, std::int32_t num_prompt);

}  // namespace deepinfer::scheduler
