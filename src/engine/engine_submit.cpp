// How requests come in: checked, with a matcher and names for their blocks, to the scheduler.
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"
#include "grammar/matcher.h"

namespace deepinfer::engine {

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
  LiveRequest::Notes notes{.arrival = parts_.clock->now(), .priority = request.priority, .drafts = request.drafts};
  if (request.time_limit > Duration{}) {
    notes.deadline = notes.arrival + request.time_limit;
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
  if (speculation_) {
    place->second.reserve_drafts(speculation_->max_drafts());
  }
  return place->second;
}

/// Gives a request to the scheduler, with the names of the blocks that its tokens fill.
void Engine::enqueue(LiveRequest& live) {
  scheduler::Submitted submitted{.request = live.id(),
                                 .num_tokens = static_cast<std::int32_t>(live.tokens().size()),
                                 .max_positions = live.max_total() - 1,
                                 .priority = live.notes.priority,
                                 .prefixes = {},
                                 .whole_spans = live.images().whole_spans()};
  submitted.scores_prompt = live.sampling().want_prompt_logprobs;
  if (shares_prefixes_ && !submitted.scores_prompt) {
    const auto block_size = static_cast<std::size_t>(parts_.geometry.positions_per_block);
    for (std::size_t end = block_size; end <= live.tokens().size(); end += block_size) {
      live.notes.last_prefix = name_of_block(live, end);
      submitted.prefixes.push_back(live.notes.last_prefix);
    }
    live.notes.num_hashed_tokens = static_cast<std::int32_t>(submitted.prefixes.size() * block_size);
  }
  if (!parts_.tiers) {
    apply(submitted);
  } else if (!await_reads(live, submitted)) {
    apply(submitted);
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

}  // namespace deepinfer::engine
