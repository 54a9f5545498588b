#include "scheduler/prefix_use.h"

#include <algorithm>
#include <array>

namespace deepinfer::scheduler {
namespace {

/// Why the chain of prefixes ends after `num_found` blocks.
PrefixMiss reason_of_end(const kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes, std::int32_t num_found) {
  if (prefixes.empty()) {
    return PrefixMiss::too_short;
  }
  const auto found = static_cast<std::size_t>(num_found);
  if (found == prefixes.size()) {
    return PrefixMiss::none;
  }
  return pool.index().was_here(prefixes[found]) ? PrefixMiss::evicted : PrefixMiss::diverged;
}

PrefixUse choose_exact(const kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) {
  const kvcache::PrefixMatch match = pool.match(prefixes);
  const std::int32_t start = match.num_state_blocks * pool.positions_per_block();
  const std::int32_t end = match.num_blocks * pool.positions_per_block();
  PrefixUse use{.num_shared_blocks = match.num_blocks,
                .first_position = start,
                .stored_until = end,
                .checkpoint = end > start ? end : 0,
                .report = {.num_cached = start, .miss = reason_of_end(pool, prefixes, match.num_blocks), .first_miss = end}};
  if (match.num_state_blocks > 0) {
    use.state = pool.state_behind(prefixes[static_cast<std::size_t>(match.num_state_blocks) - 1]);
  }
  if (end > start && use.report.miss == PrefixMiss::none) {
    use.report.miss = PrefixMiss::no_state;
  }
  return use;
}

PrefixUse choose_bounded(const kvcache::CachePool& pool, const ReusePolicy& policy, std::span<const kvcache::BlockHash> prefixes,
                         std::int32_t num_prompt) {
  const kvcache::PrefixMatch match = pool.match(prefixes);
  const std::int32_t end = match.num_blocks * pool.positions_per_block();
  // The run-up is a window before the hit, and the kept rows are computed in any case. Even, so that no pair of tokens is cut.
  const std::int32_t start = std::min(end - policy.window, num_prompt - policy.keep) / 2 * 2;
  PrefixUse use{.report = {.miss = reason_of_end(pool, prefixes, match.num_blocks), .first_miss = end}};
  if (start > 0) {
    use.num_shared_blocks = match.num_blocks;
    use.first_position = start;
    use.first_valid = start;
    use.stored_until = end;
    use.report.num_cached = start;
  } else if (use.report.miss == PrefixMiss::none) {
    use.report.miss = PrefixMiss::too_short;
  }
  return use;
}

}  // namespace

std::string_view name_of(PrefixMiss miss) {
  constexpr std::array<std::string_view, kNumPrefixMisses> kNames = {"none", "too_short", "diverged", "evicted", "no_state", "disabled"};
  return kNames.at(static_cast<std::size_t>(miss));
}

PrefixUse choose_prefix(const kvcache::CachePool& pool, const ReusePolicy& policy, std::span<const kvcache::BlockHash> prefixes,
                        std::int32_t num_tokens, std::int32_t num_prompt) {
  const auto num_usable = static_cast<std::size_t>((num_tokens - 1) / pool.positions_per_block());
  const auto usable = prefixes.first(std::min(prefixes.size(), num_usable));
  switch (policy.reuse) {
    case Reuse::exact:
      return choose_exact(pool, usable);
    case Reuse::bounded:
      return choose_bounded(pool, policy, usable, num_prompt);
    case Reuse::none:
      break;
  }
  return {.report = {.miss = PrefixMiss::disabled}};
}

}  // namespace deepinfer::scheduler
