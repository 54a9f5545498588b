// What images add to a step: the names of the blocks that they fill, and their encoding between two steps.
#include "engine/engine.h"

namespace deepinfer::engine {

/// The name of the block of known tokens that ends at `end`, behind the last one that was named.
kvcache::BlockHash Engine::name_of_block(LiveRequest& live, std::size_t end) {
  const auto size = static_cast<std::size_t>(parts_.geometry.positions_per_block);
  const auto tokens = live.tokens().subspan(end - size, size);
  if (live.images().empty()) {
    return kvcache::next_hash(live.notes.last_prefix, tokens);
  }
  const PositionRange block{.first = static_cast<std::int32_t>(end - size), .end = static_cast<std::int32_t>(end)};
  return kvcache::next_hash(live.notes.last_prefix, tokens, live.images().in_block(block));
}

/// A piece of the work on the next image that a prompt needs. False: there was nothing to do.
bool Engine::encode_images() {
  bool did_something = false;
  for (const scheduler::NeededSpan& needed : needed_spans_) {
    const auto found = live_.find(needed.request);
    if (found == live_.end() || found->second.is_finished()) {
      continue;
    }
    did_something = true;
    const RequestImages::Progress progress = found->second.images().advance(needed.first_position, image_encoder_);
    if (progress != RequestImages::Progress::underway) {
      apply(scheduler::SpanReady{.request = needed.request, .first_position = needed.first_position});
    }
    if (progress != RequestImages::Progress::known) {
      break;
    }
  }
  needed_spans_.clear();
  return did_something;
}

}  // namespace deepinfer::engine
