// Rows of logits to tokens: the log probabilities of prompts, the token of each request, and what the scheduler has to know of it.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"
#include "grammar/matcher.h"
#include "sampling/row_mask.h"

namespace deepinfer::engine {

void Engine::collect_rows() {
  model::StepRows left = parts_.model.wait();
  forward_end_ = parts_.clock->now();
  note_fault();
  if (!counters_.fault.empty()) {
    end_all_with_fault();
    return;
  }
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const auto [live, is_complete, num_drafts, is_drawn] = chunk_owners_[i];
    const auto num_rows = static_cast<std::size_t>(chunks_[i].num_logit_rows);
    const std::size_t num_logits = is_drawn ? 0 : num_rows * static_cast<std::size_t>(parts_.vocab_size);
    const std::size_t num_tokens = is_drawn ? num_rows : 0;
    check(num_logits <= left.logits.size() && num_tokens <= left.tokens.size(), "the model returns what is wanted of every row");
    const ChunkRows rows{.logits = left.logits.first(num_logits), .tokens = left.tokens.first(num_tokens)};
    left = {.logits = left.logits.subspan(num_logits), .tokens = left.tokens.subspan(num_tokens)};
    if (live->num_scored() < live->num_prompt() && live->sampling().want_prompt_logprobs) {
      score_prompt(*live, chunks_[i], rows.logits);
    }
    if (num_drafts > 0) {
      take_draft_rows(*live, chunks_[i], rows);
    } else if (is_complete && !live->is_finished()) {
      take_row(*live, row_of(rows, num_rows - 1));
    }
  }
  check(left.logits.empty() && left.tokens.empty(), "the model returns nothing else");
}

Engine::Row Engine::row_of(const ChunkRows& rows, std::size_t index) const {
  if (!rows.tokens.empty()) {
    return {.logits = {}, .token = rows.tokens[index]};
  }
  const auto size = static_cast<std::size_t>(parts_.vocab_size);
  return {.logits = rows.logits.subspan(index * size, size), .token = std::nullopt};
}

/// The log probabilities of the prompt tokens behind the rows of a chunk. A prompt that is computed again has had some of them.
void Engine::score_prompt(LiveRequest& live, const model::Chunk& chunk, std::span<const float> rows) {
  const SamplingParams& wanted = live.sampling();
  const auto row_size = static_cast<std::size_t>(parts_.vocab_size);
  const auto first = static_cast<std::size_t>(chunk.first_position) + 1;  // token that the first row is about
  while (live.num_scored() >= first && live.num_scored() < std::min(first + chunk.tokens.size(), live.num_prompt())) {
    const std::span<const float> row = rows.subspan((live.num_scored() - first) * row_size, row_size);
    const auto read = sampler_.distribution().read(
        row, {.temperature = wanted.temperature, .top_p = wanted.top_p, .top_k = wanted.top_k, .min_p = wanted.min_p});
    if (!read) {
      fail_request(live, sampling::describe(read.error()));
      apply(scheduler::Ended{.request = live.id()});
      break;
    }
    live.add_prompt(token_output(live.tokens()[live.num_scored()], wanted));
  }
  await_delivery(live);
}

/// The token of one row, and what the scheduler has to know of it.
void Engine::take_row(LiveRequest& live, const Row& row) {
  start_followers(live, row.logits);
  sample_token(live, row);
  if (live.is_finished()) {
    apply(scheduler::Ended{.request = live.id()});
  } else if (shares_prefixes_) {
    extend_prefixes(live);
  }
  await_delivery(live);
}

sampling::Params Engine::sampling_params(const LiveRequest& live) {
  const SamplingParams& wanted = live.sampling();
  return {.temperature = wanted.temperature, .top_p = wanted.top_p, .top_k = wanted.top_k, .min_p = wanted.min_p};
}

/// The next token from its row. `draft`: place of the draft that was proposed for it, or -1; returns whether that is accepted.
bool Engine::sample_token(LiveRequest& live, const Row& row, std::int32_t draft) {
  const auto verdict = row.token ? verdict_of(live, *row.token, draft) : judge(live, row.logits, draft);
  if (!verdict) {
    fail_request(live, sampling::describe(verdict.error()));
    return false;
  }
  take_token(live, verdict->token);
  return verdict->accepted;
}

/// Names the block that the last token filled, if it did.
void Engine::extend_prefixes(LiveRequest& live) {
  if (live.sampling().want_prompt_logprobs) {
    return;  // shares nothing, from its prompt on
  }
  const std::int32_t block_size = parts_.geometry.positions_per_block;
  LiveRequest::Notes& notes = live.notes;
  if (static_cast<std::int32_t>(live.tokens().size()) == notes.num_hashed_tokens + block_size) {
    notes.last_prefix = name_of_block(live, live.tokens().size());
    notes.num_hashed_tokens += block_size;
    apply(scheduler::BlockFilled{.request = live.id(), .prefix = notes.last_prefix});
  }
}

/// The row with the request's penalties and bias; the row itself when there are none.
std::span<const float> Engine::adjusted(const LiveRequest& live, std::span<const float> logits) {
  const sampling::Adjustments& adjustments = live.sampling().adjustments;
  if (!adjustments.change_logits()) {
    return logits;
  }
  adjusted_.assign(logits.begin(), logits.end());
  sampling::adjust(adjusted_, adjustments, live.history());
  return adjusted_;
}

void Engine::take_token(LiveRequest& live, TokenId token) {
  grammar::Matcher* const matcher = live.matcher();
  if (matcher != nullptr && !matcher->accept(token)) {
    fail_request(live, matcher->is_exhausted() ? "the constraint is too ambiguous: it needs more parser items or automaton states than the limit"
                                               : "the constraint refused a token that its mask allowed");
    return;
  }
  // A constraint may name the id that ends texts; there it is a token like others.
  const bool is_end = matcher != nullptr ? matcher->has_ended() : token == parts_.eos && !live.ignores_eos();
  if (is_end) {
    live.finish(FinishReason::stop);
    return;
  }
  live.add(token_output(token, live.sampling()), parts_.token_bytes(token));
  ++counters_.num_generated_tokens;
}

/// The logits with those removed that the request's constraint does not allow here.
std::span<const float> Engine::allowed_logits(LiveRequest& live, std::span<const float> logits) {
  if (live.matcher() == nullptr) {
    return logits;
  }
  const TimePoint begin = parts_.clock->now();
  live.matcher()->fill_mask(mask_);
  counters_.mask_time.add(parts_.clock->now() - begin);
  sampling::mask_row(logits, mask_, masked_row_);
  return masked_row_;
}

void Engine::fail_request(LiveRequest& live, std::string_view why) {
  live.finish(FinishReason::failed, "at position " + std::to_string(live.tokens().size()) + " " + std::string(why));
  ++counters_.num_failed;
}

TokenOutput Engine::token_output(TokenId token, const SamplingParams& wanted) {
  TokenOutput out{.token = token};
  if (wanted.want_logprobs) {
    sampling::Distribution& distribution = sampler_.distribution();
    out.logprob = distribution.logprob(token.value, wanted.logprob_kind);
    for (const sampling::TokenLogprob& entry : distribution.top(wanted.num_top_logprobs, wanted.logprob_kind)) {
      out.top_logprobs.emplace_back(entry.token, entry.logprob);
    }
  }
  return out;
}

}  // namespace deepinfer::engine
