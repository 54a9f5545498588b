// Rows of decoding requests: one each and those of drafts, preempting only for a real need.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer::scheduler {

/// Drafts of `request` that are verified: within the rows of the step, its positions and the blocks it holds or that nobody else may need.
std::int32_t Scheduler::num_draft_rows(const Request& request, std::int32_t budget) const {
  const auto& decoding = std::get<Decoding>(request.state);
  const std::int32_t wanted = std::min({decoding.num_drafts, budget, request.max_positions - request.num_tokens});
  const std::int32_t num_spare = std::max(0, pool_.blocks().num_free() - num_running());
  const std::int32_t num_blocks = static_cast<std::int32_t>(decoding.cache.blocks.size()) + num_spare;
  return std::clamp(num_blocks * pool_.positions_per_block() - request.num_tokens, 0, std::max(wanted, 0));
}

/// Rows of the largest image that a prompt goes on with, so that drafts do not keep it waiting; 0: none.
std::int32_t Scheduler::rows_of_next_spans() const {
  std::int32_t most = 0;
  for (const std::vector<Request*>* list : {&running_, &queue_}) {
    for (const Request* request : std::span(*list).first(std::min(list->size(), static_cast<std::size_t>(limits_.max_requests)))) {
      if (request->whole_spans.empty() || std::holds_alternative<Decoding>(request->state)) {
        continue;
      }
      const std::int32_t position = num_computed(*request);
      const WholeSpan* unready = first_unready(request->whole_spans, position);
      if (unready == nullptr || unready->first_position > position) {
        most = std::max(most, fewest_rows(request->whole_spans, position));
      }
    }
  }
  return most;
}

void Scheduler::plan_decode() {
  std::int32_t num_decoding = 0;
  for (const Request* request : running_) {
    num_decoding += std::holds_alternative<Decoding>(request->state) ? 1 : 0;
  }
  const std::int32_t for_spans = rows_of_next_spans();
  for (std::size_t i = 0; i < running_.size();) {
    Request& request = *running_[i];
    auto* decoding = std::get_if<Decoding>(&request.state);
    if (decoding == nullptr || request.num_tokens > request.max_positions) {  // the latter only waits for its end
      ++i;
      continue;
    }
    if (decoding->cache.saved_state.value != 0) {
      pool_.discard_state(decoding->cache);  // of drafts that were not accepted so far
    }
    // Everybody behind keeps a row, and an image that waits its room.
    const std::int32_t num_drafts = num_draft_rows(request, limits_.max_batched_tokens - plan_.num_tokens - num_decoding - for_spans);
    bool has_room = pool_.extend(decoding->cache, request.num_tokens + num_drafts);
    while (!has_room && i + 1 < running_.size()) {
      preempt_running(cheapest_younger(i));
      has_room = pool_.extend(decoding->cache, request.num_tokens);
    }
    if (!has_room) {
      preempt_running(i);  // the youngest: everybody else needs what they hold
      break;
    }
    add_chunk(request, 1 + num_drafts, num_drafts);
    decoding->num_drafts = 0;
    --num_decoding;
    ++i;
  }
}

/// Among the requests after `index`, which are younger: the one with the least to compute again; the youngest of equals.
std::size_t Scheduler::cheapest_younger(std::size_t index) const {
  std::size_t cheapest = index + 1;
  for (std::size_t i = cheapest + 1; i < running_.size(); ++i) {
    if (num_computed(*running_[i]) <= num_computed(*running_[cheapest])) {
      cheapest = i;
    }
  }
  return cheapest;
}

void Scheduler::preempt_running(std::size_t index) {
  Request* request = running_[index];
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  if (limits_.notes_preempted_caches) {
    note_freed(*request);
  }
  const Progress progress = progress_of(*request);
  request->state = preempt(std::move(request->state), progress, pool_);
  request->num_published = 0;
  queue_.insert(std::ranges::upper_bound(queue_, request->rank, {}, &Request::rank), request);
  plan_.preempted.push_back(request->id);
}

}  // namespace deepinfer::scheduler
