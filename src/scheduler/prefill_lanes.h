// How one step's prefill budget is divided among prompts: a lane in order of arrival and an express lane for little work.
// Pure arithmetic; admission is a question to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace deepinfer::scheduler {

/// One prompt that wants rows, in order of arrival.
struct PrefillShare {
  std::int32_t num_wanted = 0;   ///< positions left to compute; 0: it waits for something else
  std::int32_t num_granted = 0;  ///< rows of this step; result
  bool running = false;          ///< holds its cache; set when `admit` succeeds
  std::int32_t num_least = 1;    ///< fewer rows are of no use to it now: it begins with a span that is not cut
};

/// Share of the prefill budget that is served in order of least work: 1 / kExpressFraction. A quarter delays the oldest prompt by
/// at most a third and gives a short one a rate that does not depend on the prompts before it.
inline constexpr std::int32_t kExpressFraction = 4;

/// Divides `budget` rows. `admit(i)` is asked before a share that is not running gets its first row, oldest first in the arrival
/// lane; when it says no, the share gets nothing in this step, when it says yes, it may have lowered the share's num_wanted.
/// `cut(i, n)`: the most rows up to n after which share i may stop; empty: any number. The oldest running share gets at least num_least
/// rows when the budget has them, so every prompt goes on once it is the oldest.
void divide_prefill_budget(std::int32_t budget, std::span<PrefillShare> shares, const std::function<bool(std::size_t)>& admit,
                           const std::function<std::int32_t(std::size_t, std::int32_t)>& cut = {});

}  // namespace deepinfer::scheduler
