// A step: cancels, plan, one forward, one token per row of logits (engine_rows.cpp), outputs. The scheduler is told of a step when it is
// launched, so that the next one can be planned while the device computes; ends that only the tokens show are reported when they are known.
#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/matcher.h"

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
          .num_logit_rows = planned.num_logit_rows,
          .keep_from = planned.keep_from,
          .first_valid = planned.first_valid,
          .stored_until = planned.stored_until};
}

scheduler::ReusePolicy reuse_policy(const EngineParts& parts, const EngineOptions& options) {
  scheduler::ReusePolicy out{.bounded_replay = options.replay == Replay::bounded,
                             .window = parts.window,
                             .keep = options.replay_keep == 0 ? parts.window + kDefaultKeepBeyondWindow : options.replay_keep};
  if (options.prefix_cache && out.bounded_replay) {
    out.reuse = scheduler::Reuse::bounded;
  } else if (options.prefix_cache && parts.model.copy_state) {
    out.reuse = scheduler::Reuse::exact;
  }
  out.has_lower_tiers = parts.tiers != nullptr;
  check(!out.bounded_replay || out.keep > out.window, "the decoder half sees a window and the position after it");
  return out;
}

/// Weight of the newest of the times between two ends in their mean.
constexpr double kNewest = 0.1;

}  // namespace

ModelCalls synchronous(std::move_only_function<std::span<const float>(std::span<const model::Chunk>)> forward) {
  const auto logits = std::make_shared<std::span<const float>>();
  return {.launch = [forward = std::move(forward), logits](std::span<const model::Chunk> chunks) mutable { *logits = forward(chunks); },
          .wait = [logits] { return *logits; }};
}

Engine::Engine(EngineParts parts, const EngineOptions& options)
    : parts_(std::move(parts)),
      limits_{.vocab_size = parts_.vocab_size, .max_model_len = options.max_model_len, .takes_constraints = parts_.vocabulary != nullptr},
      max_unfinished_(options.max_requests + options.max_queue),
      overlaps_(options.overlap_depth > 0),
      shares_prefixes_(reuse_policy(parts_, options).reuse != scheduler::Reuse::none),
      scheduler_(
          {.max_requests = options.max_requests, .max_batched_tokens = options.max_batched_tokens, .reuse = reuse_policy(parts_, options)},
          parts_.geometry),
      sampler_(parts_.vocab_size),
      adjusted_(static_cast<std::size_t>(parts_.vocab_size)) {
  check(limits_.max_model_len >= 1, "the longest context is known");
  check(limits_.max_model_len <= scheduler_.pool().max_positions(), "the cache holds one request of the longest context");
  check(scheduler_.pool().slots().capacity() >= 1, "there is a slot to run in");
  counters_.last_progress = parts_.clock->now();
  if (parts_.vocabulary) {
    check(parts_.vocabulary->num_rows() == parts_.vocab_size, "the vocabulary has a row for every logit");
    mask_.resize(parts_.vocabulary->mask_words());
    masked_row_.resize(static_cast<std::size_t>(parts_.vocab_size));
  }
}

Engine::~Engine() {
  if (parts_.tiers) {
    parts_.tiers->save_all(scheduler_.pool());
  }
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
  enqueue(make_live(id, std::move(request), std::move(sink)));
}

LiveRequest& Engine::make_live(RequestId id, GenerationRequest&& request, OutputSink&& sink) {
  LiveRequest::Notes notes{.priority = request.priority};
  if (request.time_limit > Duration{}) {
    notes.deadline = parts_.clock->now() + request.time_limit;
    deadlines_.emplace(notes.deadline, id);
  }
  if (shares_prefixes_) {
    notes.last_prefix = kvcache::root_hash(request.cache_salt);
  }
  const RequestSize size{.max_total = max_total_tokens(request, limits_), .vocab_size = parts_.vocab_size};
  std::unique_ptr<grammar::Matcher> matcher = make_matcher(request);
  const auto [place, inserted] = live_.try_emplace(id, id, std::move(request), size, std::move(matcher), std::move(sink));
  check(inserted, "an id names one request");
  place->second.notes = std::move(notes);
  return place->second;
}

/// Gives a request to the scheduler, with the names of the blocks that its tokens fill.
void Engine::enqueue(LiveRequest& live) {
  scheduler::Submitted submitted{.request = live.id(),
                                 .num_tokens = static_cast<std::int32_t>(live.tokens().size()),
                                 .max_positions = live.max_total() - 1,
                                 .priority = live.notes.priority};
  submitted.scores_prompt = live.sampling().want_prompt_logprobs;
  if (shares_prefixes_ && !submitted.scores_prompt) {
    const auto block_size = static_cast<std::size_t>(parts_.geometry.positions_per_block);
    for (std::size_t end = block_size; end <= live.tokens().size(); end += block_size) {
      live.notes.last_prefix = kvcache::next_hash(live.notes.last_prefix, live.tokens().subspan(end - block_size, block_size));
      submitted.prefixes.push_back(live.notes.last_prefix);
    }
    live.notes.num_hashed_tokens = static_cast<std::int32_t>(submitted.prefixes.size() * block_size);
  }
  apply(submitted);
  if (parts_.tiers) {
    arrivals_.push_back(live.id());
  }
}

std::unique_ptr<grammar::Matcher> Engine::make_matcher(const GenerationRequest& request) const {
  if (!request.constraint) {
    return nullptr;
  }
  grammar::MatcherOptions options{.end_ids = {}, .trigger_ids = request.constraint->trigger_ids, .bound_id = request.constraint->bound_id};
  if (!request.ignore_eos) {
    options.end_ids.push_back(parts_.eos);
  }
  return std::make_unique<grammar::Matcher>(request.constraint->grammar, parts_.vocabulary, std::move(options));
}

void Engine::cancel(RequestId request) { cancels_.push_back(request); }

void Engine::cancel_all() {
  for (const auto& [id, live] : live_) {
    cancels_.push_back(id);
  }
}

bool Engine::step() {
  end_cancelled();
  end_overdue();
  const bool is_stale = plan_ != nullptr;  // made during the last step: requests may have ended and come since
  if (!is_stale) {
    make_plan();
  }
  gather_chunks();
  if (is_stale && chunks_.empty()) {
    make_plan();
    gather_chunks();
  }
  const bool computes = !chunks_.empty();
  const bool did_something = computes || !to_deliver_.empty();
  if (computes) {
    launch();
    if (overlaps_) {
      make_plan();
      deliver();
    }
    collect_rows();
  }
  if (did_something) {
    ++counters_.num_steps;
    counters_.last_progress = parts_.clock->now();
  }
  if (!overlaps_ || !computes) {
    deliver();
  }
  return did_something;
}

void Engine::end_cancelled() {
  for (const RequestId id : cancels_) {
    end_early(id, FinishReason::cancelled);
  }
  cancels_.clear();
}

void Engine::end_overdue() {
  if (deadlines_.empty()) {
    return;
  }
  const TimePoint now = parts_.clock->now();
  for (const auto& [deadline, id] : deadlines_) {
    if (deadline > now) {
      break;
    }
    end_early(id, FinishReason::timed_out);
  }
}

void Engine::end_early(RequestId request, FinishReason reason) {
  const auto found = live_.find(request);
  if (found == live_.end() || found->second.is_finished()) {
    return;
  }
  LiveRequest& live = found->second;
  live.finish(reason);
  counters_.num_timed_out += reason == FinishReason::timed_out ? 1 : 0;
  if (!live.notes.waits_for_leader) {
    apply(scheduler::Ended{.request = request});
  }
  pass_on_followers(live);
  await_delivery(live);
}

void Engine::restore_prefixes() {
  for (const RequestId id : arrivals_) {
    const scheduler::Request* request = scheduler_.find(id);
    if (request == nullptr || request->prefixes.empty()) {
      continue;
    }
    const auto num_usable = static_cast<std::size_t>((request->num_tokens - 1) / parts_.geometry.positions_per_block);
    parts_.tiers->restore(scheduler_.pool_for_tiers(), std::span(request->prefixes).first(std::min(num_usable, request->prefixes.size())));
  }
  arrivals_.clear();
}

void Engine::make_plan() {
  if (parts_.tiers) {
    restore_prefixes();
  }
  plan_ = &scheduler_.plan();
  if (parts_.tiers) {
    parts_.tiers->save_evicted(scheduler_.pool_for_tiers());
  }
  counters_.num_preemptions += static_cast<std::int64_t>(plan_->preempted.size());
  for (const scheduler::Admission& admission : plan_->admitted) {
    if (!admission.is_first) {
      continue;
    }
    LiveRequest& live = live_.at(admission.request);
    live.set_prefix(admission.prefix);
    counters_.num_prompt_tokens += static_cast<std::int64_t>(live.tokens().size());
    counters_.num_cached_tokens += admission.prefix.num_cached;
    ++counters_.num_prefix_misses[static_cast<std::size_t>(admission.prefix.miss)];
  }
}

/// The plan without requests that ended after it was made.
void Engine::gather_chunks() {
  chunks_.clear();
  chunk_owners_.clear();
  num_prefill_rows_ = 0;
  for (std::size_t i = 0; i < plan_->chunks.size(); ++i) {
    const scheduler::PlannedChunk& planned = plan_->chunks[i];
    const auto live = live_.find(planned.request);
    if (live == live_.end() || live->second.is_finished()) {
      continue;
    }
    chunks_.push_back(make_chunk(planned, live->second.tokens(), parts_.num_previous_tokens));
    chunk_owners_.push_back({.live = &live->second, .is_complete = planned.is_complete});
    num_prefill_rows_ += static_cast<std::int32_t>(i) < plan_->num_decode_chunks ? 0 : planned.num_tokens;
  }
  if (chunks_.empty()) {
    plan_ = nullptr;
  }
}

void Engine::launch() {
  for (const scheduler::StateCopy& copy : plan_->restored_states) {
    parts_.model.copy_state(copy.from, copy.to);
  }
  parts_.model.launch(chunks_);
  for (const scheduler::StateCopy& copy : plan_->saved_states) {
    parts_.model.copy_state(copy.from, copy.to);
  }
  counters_.num_prefill_tokens += num_prefill_rows_;
  events_.clear();
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const auto num_computed = static_cast<std::int32_t>(chunks_[i].tokens.size());
    events_.push_back(scheduler::Advanced{
        .request = chunk_owners_[i].live->id(), .num_computed = num_computed, .num_new_tokens = chunk_owners_[i].is_complete ? 1 : 0});
  }
  scheduler_.apply(events_);
  plan_ = nullptr;
}

void Engine::await_delivery(LiveRequest& live) {
  if (!std::exchange(live.notes.awaits_delivery, true)) {
    to_deliver_.push_back(&live);
  }
}

/// By index: a sink may submit and cancel. Requests that are over are forgotten after their last output.
void Engine::deliver() {
  for (std::size_t i = 0; i < to_deliver_.size(); ++i) {
    LiveRequest& live = *to_deliver_[i];
    live.notes.awaits_delivery = false;
    live.deliver();
    if (live.is_finished()) {
      forget(live);
    }
  }
  to_deliver_.clear();
}

void Engine::forget(LiveRequest& live) {
  ++counters_.num_finished;
  const TimePoint now = parts_.clock->now();
  if (last_finish_ != TimePoint{}) {
    const auto newest = std::chrono::duration<double>(now - last_finish_);
    const auto mean = std::chrono::duration<double>(counters_.time_per_finish);
    counters_.time_per_finish =
        counters_.num_finished == 2 ? now - last_finish_ : std::chrono::duration_cast<Duration>(mean + kNewest * (newest - mean));
  }
  last_finish_ = now;
  deadlines_.erase({live.notes.deadline, live.id()});
  live_.erase(live.id());
}

EngineStats Engine::stats() const {
  EngineStats out = counters_;
  out.num_running = scheduler_.num_running();
  out.num_waiting = scheduler_.num_queued();
  out.num_blocks_used = scheduler_.pool().blocks().num_used();
  out.num_blocks = scheduler_.pool().blocks().capacity();
  out.num_cached_prefixes = static_cast<std::int32_t>(scheduler_.pool().index().num_prefixes());
  out.tiers = parts_.tiers ? parts_.tiers->stats() : PrefixStoreStats{};
  out.num_slots_used = scheduler_.pool().slots().num_used();
  out.num_slots = scheduler_.pool().slots().capacity();
  return out;
}

}  // namespace deepinfer::engine
