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
model::Chunk make_chunk(const scheduler::PlannedChunk& planned, const LiveRequest& live, std::int32_t lookback, bool masks_rows) {
  const std::span<const TokenId> tokens = live.tokens();
  const auto first = static_cast<std::size_t>(planned.first_position);
  const auto num_tokens = static_cast<std::size_t>(planned.num_tokens);
  const auto num_previous = static_cast<std::size_t>(std::min(planned.first_position, lookback));
  return {.slot = planned.slot,
          .blocks = planned.blocks,
          .first_position = planned.first_position,
          .tokens = planned.num_drafts > 0 ? std::span(live.drafts.rows).first(num_tokens) : tokens.subspan(first, num_tokens),
          .previous = tokens.subspan(first - num_previous, num_previous),
          .num_logit_rows = planned.num_logit_rows,
          .keep_from = planned.keep_from,
          .masks_rows = masks_rows,
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

/// Weight of the newest value in a recent mean: of the times between two ends, of a prompt row.
constexpr double kNewest = 0.1;

}  // namespace

ModelCalls synchronous(std::move_only_function<std::span<const float>(std::span<const model::Chunk>)> forward) {
  const auto logits = std::make_shared<std::span<const float>>();
  return {.launch = [forward = std::move(forward), logits](std::span<const model::Chunk> chunks) mutable { *logits = forward(chunks); },
          .wait = [logits] { return model::StepRows{.logits = *logits, .tokens = {}}; }};
}

Engine::Engine(EngineParts parts, const EngineOptions& options)
    : parts_(std::move(parts)),
      limits_{.vocab_size = parts_.vocab_size,
              .max_model_len = options.max_model_len,
              .takes_constraints = parts_.vocabulary != nullptr,
              .images = {.vision = parts_.model.images.begin ? parts_.vision : std::nullopt,
                         .max_span = scheduler::max_whole_span(
                             {.max_requests = options.max_requests, .max_batched_tokens = options.max_batched_tokens, .reuse = {}})}},
      max_unfinished_(options.max_requests + options.max_queue),
      overlaps_(options.overlap_depth > 0),
      shares_prefixes_(reuse_policy(parts_, options).reuse != scheduler::Reuse::none),
      jumps_ahead_(options.jump_ahead && parts_.forced_tokens),
      masks_rows_(options.replay_masks),
      scheduler_({.max_requests = options.max_requests,
                  .max_batched_tokens = options.max_batched_tokens,
                  .reuse = reuse_policy(parts_, options),
                  .notes_preempted_caches = options.swap_memory_bytes > 0 && parts_.swap.block_bytes > 0},
                 parts_.geometry),
      image_encoder_(std::move(parts_.model.images)),
      swapped_(std::move(parts_.swap), options.swap_memory_bytes),
      sampler_(parts_.vocab_size),
      adjusted_(static_cast<std::size_t>(parts_.vocab_size)) {
  check(limits_.max_model_len >= 1, "the longest context is known");
  check(limits_.max_model_len <= scheduler_.pool().max_positions(), "the cache holds one request of the longest context");
  check(scheduler_.pool().slots().capacity() >= 1, "there is a slot to run in");
  counters_.last_progress = parts_.clock->now();
  if (parts_.model.draft && options.speculation != SpeculationMode::off && options.max_drafts > 0) {
    speculation_ = std::make_unique<Speculation>(options, options.max_batched_tokens);
    max_batched_tokens_ = options.max_batched_tokens;
    pick_drafts_ = [this](std::int32_t index, std::span<const float> logits, std::span<TokenId> tokens) {
      pick_drafts(index, logits, tokens);
    };
  }
  if (options.verification_rule == VerificationRule::rejection) {
    rejection_ = std::make_unique<sampling::RejectionRule>(parts_.vocab_size);
    target_row_.resize(static_cast<std::size_t>(parts_.vocab_size));
  }
  if (parts_.vocabulary) {
    check(parts_.vocabulary->num_rows() == parts_.vocab_size, "the vocabulary has a row for every logit");
    mask_.resize(parts_.vocabulary->mask_words());
    const std::int32_t rows_each = 1 + std::max(options.max_drafts, 0);
    masks_.resize(parts_.model.draw ? static_cast<std::size_t>(options.max_requests * rows_each) * mask_.size() : 0);
    masked_row_.resize(static_cast<std::size_t>(parts_.vocab_size));
  }
}

Engine::~Engine() {
  if (parts_.tiers && counters_.fault.empty()) {
    parts_.tiers->save_all(scheduler_.pool());
  }
}

void Engine::cancel(RequestId request) { cancels_.push_back(request); }

void Engine::cancel_all() {
  for (const auto& [id, live] : live_) {
    cancels_.push_back(id);
  }
}

bool Engine::step() {
  step_begin_ = parts_.clock->now();
  if (!counters_.fault.empty()) {
    end_all_with_fault();
    const bool has_news = !to_deliver_.empty();
    deliver();
    return has_news;
  }
  end_cancelled();
  end_overdue();
  enqueue_read();
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
  bool did_something = computes || !to_deliver_.empty();
  if (computes) {
    launch();
    draw_rows();
    if (overlaps_) {
      if (!speculation_) {  // how many positions this step completes is not known yet
        make_plan();
      }
      deliver();
    }
    collect_rows();
    if (speculation_ && counters_.fault.empty()) {
      propose_drafts();
    }
  }
  if (!overlaps_ || !computes) {
    deliver();
  }
  did_something = encode_images() || did_something;
  if (did_something) {
    ++counters_.num_steps;
    counters_.last_progress = parts_.clock->now();
  }
  if (computes) {
    count_step_time();
  }
  return did_something || wait_for_reads();
}

void Engine::count_step_time() {
  const Duration forward = forward_end_ - forward_begin_;
  StepTimes& times = counters_.step_times[static_cast<std::size_t>(step_kind_)];
  times.forward.add(forward);
  times.host.add(parts_.clock->now() - step_begin_ - forward);
  if (step_kind_ == StepKind::prefill) {
    const double newest = std::chrono::duration<double>(forward).count() / num_prefill_rows_;
    seconds_per_prefill_row_ = seconds_per_prefill_row_ == 0 ? newest : (1 - kNewest) * seconds_per_prefill_row_ + kNewest * newest;
  }
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

/// A device that has failed once is not trusted any more.
void Engine::note_fault() {
  if (parts_.model.fault && counters_.fault.empty()) {
    counters_.fault = parts_.model.fault();
  }
}

void Engine::end_all_with_fault() {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) {
    ids.push_back(id);
  }
  for (const RequestId id : ids) {
    end_early(id, FinishReason::failed, counters_.fault);
  }
  cancels_.clear();
}

void Engine::end_early(RequestId request, FinishReason reason, const std::string& message) {
  const auto found = live_.find(request);
  if (found == live_.end() || found->second.is_finished()) {
    return;
  }
  LiveRequest& live = found->second;
  live.finish(reason, message);
  counters_.num_timed_out += reason == FinishReason::timed_out ? 1 : 0;
  counters_.num_failed += reason == FinishReason::failed ? 1 : 0;
  if (!live.notes.is_unscheduled) {
    apply(scheduler::Ended{.request = request});
  }
  pass_on_followers(live);
  await_delivery(live);
}

void Engine::make_plan() {
  if (parts_.tiers) {
    restore_prefixes();
  }
  if (speculation_) {
    plan_drafts();
  }
  plan_ = &scheduler_.plan();
  needed_spans_ = plan_->needed_spans;
  if (parts_.tiers) {
    parts_.tiers->save_evicted(scheduler_.pool_for_tiers());
  }
  if (swapped_.is_on()) {
    save_preempted();
  }
  counters_.num_preemptions += static_cast<std::int64_t>(plan_->preempted.size());
  for (const RequestId id : plan_->preempted) {
    live_.at(id).drafts.rows.clear();
  }
  for (const scheduler::Admission& admission : plan_->admitted) {
    if (!admission.is_first) {
      continue;
    }
    LiveRequest& live = live_.at(admission.request);
    live.set_prefix(admission.prefix);
    live.set_queue_time(parts_.clock->now() - live.notes.arrival);
    counters_.queue_time.add(parts_.clock->now() - live.notes.arrival);
    counters_.num_prefix_hits += admission.prefix.num_cached > 0 ? 1 : 0;
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
  bool has_decode = false;
  for (std::size_t i = 0; i < plan_->chunks.size(); ++i) {
    const scheduler::PlannedChunk& planned = plan_->chunks[i];
    const auto live = live_.find(planned.request);
    if (live == live_.end() || live->second.is_finished()) {
      continue;
    }
    chunks_.push_back(make_chunk(planned, live->second, parts_.num_previous_tokens, masks_rows_));
    if (!live->second.images().empty()) {
      const PositionRange chunk{.first = planned.first_position, .end = planned.first_position + planned.num_tokens};
      chunks_.back().images = live->second.images().in_chunk(chunk, parts_.num_previous_tokens);
    }
    chunk_owners_.push_back({.live = &live->second, .is_complete = planned.is_complete, .num_drafts = planned.num_drafts});
    const bool is_decode = static_cast<std::int32_t>(i) < plan_->num_decode_chunks;
    num_prefill_rows_ += is_decode ? 0 : planned.num_tokens;
    has_decode = has_decode || is_decode;
  }
  step_kind_ = num_prefill_rows_ == 0 ? StepKind::decode : has_decode ? StepKind::mixed : StepKind::prefill;
  if (chunks_.empty()) {
    restore_states();  // of requests that begin with waiting for an image
    plan_ = nullptr;
  }
}

void Engine::restore_states() {
  for (const scheduler::StateCopy& copy : plan_->restored_states) {
    parts_.model.copy_state(copy.from, copy.to);
  }
  restore_resumed();
}

void Engine::launch() {
  restore_states();
  num_generated_before_step_ = counters_.num_generated_tokens;
  num_forced_before_step_ = speculation_ ? speculation_->stats().num_forced_accepted : 0;
  forward_begin_ = parts_.clock->now();
  parts_.model.launch(chunks_);
  for (const scheduler::StateCopy& copy : plan_->saved_states) {
    parts_.model.copy_state(copy.from, copy.to);
  }
  counters_.num_prefill_tokens += num_prefill_rows_;
  events_.clear();
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (chunk_owners_[i].num_drafts > 0) {
      continue;  // reported when it is known which drafts are accepted
    }
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
  swapped_.forget(live.id());
  live_.erase(live.id());
}

EngineStats Engine::stats() const {
  EngineStats out = counters_;
  if (speculation_) {
    out.speculation = speculation_->stats();
  }
  out.num_running = scheduler_.num_running();
  out.num_waiting = scheduler_.num_queued() + static_cast<std::int32_t>(reading_.size());
  out.num_blocks_used = scheduler_.pool().blocks().num_used();
  out.num_blocks = scheduler_.pool().blocks().capacity();
  out.num_cached_prefixes = static_cast<std::int32_t>(scheduler_.pool().index().num_prefixes());
  out.swap = swapped_.stats();
  out.tiers = parts_.tiers ? parts_.tiers->stats() : PrefixStoreStats{};
  out.num_slots_used = scheduler_.pool().slots().num_used();
  out.num_slots = scheduler_.pool().slots().capacity();
  return out;
}

}  // namespace deepinfer::engine
