// A step: cancels, plan, one forward, one token per row of logits, apply, outputs.
#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

/// The chunk and up to `lookback` tokens before it.
model::Chunk make_chunk(const scheduler::PlannedChunk& planned, std::span<const TokenId> tokens, std::int32_t lookback) {
  const auto first = static_cast<std::size_t>(planned.first_position);
  const auto num_previous = static_cast<std::size_t>(std::min(planned.first_position, lookback));
  return {.slot = planned.slot,
          .blocks = planned.blocks,
          .first_position = planned.first_position,
          .tokens = tokens.subspan(first, static_cast<std::size_t>(planned.num_tokens)),
          .previous = tokens.subspan(first - num_previous, num_previous),
          .num_logit_rows = planned.num_logit_rows};
}

}  // namespace

Engine::Engine(EngineParts parts, const EngineOptions& options)
    : parts_(std::move(parts)),
      limits_{.vocab_size = parts_.vocab_size, .max_model_len = options.max_model_len},
      max_unfinished_(options.max_requests + options.max_queue),
      scheduler_({.max_requests = options.max_requests, .max_batched_tokens = options.max_batched_tokens}, parts_.geometry),
      sampler_(parts_.vocab_size),
      adjusted_(static_cast<std::size_t>(parts_.vocab_size)) {
  check(limits_.max_model_len >= 1, "the longest context is known");
  check(limits_.max_model_len <= scheduler_.pool().max_positions(), "the cache holds one request of the longest context");
  check(scheduler_.pool().slots().capacity() >= 1, "there is a slot to run in");
  counters_.last_progress = parts_.clock->now();
}

Result<RequestId> Engine::submit(GenerationRequest request, OutputSink sink) {
  if (auto checked = check_request(request, limits_); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  if (static_cast<std::int32_t>(live_.size()) >= max_unfinished_) {
    return queue_is_full(max_unfinished_);
  }
  const RequestId id{++last_id_};
  start(id, std::move(request), std::move(sink));
  return id;
}

void Engine::start(RequestId id, GenerationRequest&& request, OutputSink&& sink) {
  const std::int32_t max_total = max_total_tokens(request, limits_);
  const auto num_prompt = static_cast<std::int32_t>(request.prompt.size());
  const bool inserted =
      live_.try_emplace(id, id, std::move(request), RequestSize{.max_total = max_total, .vocab_size = parts_.vocab_size}, std::move(sink))
          .second;
  check(inserted, "an id names one request");
  apply(scheduler::Submitted{.request = id, .num_tokens = num_prompt, .max_positions = max_total - 1});
}

void Engine::cancel(RequestId request) { cancels_.push_back(request); }

void Engine::cancel_all() {
  for (const auto& [id, live] : live_) {
    cancels_.push_back(id);
  }
}

bool Engine::step() {
  end_cancelled();
  const scheduler::StepPlan& plan = scheduler_.plan();
  counters_.num_preemptions += static_cast<std::int64_t>(plan.preempted.size());
  if (!plan.chunks.empty()) {
    run(plan);
  }
  const bool did_something = !plan.chunks.empty() || !to_deliver_.empty();
  if (did_something) {
    ++counters_.num_steps;
    counters_.last_progress = parts_.clock->now();
  }
  deliver();
  return did_something;
}

void Engine::end_cancelled() {
  for (const RequestId id : cancels_) {
    const auto found = live_.find(id);
    if (found == live_.end() || found->second.is_finished()) {
      continue;
    }
    found->second.finish(FinishReason::cancelled);
    apply(scheduler::Ended{.request = id});
    to_deliver_.push_back(&found->second);
  }
  cancels_.clear();
}

void Engine::run(const scheduler::StepPlan& plan) {
  chunks_.clear();
  chunk_owners_.clear();
  std::int32_t num_rows = 0;
  for (const scheduler::PlannedChunk& planned : plan.chunks) {
    LiveRequest& live = live_.at(planned.request);
    chunks_.push_back(make_chunk(planned, live.tokens(), parts_.num_previous_tokens));
    chunk_owners_.push_back(&live);
    num_rows += planned.num_logit_rows;
  }
  const std::span<const float> logits = parts_.forward(chunks_);
  const auto row_size = static_cast<std::size_t>(parts_.vocab_size);
  check(logits.size() == static_cast<std::size_t>(num_rows) * row_size, "the model returns one row of logits per wanted row");
  counters_.num_prefill_tokens += plan.num_tokens - plan.num_decode_chunks;

  events_.clear();
  std::size_t row_start = 0;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const auto num_computed = static_cast<std::int32_t>(chunks_[i].tokens.size());
    LiveRequest& live = *chunk_owners_[i];
    if (chunks_[i].num_logit_rows == 0) {
      events_.push_back(scheduler::Advanced{.request = live.id(), .num_computed = num_computed, .num_new_tokens = 0});
      continue;
    }
    events_.push_back(take_row(live, num_computed, logits.subspan(row_start, row_size)));
    row_start += row_size;
    to_deliver_.push_back(&live);
  }
  scheduler_.apply(events_);
}

/// The token of one row, and what the scheduler has to know of it.
scheduler::Event Engine::take_row(LiveRequest& live, std::int32_t num_computed, std::span<const float> logits) {
  const SamplingParams& wanted = live.sampling();
  const auto position = static_cast<std::int64_t>(live.tokens().size());
  const auto token = sampler_.sample(
      adjusted(live, logits), {.temperature = wanted.temperature, .top_p = wanted.top_p, .top_k = wanted.top_k, .min_p = wanted.min_p},
      {.seed = wanted.seed, .position = position}, logits);
  if (!token) {
    live.finish(FinishReason::failed, "at position " + std::to_string(position) + " " + std::string(sampling::describe(token.error())));
    ++counters_.num_failed;
  } else if (*token == parts_.eos && !live.ignores_eos()) {
    live.finish(FinishReason::stop);
  } else {
    live.add(token_output(*token, wanted), parts_.token_bytes(*token));
    ++counters_.num_generated_tokens;
  }
  if (live.is_finished()) {
    return scheduler::Ended{.request = live.id()};
  }
  return scheduler::Advanced{.request = live.id(), .num_computed = num_computed, .num_new_tokens = 1};
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

/// By index: a sink may submit and cancel. Requests that are over are forgotten after their last output.
void Engine::deliver() {
  for (std::size_t i = 0; i < to_deliver_.size(); ++i) {
    LiveRequest& live = *to_deliver_[i];
    live.deliver();
    if (live.is_finished()) {
      ++counters_.num_finished;
      live_.erase(live.id());
    }
  }
  to_deliver_.clear();
}

EngineStats Engine::stats() const {
  EngineStats out = counters_;
  out.num_running = scheduler_.num_running();
  out.num_waiting = scheduler_.num_queued();
  out.num_blocks_used = scheduler_.pool().blocks().num_used();
  out.num_blocks = scheduler_.pool().blocks().capacity();
  out.num_slots_used = scheduler_.pool().slots().num_used();
  out.num_slots = scheduler_.pool().slots().capacity();
  return out;
}

}  // namespace deepinfer::engine
