// Speculative decoding: proposals behind a step, their number in the next, their verdicts. Tokens are those of plain steps: each row of a
// verification is sampled as ever, and the next row counts only when its draft is what was sampled (coupled rule).
#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/engine.h"
#include "grammar/matcher.h"

namespace deepinfer::engine {
namespace {

bool is_decoding(const scheduler::Request* request) {
  return request != nullptr && std::holds_alternative<scheduler::Decoding>(request->state);
}

/// A model that parts words so often as its tokenizer does is asked no further; else its drafter knows better.
constexpr float kSureOfSplit = 0.9F;

/// Of the text that is looked at ahead: nearly all tokens are shorter.
constexpr std::size_t kForcedBytesPerDraft = 32;

double seconds_between(TimePoint begin, TimePoint end) { return std::chrono::duration<double>(end - begin).count(); }

}  // namespace

/// Before a plan: how many drafts of each request are verified.
void Engine::plan_drafts() {
  rates_.clear();
  older_rates_.clear();
  std::erase_if(draft_owners_, [this](RequestId id) { return !live_.contains(id) || !is_decoding(scheduler_.find(id)); });
  for (const RequestId id : draft_owners_) {
    const LiveRequest::Drafts& drafts = live_.at(id).drafts;
    rates_.push_back({drafts.rates});
    older_rates_.push_back({drafts.older_rates});
  }
  const auto num_drafts = speculation_->plan(older_rates_, rates_, max_batched_tokens_);
  for (std::size_t i = 0; i < draft_owners_.size(); ++i) {
    if (num_drafts[i] > 0) {
      apply(scheduler::Drafted{.request = draft_owners_[i], .num_drafts = num_drafts[i]});
    }
  }
}

/// The rows of a chunk with drafts, as far as they are accepted.
void Engine::take_draft_rows(LiveRequest& live, const model::Chunk& chunk, const ChunkRows& rows) {
  const std::size_t num_drafts = chunk.tokens.size() - 1;
  live.drafts.num_verified += static_cast<std::int32_t>(num_drafts);
  std::int32_t num_accepted = 0;
  for (std::size_t row = 0; row <= num_drafts; ++row) {
    const bool accepted = sample_token(live, row_of(rows, row), row < num_drafts ? static_cast<std::int32_t>(row) : -1);
    num_accepted += accepted ? 1 : 0;
    live.drafts.num_accepted += accepted ? 1 : 0;
    if (row < num_drafts && live.drafts.forced[row] != 0) {
      speculation_->record_forced(accepted);
    } else if (row < num_drafts) {
      speculation_->record_verdict(static_cast<std::int32_t>(row), live.drafts.logits[row], accepted);
    }
    if (live.is_finished()) {
      break;
    }
    apply(scheduler::Advanced{.request = live.id(), .num_computed = 1, .num_new_tokens = 1});
    if (shares_prefixes_) {
      extend_prefixes(live);
    }
    if (!accepted) {
      break;
    }
  }
  speculation_->record_round(static_cast<std::int32_t>(num_drafts), num_accepted);
  if (live.is_finished()) {
    apply(scheduler::Ended{.request = live.id()});
  }
  await_delivery(live);
}

/// Whether what the device drew is the draft at place `draft`, if there is one.
Engine::Judgement Engine::verdict_of(const LiveRequest& live, std::int32_t drawn, std::int32_t draft) {
  if (drawn < 0) {
    return std::unexpected(drawn == kRowNotFinite ? sampling::RowFailure::not_finite : sampling::RowFailure::nothing_allowed);
  }
  const TokenId token{drawn};
  return sampling::Verdict{.accepted = draft >= 0 && token == live.drafts.rows[static_cast<std::size_t>(draft) + 1], .token = token};
}

/// The token of a row; `draft`: place of the row's draft, or -1.
Engine::Judgement Engine::judge(LiveRequest& live, std::span<const float> logits, std::int32_t draft) {
  const sampling::Params params = sampling_params(live);
  const sampling::RandomKey key{.seed = live.sampling().seed, .position = static_cast<std::int64_t>(live.tokens().size())};
  const std::span<const float> raw = allowed_logits(live, logits);
  const std::span<const float> row = adjusted(live, raw);
  const bool has_draft = draft >= 0;
  const TokenId proposal = has_draft ? live.drafts.rows[static_cast<std::size_t>(draft) + 1] : TokenId{};
  if (!rejection_ || params.is_greedy()) {
    const auto token = sampler_.sample(row, params, key, raw);
    if (!token) {
      return std::unexpected(token.error());
    }
    return sampling::Verdict{.accepted = has_draft && *token == proposal, .token = *token};
  }
  sampling::Distribution& target = sampler_.distribution();
  if (const auto read = target.read(row, params, raw); !read) {
    return std::unexpected(read.error());
  }
  target.scatter(target_row_);
  if (!has_draft || live.drafts.forced[static_cast<std::size_t>(draft)] != 0) {
    // A draft that nobody drew is accepted with the target's own probability when it is what the target draws.
    const TokenId token = rejection_->sample(target_row_, key);
    return sampling::Verdict{.accepted = has_draft && token == proposal, .token = token};
  }
  const auto row_size = static_cast<std::size_t>(parts_.vocab_size);
  const auto drawn_from = std::span(live.drafts.log_probs).subspan(static_cast<std::size_t>(draft) * row_size, row_size);
  return rejection_->verify(target_row_, drawn_from, proposal, key);
}

/// Behind a step: proposals for every decoding request, the drafter's if they are worth it.
void Engine::propose_drafts() {
  report_step();
  draft_owners_.clear();
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    LiveRequest& live = *chunk_owners_[i].live;
    if (chunk_owners_[i].is_complete && !live.is_finished() && is_decoding(scheduler_.find(live.id()))) {
      draft_owners_.push_back(live.id());
    }
    live.drafts.rows.clear();
  }
  const bool wants_drafter = speculation_->wants_drafts(static_cast<std::int32_t>(draft_owners_.size()));
  prefers_forced_ = speculation_->forced_confidence() >= kSureOfSplit;
  draft_starts_.clear();
  drafting_.clear();
  for (const RequestId id : draft_owners_) {
    LiveRequest& live = live_.at(id);
    begin_drafts(live);
    if (!wants_drafter || prefers_forced_) {
      append_forced(live);
    }
    const bool has_room = !live.drafts.rows.empty() && static_cast<std::int32_t>(live.drafts.count()) < speculation_->max_drafts();
    if (wants_drafter && has_room && !live.drafts.is_closed) {
      draft_starts_.push_back({.slot = scheduler::holding(*scheduler_.find(id))->slot,
                               .position = static_cast<std::int32_t>(live.tokens().size()) - 1,
                               .anchor = live.tokens().back()});
      drafting_.push_back(&live);
    }
  }
  if (!drafting_.empty()) {
    run_drafter();
  }
  for (const RequestId id : draft_owners_) {
    rate_drafts(live_.at(id));
  }
}

/// The anchor of a proposal.
void Engine::begin_drafts(LiveRequest& live) {
  LiveRequest::Drafts& drafts = live.drafts;
  std::swap(drafts.older_rates, drafts.rates);
  drafts.rates.clear();
  drafts.logits.clear();
  drafts.forced.clear();
  drafts.num_matched = 0;
  drafts.is_closed = false;
  if (live.notes.drafts && static_cast<std::int32_t>(live.tokens().size()) + 1 <= live.max_total() - 1) {
    drafts.rows.push_back(live.tokens().back());
  }  // else not wanted, or no position is left for one
}

/// Jump-ahead: what the constraint leaves no choice about but the split into tokens is proposed as the tokenizer splits it. Such drafts are
/// verified as any others, so that the tokens are those without them.
void Engine::append_forced(LiveRequest& live) {
  LiveRequest::Drafts& drafts = live.drafts;
  grammar::Matcher* const matcher = live.matcher();
  if (matcher == nullptr || !jumps_ahead_) {
    return;
  }
  const auto max_drafts = static_cast<std::size_t>(speculation_->max_drafts());
  bool is_any = true;
  while (is_any && drafts.count() < max_drafts && !drafts.is_closed) {
    is_any = false;
    if (const auto token = matcher->forced_token()) {
      is_any = append_draft(live, *token);
    } else if (const std::string text = matcher->forced((max_drafts - drafts.count()) * kForcedBytesPerDraft); !text.empty()) {
      for (const TokenId id : parts_.forced_tokens(text)) {
        is_any = drafts.count() < max_drafts && append_draft(live, id);
        if (!is_any) {
          break;
        }
      }
    }
    drafts.forced.resize(drafts.count(), 1);
  }
}

/// False, and closed, when the constraint refuses the token.
bool Engine::append_draft(LiveRequest& live, TokenId token) {
  LiveRequest::Drafts& drafts = live.drafts;
  grammar::Matcher* const matcher = live.matcher();
  if (matcher != nullptr && !matcher->accept(token)) {
    drafts.is_closed = true;
    return false;
  }
  drafts.num_matched += matcher != nullptr ? 1 : 0;
  drafts.rows.push_back(token);
  drafts.is_closed = matcher != nullptr ? matcher->has_ended() || matcher->is_finished() : token == parts_.eos && !live.ignores_eos();
  return true;
}

void Engine::run_drafter() {
  const TimePoint begin = parts_.clock->now();
  const std::span<const float> confidences = draft_tokens();
  for (std::size_t r = 0; r < drafting_.size(); ++r) {
    LiveRequest::Drafts& drafts = drafting_[r]->drafts;
    for (std::size_t i = 0; i < drafts.count(); ++i) {
      drafts.logits.push_back(confidences[i * drafting_.size() + r]);
    }
  }
  draft_seconds_ = seconds_between(begin, parts_.clock->now());
  speculation_->record_draft_pass(*draft_seconds_);
}

/// Fills the proposals of drafting_; returns the drafter's confidences, [drafts, requests].
std::span<const float> Engine::draft_tokens() {
  const bool are_drawn = parts_.model.draft_drawn && std::ranges::all_of(drafting_, [this](LiveRequest* live) {
                           return live->matcher() == nullptr && can_draw(*live);
                         });
  if (!are_drawn) {
    return parts_.model.draft(draft_starts_, speculation_->max_drafts(), pick_drafts_);
  }
  draft_draws_.clear();
  for (const LiveRequest* live : drafting_) {
    draft_draws_.push_back(token_draw(*live, 0));
  }
  const model::DrawnDrafts drawn = parts_.model.draft_drawn(draft_starts_, speculation_->max_drafts(), draft_draws_);
  for (std::size_t place = 0; place < drawn.tokens.size(); ++place) {
    LiveRequest& live = *drafting_[place % drafting_.size()];
    if (!live.drafts.is_closed) {
      append_draft(live, {drawn.tokens[place]});
      live.drafts.forced.resize(live.drafts.count(), 0);
    }
  }
  return drawn.confidences;
}

/// How likely the drafts are accepted; the matcher is back at the last known token.
void Engine::rate_drafts(LiveRequest& live) const {
  LiveRequest::Drafts& drafts = live.drafts;
  drafts.logits.resize(drafts.count(), 0.0F);
  float rate = 1;
  for (std::size_t i = 0; i < drafts.count(); ++i) {
    rate *= drafts.forced[i] != 0 ? speculation_->forced_confidence()
                                  : speculation_->chance(static_cast<std::int32_t>(i), drafts.logits[i]);
    drafts.rates.push_back(rate);
  }
  drafts.older_rates.resize(std::min(drafts.older_rates.size(), drafts.count()));
  for (std::size_t i = drafts.older_rates.size(); i < drafts.count(); ++i) {
    const float before = i == 0 ? 1.0F : drafts.older_rates[i - 1];
    drafts.older_rates.push_back(drafts.forced[i] != 0 ? before * speculation_->forced_confidence()
                                                       : std::min(before, speculation_->usual_rate(static_cast<std::int32_t>(i))));
  }
  if (grammar::Matcher* matcher = live.matcher()) {
    matcher->rollback(drafts.num_matched);
  }
}

/// Draft number `index` of every request that drafts: what is forced, else what the request would sample from the drafter's row.
void Engine::pick_drafts(std::int32_t index, std::span<const float> logits, std::span<TokenId> tokens) {
  const auto row_size = static_cast<std::size_t>(parts_.vocab_size);
  const auto place = static_cast<std::size_t>(index);
  for (std::size_t r = 0; r < drafting_.size(); ++r) {
    LiveRequest& live = *drafting_[r];
    LiveRequest::Drafts& drafts = live.drafts;
    if (place >= drafts.count() && !drafts.is_closed) {
      const auto token = propose(live, index, logits.subspan(r * row_size, row_size));
      drafts.is_closed = !token || !append_draft(live, *token) || drafts.is_closed;
      drafts.forced.resize(drafts.count(), 0);
      if (!drafts.is_closed && prefers_forced_) {
        append_forced(live);
      }
    }
    tokens[r] = place < drafts.count() ? drafts.rows[place + 1] : drafts.rows.back();  // where nothing follows: any token
  }
}

/// The drafter samples as the target will: same parameters and, by the coupled rule, the same noise.
std::optional<TokenId> Engine::propose(LiveRequest& live, std::int32_t index, std::span<const float> logits) {
  const sampling::Params params = sampling_params(live);
  const sampling::RandomKey key{.seed = live.sampling().seed, .position = static_cast<std::int64_t>(live.tokens().size()) + index};
  const std::span<const float> row = adjusted(live, allowed_logits(live, logits));
  if (!speculation_->uses_rejection()) {
    const auto token = sampler_.sample(row, params, key);
    return token ? std::optional(*token) : std::nullopt;
  }
  sampling::Distribution& distribution = sampler_.distribution();
  if (!distribution.read(row, params)) {
    return std::nullopt;
  }
  const auto row_size = static_cast<std::size_t>(parts_.vocab_size);
  live.drafts.log_probs.resize(static_cast<std::size_t>(speculation_->max_drafts()) * row_size);
  const auto kept = std::span(live.drafts.log_probs).subspan(static_cast<std::size_t>(index) * row_size, row_size);
  distribution.scatter(kept);
  return params.is_greedy() ? TokenId{distribution.argmax()} : rejection_->sample_draft(kept, key);
}

/// Tells the cost model of a step without prompts.
void Engine::report_step() {
  const std::optional<double> draft_seconds = std::exchange(draft_seconds_, std::nullopt);
  if (num_prefill_rows_ > 0) {
    return;
  }
  StepReport report{.num_requests = static_cast<std::int32_t>(chunks_.size()),
                    .num_tokens = counters_.num_generated_tokens - num_generated_before_step_ -
                                  (speculation_->stats().num_forced_accepted - num_forced_before_step_),
                    .seconds = seconds_between(step_begin_, parts_.clock->now()),
                    .drafted = draft_seconds.has_value(),
                    .draft_seconds = draft_seconds.value_or(0)};
  for (const model::Chunk& chunk : chunks_) {
    report.num_rows += static_cast<std::int32_t>(chunk.tokens.size());
  }
  speculation_->record_step(report);
}

}  // namespace deepinfer::engine
