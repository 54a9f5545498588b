// What is wanted of each row of logits of the launched step: a token that the device draws, or the logits themselves, for requests whose
// next token needs more than the row, parameters and a mask. Both ways give the same tokens.
#include "engine/engine.h"
#include "grammar/matcher.h"

namespace deepinfer::engine {

/// Behind a launch, while the device computes.
void Engine::draw_rows() {
  if (!parts_.model.draw) {
    return;
  }
  draws_.clear();
  num_masks_ = 0;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    ChunkOwner& owner = chunk_owners_[i];
    owner.is_drawn = owner.is_complete && chunks_[i].num_logit_rows == 1 + owner.num_drafts && can_draw(*owner.live);
    if (owner.is_drawn) {
      draw_chunk(*owner.live, chunks_[i]);
    } else {
      draws_.insert(draws_.end(), static_cast<std::size_t>(chunks_[i].num_logit_rows), {.wants_logits = true});
    }
  }
  parts_.model.draw(draws_);
}

/// Whether its tokens follow from its rows, parameters and masks alone.
bool Engine::can_draw(const LiveRequest& live) const {
  const SamplingParams& wanted = live.sampling();
  const bool is_coupled = !rejection_ || sampling_params(live).is_greedy();
  const bool is_scored = wanted.want_prompt_logprobs && live.num_scored() < live.num_prompt();
  return is_coupled && !is_scored && !wanted.want_logprobs && !wanted.adjustments.change_logits() && live.notes.followers.empty();
}

/// The token that comes `offset` places behind the last known one.
TokenDraw Engine::token_draw(const LiveRequest& live, std::int64_t offset) {
  const SamplingParams& wanted = live.sampling();
  return {.temperature = wanted.temperature,
          .top_p = wanted.top_p,
          .min_p = wanted.min_p,
          .seed = wanted.seed,
          .position = static_cast<std::int64_t>(live.tokens().size()) + offset,
          .top_k = wanted.top_k};
}

/// One draw per row. The constraint is followed along the drafts, as if all were accepted, and taken back.
void Engine::draw_chunk(LiveRequest& live, const model::Chunk& chunk) {
  grammar::Matcher* const matcher = live.matcher();
  const std::span<const TokenId> drafts = chunk.tokens.last(static_cast<std::size_t>(chunk.num_logit_rows) - 1);
  std::size_t num_matched = 0;
  bool is_closed = false;  // behind a draft that ends the reply nothing is looked at
  for (std::size_t row = 0; row <= drafts.size(); ++row) {
    model::RowDraw draw{.draw = token_draw(live, static_cast<std::int64_t>(row))};
    if (matcher != nullptr && !is_closed) {
      draw.mask = next_mask(*matcher);
      if (row < drafts.size()) {
        const bool is_accepted = matcher->accept(drafts[row]);
        num_matched += is_accepted ? 1 : 0;
        is_closed = !is_accepted || matcher->has_ended() || matcher->is_finished();
      }
    }
    draws_.push_back(draw);
  }
  if (num_matched > 0) {
    matcher->rollback(num_matched);
  }
}

std::span<const std::uint32_t> Engine::next_mask(grammar::Matcher& matcher) {
  const std::size_t size = parts_.vocabulary->mask_words();
  const std::span<std::uint32_t> mask = std::span(masks_).subspan(num_masks_ * size, size);
  ++num_masks_;
  const TimePoint begin = parts_.clock->now();
  matcher.fill_mask(mask);
  counters_.mask_time.add(parts_.clock->now() - begin);
  return mask;
}

}  // namespace deepinfer::engine
