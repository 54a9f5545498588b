// What the scheduler does for the prefix cache: what an admission may take, where chunks end for it, and what others may find when.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer::scheduler {

/// What is computed and has a known prefix may be found by others from now on.
void Scheduler::publish(Request& request) {
  kvcache::Holding& cache = *holding(request);
  const auto num_full =
      std::min<std::int32_t>(num_computed(request) / pool_.positions_per_block(), static_cast<std::int32_t>(request.prefixes.size()));
  for (; request.num_published < num_full; ++request.num_published) {
    const auto block = static_cast<std::size_t>(request.num_published);
    pool_.publish(request.prefixes[block], cache.blocks[block]);
  }
  if (cache.saved_state.value != 0 && num_computed(request) >= request.saved_end) {
    publish_state(request);
  }
}

void Scheduler::publish_state(Request& request) {
  kvcache::Holding& cache = *holding(request);
  const auto num_blocks = static_cast<std::size_t>(request.saved_end / pool_.positions_per_block());
  if (num_blocks > request.prefixes.size()) {
    pool_.discard_state(cache);
    return;
  }
  pool_.publish_state(request.prefixes[num_blocks - 1], cache);
}

/// The state is kept where a prompt's chunk was made to end for it and behind every block that outputs fill, while a slot is free.
void Scheduler::save_states() {
  if (limits_.reuse.reuse != Reuse::exact) {
    return;
  }
  for (const PlannedChunk& chunk : plan_.chunks) {
    const std::int32_t computed = chunk.first_position + chunk.num_tokens;
    const std::int32_t end = computed / pool_.positions_per_block() * pool_.positions_per_block();
    // Behind the end of the block there may be drafts: the rings are long enough for both.
    if (end <= chunk.first_position || (chunk.num_drafts == 0 && end != computed)) {
      continue;
    }
    Request& request = requests_.at(chunk.request);
    if (!is_worth_keeping(request, end)) {
      continue;
    }
    forget_passed_state(request, end);
    if (pool_.acquire_state(*holding(request))) {
      request.saved_end = end;
      plan_.saved_states.push_back({.from = chunk.slot, .to = holding(request)->saved_state});
    }
  }
}

/// Whether the state at `end`, the end of a block, may serve others. The name of a block of outputs may come after the plan.
bool Scheduler::is_worth_keeping(const Request& request, std::int32_t end) const {
  const auto num_blocks = static_cast<std::size_t>(end / pool_.positions_per_block());
  const auto* prefilling = std::get_if<Prefilling>(&request.state);
  const bool is_place =
      prefilling == nullptr || end == request.num_tokens || end == last_usable_end(request) || end == prefilling->checkpoint;
  const bool has_name = request.prefixes.size() >= num_blocks;
  return is_place && !(has_name && pool_.has_state(request.prefixes[num_blocks - 1]));
}

/// Among the states behind a request's outputs only the last is worth its slot.
void Scheduler::forget_passed_state(const Request& request, std::int32_t end) {
  const std::int32_t before = end - pool_.positions_per_block();
  const auto num_blocks = static_cast<std::size_t>(before / pool_.positions_per_block());
  if (before > request.num_prompt && num_blocks <= request.prefixes.size()) {
    pool_.forget_state(request.prefixes[num_blocks - 1]);
  }
}

/// The last end of a block from which another request with the same tokens could start: it computes at least one. Not inside a span.
std::int32_t Scheduler::last_usable_end(const Request& request) const {
  const std::int32_t size = pool_.positions_per_block();
  std::int32_t end = std::min((request.num_tokens - 1) / size, static_cast<std::int32_t>(request.prefixes.size())) * size;
  while (end != last_cut(request.whole_spans, end)) {
    end = last_cut(request.whole_spans, end) / size * size;
  }
  return end;
}

/// Where the next chunk of a prompt must end at the latest: at the next position whose state is worth keeping, and before a span that is
/// not ready.
std::int32_t Scheduler::next_stop(const Request& request) const {
  const auto& prefilling = std::get<Prefilling>(request.state);
  const WholeSpan* unready = first_unready(request.whole_spans, prefilling.num_computed);
  std::int32_t stop = unready == nullptr ? request.num_tokens : unready->first_position;
  if (limits_.reuse.reuse == Reuse::exact) {
    for (const std::int32_t checkpoint : {last_usable_end(request), prefilling.checkpoint}) {
      stop = checkpoint > prefilling.num_computed ? std::min(stop, checkpoint) : stop;
    }
  }
  return stop;
}

PrefixUse Scheduler::prefix_use(const Request& request) const {
  PrefixUse use = without_cuts_inside(request.whole_spans,
                                      choose_prefix(pool_, limits_.reuse, request.prefixes, request.num_tokens, request.num_prompt));
  const auto* preempted = std::get_if<Preempted>(&request.state);
  if (preempted == nullptr || !preempted->is_saved) {
    return use;
  }
  const Progress& saved = preempted->progress;
  if (saved.num_computed <= use.first_position + pool_.positions_per_block()) {
    return use;  // a block's worth of computing is as good as moving everything
  }
  return {.first_position = saved.num_computed,
          .first_valid = saved.first_valid,
          .stored_until = saved.stored_until,
          .checkpoint = saved.checkpoint,
          .is_resumed = true,
          .report = use.report};
}

void Scheduler::note_freed(const Request& request) {
  const kvcache::Holding& cache = *holding(request);
  const Progress progress = progress_of(request);
  const std::int32_t num_valid = std::max(progress.num_computed, progress.stored_until);
  const auto num_blocks = static_cast<std::ptrdiff_t>(pool_.num_blocks_for(num_valid));
  plan_.freed.push_back({.request = request.id,
                         .slot = cache.slot,
                         .blocks = {cache.blocks.begin(), cache.blocks.begin() + num_blocks},
                         .num_computed = progress.num_computed});
}

void Scheduler::apply(const Saved& event) {
  if (auto* preempted = std::get_if<Preempted>(&known(event.request).state)) {
    preempted->is_saved = preempted->progress.num_computed > 0;
  }
}

}  // namespace deepinfer::scheduler
