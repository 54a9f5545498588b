#include "scheduler/whole_spans.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::scheduler {
namespace {

std::int32_t end_of(const WholeSpan& span) { return span.first_position + span.num_positions; }

}  // namespace

std::int32_t last_cut(std::span<const WholeSpan> spans, std::int32_t end) {
  const auto span = std::ranges::upper_bound(spans, end, {}, end_of);  // the first that goes on behind `end`
  return span == spans.end() ? end : std::min(end, span->first_position);
}

std::int32_t fewest_rows(std::span<const WholeSpan> spans, std::int32_t position) {
  const auto span = std::ranges::lower_bound(spans, position, {}, &WholeSpan::first_position);
  return span == spans.end() || span->first_position != position ? 1 : span->num_positions;
}

const WholeSpan* first_unready(std::span<const WholeSpan> spans, std::int32_t position) {
  const auto begin = std::ranges::lower_bound(spans, position, {}, &WholeSpan::first_position);
  const auto span = std::find_if(begin, spans.end(), [](const WholeSpan& of) { return !of.is_ready; });
  return span == spans.end() ? nullptr : &*span;
}

PrefixUse without_cuts_inside(std::span<const WholeSpan> spans, PrefixUse use) {
  if (use.checkpoint != last_cut(spans, use.checkpoint)) {
    use.checkpoint = 0;
  }
  if (use.first_position == last_cut(spans, use.first_position)) {
    return use;
  }
  check(use.state.value == 0, "states are kept only where a cut may be");
  std::int32_t start = use.first_position;
  while (start != last_cut(spans, start) || start % 2 != 0) {  // even, so that no pair of tokens is cut
    start = last_cut(spans, start) / 2 * 2;
  }
  if (start == 0) {
    PrefixUse none{.report = use.report};
    none.report.num_cached = 0;
    none.report.miss = use.report.miss == PrefixMiss::none ? PrefixMiss::too_short : use.report.miss;
    return none;
  }
  use.first_position = start;
  use.first_valid = start;
  use.report.num_cached = start;
  return use;
}

}  // namespace deepinfer::scheduler
