// Positions of a prompt that are computed in one step or not at all, and not before they are ready: the spans of images (model.md 10.1).
// Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "scheduler/prefix_use.h"

namespace deepinfer::scheduler {

struct WholeSpan {
  std::int32_t first_position = 0;
  std::int32_t num_positions = 0;
  bool is_ready = true;  ///< false: its input is being made; it is not computed before SpanReady
};

/// The last position up to `end` where computing may stop and start. `spans` ascend and are disjoint.
[[nodiscard]] std::int32_t last_cut(std::span<const WholeSpan> spans, std::int32_t end);
/// Rows that the next chunk has at least when it begins at `position`, where a cut may be.
[[nodiscard]] std::int32_t fewest_rows(std::span<const WholeSpan> spans, std::int32_t position);
/// The first span from `position` on that is not ready; nullptr when there is none.
[[nodiscard]] const WholeSpan* first_unready(std::span<const WholeSpan> spans, std::int32_t position);
/// `use`, starting and stopping where cuts may be. Bounded replay starts earlier; a start at 0 takes nothing from the cache.
[[nodiscard]] PrefixUse without_cuts_inside(std::span<const WholeSpan> spans, PrefixUse use);

}  // namespace deepinfer::scheduler
