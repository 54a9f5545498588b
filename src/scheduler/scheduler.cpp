// Order of a plan: forget what finished, decode rows (preempting only for a real need), then prefill within the budget.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer::scheduler {
namespace {

/// Into a list that is sorted by rank.
void insert_by_rank(std::vector<Request*>& list, Request* request) {
  list.insert(std::ranges::upper_bound(list, request->rank, {}, &Request::rank), request);
}

void erase_by_rank(std::vector<Request*>& list, const Request* request) {
  const auto place = std::ranges::lower_bound(list, request->rank, {}, &Request::rank);
  check(place != list.end() && *place == request, "a request is in the list of its state");
  list.erase(place);
}

}  // namespace

Scheduler::Scheduler(Limits limits, kvcache::CacheGeometry geometry) : limits_(limits), pool_(geometry) {
  check(limits.max_requests >= 1, "at least one request can run");
  check(limits.max_batched_tokens >= limits.max_requests, "every running request can have its row in a step");
  if (limits.reuse.has_lower_tiers) {
    pool_.note_evictions();
  }
}

const Request* Scheduler::find(RequestId request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : &found->second;
}

void Scheduler::apply(std::span<const Event> events) {
  for (const Event& event : events) {
    std::visit([this](const auto& of_kind) { apply(of_kind); }, event);
  }
}

void Scheduler::apply(const Submitted& event) {
  check(event.num_tokens >= 1 && event.num_tokens <= event.max_positions, "a request starts with one to max_positions tokens");
  check(event.max_positions <= pool_.max_positions(), "a request fits into the pool when it is alone");
  check(std::ranges::all_of(event.whole_spans, [this](const WholeSpan& span) { return span.num_positions <= max_whole_span(limits_); }),
        "a span fits into a step beside the rows of the other requests");
  Request& request = insert({.id = event.request,
                             .rank = {.priority = event.priority, .arrival = next_arrival_++},
                             .num_prompt = event.num_tokens,
                             .num_tokens = event.num_tokens,
                             .max_positions = event.max_positions,
                             .prefixes = event.prefixes,
                             .whole_spans = event.whole_spans,
                             .scores_prompt = event.scores_prompt,
                             .state = Waiting{}});
  insert_by_rank(queue_, &request);
}

Request& Scheduler::insert(Request&& request) {
  const auto [place, inserted] = requests_.try_emplace(request.id);
  check(inserted, "a request is submitted once");
  place->second = std::move(request);
  return place->second;
}

void Scheduler::apply(const Forked& event) {
  const Request& parent = known(event.parent);
  check(parent.num_tokens == parent.num_prompt + 1 && parent.num_tokens <= event.max_positions, "a fork begins behind the prompt");
  const std::int32_t num_full = parent.num_prompt / pool_.positions_per_block();
  const auto num_named = std::min(static_cast<std::ptrdiff_t>(num_full), std::ssize(parent.prefixes));
  Request& request = insert({.id = event.request,
                             .rank = {.priority = parent.rank.priority, .arrival = next_arrival_++},
                             .num_prompt = parent.num_prompt,
                             .num_tokens = parent.num_tokens,
                             .max_positions = event.max_positions,
                             .prefixes = {parent.prefixes.begin(), parent.prefixes.begin() + num_named},
                             .whole_spans = parent.whole_spans,
                             .num_published = static_cast<std::int32_t>(num_named),
                             .was_admitted = true,
                             .state = Waiting{}});
  const auto* decoding = std::get_if<Decoding>(&parent.state);
  auto cache = decoding == nullptr || num_running() >= limits_.max_requests
                   ? std::nullopt
                   : pool_.fork(decoding->cache, num_full, admission_positions(request));
  if (!cache) {
    request.num_published = 0;
    insert_by_rank(queue_, &request);
    return;
  }
  request.state = Decoding{.cache = std::move(*cache)};
  insert_by_rank(running_, &request);
}

Request& Scheduler::known(RequestId request) {
  const auto found = requests_.find(request);
  check(found != requests_.end(), "an event is about a known request");
  return found->second;
}

void Scheduler::apply(const BlockFilled& event) {
  Request& request = known(event.request);
  request.prefixes.push_back(event.prefix);
  check(std::ssize(request.prefixes) * pool_.positions_per_block() <= request.num_tokens, "a block is full of known tokens");
}

void Scheduler::apply(const Drafted& event) {
  auto* decoding = std::get_if<Decoding>(&known(event.request).state);
  check(decoding != nullptr && event.num_drafts >= 0, "drafts are for a decoding request");
  decoding->num_drafts = event.num_drafts;
}

void Scheduler::apply(const Advanced& event) {
  Request& request = known(event.request);
  const std::int32_t num_left = num_uncomputed(request) - event.num_computed;
  if (auto* prefilling = std::get_if<Prefilling>(&request.state)) {
    check(num_left >= 0 && event.num_new_tokens == (num_left == 0 ? 1 : 0), "a prompt gives one token when it is complete, none before");
    prefilling->num_computed += event.num_computed;
    if (num_left == 0) {
      request.state = start_decoding(std::move(*prefilling));
    }
  } else {
    check(std::holds_alternative<Decoding>(request.state), "only a running request advances");
    check(event.num_computed == event.num_new_tokens && event.num_new_tokens >= 1, "a decode step gives a token per valid position");
  }
  request.num_tokens += event.num_new_tokens;
  publish(request);
}

void Scheduler::apply(const SpanReady& event) {
  Request& request = known(event.request);
  const auto span = std::ranges::find(request.whole_spans, event.first_position, &WholeSpan::first_position);
  check(span != request.whole_spans.end(), "a span that is ready belongs to its request");
  span->is_ready = true;
}

void Scheduler::apply(const Ended& event) {
  Request& request = known(event.request);
  erase_by_rank(holding(request) != nullptr ? running_ : queue_, &request);
  request.state = finish(std::move(request.state), pool_);
  finished_.push_back(request.id);
}

const StepPlan& Scheduler::plan() {
  forget_finished();
  plan_.chunks.clear();
  plan_.preempted.clear();
  plan_.freed.clear();
  plan_.admitted.clear();
  plan_.needed_spans.clear();
  plan_.restored_states.clear();
  plan_.saved_states.clear();
  plan_.num_tokens = 0;
  plan_decode();
  plan_.num_decode_chunks = static_cast<std::int32_t>(plan_.chunks.size());
  plan_prefill();
  note_needed_spans();
  save_states();
  return plan_;
}

void Scheduler::forget_finished() {
  for (const RequestId request : finished_) {
    requests_.erase(request);
  }
  finished_.clear();
}

void Scheduler::plan_prefill() {
  const std::int32_t budget = limits_.max_batched_tokens - plan_.num_tokens;
  collect_prefill_candidates();
  const auto admit = [this](std::size_t i) {
    const bool admitted = try_admit(*candidates_[i]);
    if (admitted) {
      shares_[i].num_wanted = next_stop(*candidates_[i]) - num_computed(*candidates_[i]);
    }
    return admitted;
  };
  divide_prefill_budget(budget, shares_, admit, [this](std::size_t i, std::int32_t num_rows) {
    const std::int32_t computed = num_computed(*candidates_[i]);
    return last_cut(candidates_[i]->whole_spans, computed + num_rows) - computed;
  });
  const std::int32_t most_scored = max_scored_rows();
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    const std::int32_t granted = shares_[i].num_granted;
    if (granted > 0) {
      add_chunk(*candidates_[i], candidates_[i]->scores_prompt ? std::min(granted, most_scored) : granted);
    }
  }
}

/// Rows with logits that each scored prompt may have in this step: one, and its part of those that no running request needs.
std::int32_t Scheduler::max_scored_rows() const {
  const auto num_scored = std::ranges::count_if(
      running_, [](const Request* request) { return request->scores_prompt && std::holds_alternative<Prefilling>(request->state); });
  return 1 + (limits_.max_requests - num_running()) / std::max(1, static_cast<std::int32_t>(num_scored));
}

void Scheduler::note_needed_spans() {
  for (const Request* request : running_) {
    if (!std::holds_alternative<Prefilling>(request->state)) {
      continue;
    }
    if (const WholeSpan* span = first_unready(request->whole_spans, num_computed(*request))) {
      plan_.needed_spans.push_back({.request = request->id, .first_position = span->first_position});
    }
  }
}

/// Every prefilling request and, if one more may run, the first max_requests queued ones; oldest first.
void Scheduler::collect_prefill_candidates() {
  candidates_.clear();
  shares_.clear();
  num_growing_ = 0;
  for (Request* request : running_) {
    num_growing_ += may_grow(*request) ? 1 : 0;
    if (std::holds_alternative<Prefilling>(request->state)) {
      candidates_.push_back(request);
    }
  }
  if (num_running() < limits_.max_requests) {
    const auto num_queued = std::min(queue_.size(), static_cast<std::size_t>(limits_.max_requests));
    candidates_.insert(candidates_.end(), queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(num_queued));
  }
  std::ranges::sort(candidates_, {}, &Request::rank);
  for (const Request* request : candidates_) {
    const bool is_running = holding(*request) != nullptr;
    const std::int32_t wanted = is_running ? next_stop(*request) - num_computed(*request) : num_uncomputed(*request);
    shares_.push_back(
        {.num_wanted = wanted, .running = is_running, .num_least = fewest_rows(request->whole_spans, num_computed(*request))});
  }
}

/// Positions reserved at admission: the known tokens and, as far as there is one, the first output.
std::int32_t Scheduler::admission_positions(const Request& request) const {
  return std::min(request.num_tokens + 1, request.max_positions);
}

bool Scheduler::may_grow(const Request& request) const {
  return static_cast<std::int32_t>(holding(request)->blocks.size()) < pool_.num_blocks_for(request.max_positions);
}

/// Blocks beside one for each running request that can still grow: without this room the newcomer would be preempted as soon as an
/// older request crosses a block boundary.
bool Scheduler::fits(const Request& request, const PrefixUse& use) const {
  const auto shared = std::span(request.prefixes).first(static_cast<std::size_t>(use.num_shared_blocks));
  return pool_.num_blocks_needed(admission_positions(request), shared) + num_growing_ <= pool_.blocks().num_free();
}

bool Scheduler::try_admit(Request& request) {
  if (num_running() >= limits_.max_requests || pool_.slots().num_free() == 0) {
    return false;
  }
  const PrefixUse use = prefix_use(request);
  if (!fits(request, use)) {
    return false;
  }
  Request& oldest = *queue_.front();
  if (&request != &oldest && !fits(oldest, prefix_use(oldest))) {
    std::int32_t& passed = *num_overtaken(oldest);
    if (passed == kMaxOvertakes) {
      return false;
    }
    ++passed;
  }
  start(request, use);
  return true;
}

void Scheduler::start(Request& request, const PrefixUse& use) {
  const auto shared = std::span(request.prefixes).first(static_cast<std::size_t>(use.num_shared_blocks));
  auto cache = pool_.acquire(admission_positions(request), shared, use.state);
  check(cache.has_value(), "what fits can be acquired");
  if (use.state.value != 0 && use.state != cache->slot) {
    plan_.restored_states.push_back({.from = use.state, .to = cache->slot});
  }
  erase_by_rank(queue_, &request);
  request.state = admit(std::move(request.state), std::move(*cache), use);
  request.num_published = use.num_shared_blocks;
  insert_by_rank(running_, &request);
  num_growing_ += may_grow(request) ? 1 : 0;
  plan_.admitted.push_back({.request = request.id, .is_first = !request.was_admitted, .is_resumed = use.is_resumed, .prefix = use.report});
  request.was_admitted = true;
}

void Scheduler::add_chunk(const Request& request, std::int32_t num_tokens, std::int32_t num_drafts) {
  const kvcache::Holding& cache = *holding(request);
  const bool last = num_tokens - num_drafts == num_uncomputed(request);
  PlannedChunk chunk{.request = request.id,
                     .slot = cache.slot,
                     .blocks = cache.blocks,
                     .first_position = num_computed(request),
                     .num_tokens = num_tokens,
                     .num_drafts = num_drafts,
                     .is_complete = last,
                     .num_logit_rows = last ? 1 + num_drafts : 0};
  if (const auto* prefilling = std::get_if<Prefilling>(&request.state)) {
    if (request.scores_prompt) {
      chunk.num_logit_rows = num_tokens;
    }
    chunk.keep_from = limits_.reuse.bounded_replay && !request.scores_prompt ? std::max(0, request.num_prompt - limits_.reuse.keep) : 0;
    chunk.first_valid = prefilling->first_valid;
    chunk.stored_until = prefilling->stored_until;
  }
  plan_.chunks.push_back(chunk);
  plan_.num_tokens += num_tokens;
}

void Scheduler::check_integrity() const {
  std::vector<const kvcache::Holding*> holdings;
  for (const Request* request : running_) {
    const kvcache::Holding* cache = holding(*request);
    check(cache != nullptr, "a running request holds a cache");
    check(static_cast<std::int32_t>(cache->blocks.size()) >= pool_.num_blocks_for(num_computed(*request)),
          "the cache covers what is computed");
    check(num_uncomputed(*request) >= 1, "a running request has something to compute");
    holdings.push_back(cache);
  }
  for (const Request* request : queue_) {
    check(std::holds_alternative<Waiting>(request->state) || std::holds_alternative<Preempted>(request->state),
          "a queued request is waiting or preempted");
  }
  for (const RequestId request : finished_) {
    check(std::holds_alternative<Finished>(requests_.at(request).state), "only finished requests are to be forgotten");
  }
  check(std::ranges::is_sorted(running_, {}, &Request::rank), "running requests are in order of rank");
  check(std::ranges::is_sorted(queue_, {}, &Request::rank), "queued requests are in order of rank");
  check(running_.size() + queue_.size() + finished_.size() == requests_.size(), "every request is in exactly one list");
  check(num_running() <= limits_.max_requests, "no more requests run than may");
  pool_.check_integrity(holdings);
}

}  // namespace deepinfer::scheduler
