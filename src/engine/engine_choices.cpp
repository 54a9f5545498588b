// Several replies to one prompt: the first choice leads, the others wait for the logits behind its prompt and fork there.
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "engine/engine.h"

namespace deepinfer::engine {

Result<std::vector<RequestId>> Engine::submit_choices(const GenerationRequest& request, std::vector<Choice> choices) {
  check(!choices.empty(), "there is at least one choice");
  if (auto checked = check_request(request, limits_); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  if (live_.size() + choices.size() > static_cast<std::size_t>(max_unfinished_)) {
    return queue_is_full(max_unfinished_);
  }
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    ids.push_back({++last_id_});
  }
  start_choices(ids, request, std::move(choices));
  return ids;
}

void Engine::start_choices(std::span<const RequestId> ids, const GenerationRequest& request, std::vector<Choice>&& choices) {
  for (std::size_t i = 0; i < choices.size(); ++i) {
    GenerationRequest copy = request;
    copy.sampling.seed = choices[i].seed;
    make_live(ids[i], std::move(copy), std::move(choices[i].sink)).notes.is_unscheduled = i > 0;
  }
  LiveRequest& leader = live_.at(ids.front());
  leader.notes.followers.assign(ids.begin() + 1, ids.end());
  enqueue(leader);
}

/// The logits behind the prompt give every choice its first token.
void Engine::start_followers(LiveRequest& leader, std::span<const float> logits) {
  for (const RequestId id : std::exchange(leader.notes.followers, {})) {
    const auto found = live_.find(id);
    if (found == live_.end() || found->second.is_finished()) {
      continue;
    }
    LiveRequest& follower = found->second;
    follower.begin_as(leader);
    sample_token(follower, {.logits = logits, .token = std::nullopt});
    if (!follower.is_finished()) {
      fork(leader, follower);
    }
    await_delivery(follower);
  }
}

/// Shares the full blocks of the prompt; copies the one it fills partly and the bounded state.
void Engine::fork(LiveRequest& leader, LiveRequest& follower) {
  follower.notes.is_unscheduled = false;
  follower.images().share(leader.images());
  if (!parts_.model.copy_state || !parts_.model.copy_block) {
    enqueue(follower);
    return;
  }
  const auto num_prompt = static_cast<std::int32_t>(leader.tokens().size());
  apply(scheduler::Forked{.parent = leader.id(), .request = follower.id(), .max_positions = follower.max_total() - 1});
  if (parts_.tiers) {
    parts_.tiers->save_evicted(scheduler_.pool_for_tiers());  // before the copies write to what the child got
  }
  const scheduler::Request& child = *scheduler_.find(follower.id());
  if (std::holds_alternative<scheduler::Decoding>(child.state)) {
    const kvcache::Holding& from = *scheduler::holding(*scheduler_.find(leader.id()));
    const kvcache::Holding& to = *scheduler::holding(child);
    parts_.model.copy_state(from.slot, to.slot);
    if (num_prompt % parts_.geometry.positions_per_block != 0) {
      const auto last = static_cast<std::size_t>(num_prompt / parts_.geometry.positions_per_block);
      parts_.model.copy_block(from.blocks[last], to.blocks[last]);
    }
  }
  follower.notes.last_prefix = leader.notes.last_prefix;
  follower.notes.num_hashed_tokens = leader.notes.num_hashed_tokens;
  if (shares_prefixes_) {
    extend_prefixes(follower);
  }
}

/// A leader that ends before its prompt is computed: the next choice computes it.
void Engine::pass_on_followers(LiveRequest& leader) {
  std::vector<RequestId> followers = std::exchange(leader.notes.followers, {});
  while (!followers.empty()) {
    const auto next = live_.find(followers.front());
    followers.erase(followers.begin());
    if (next != live_.end() && !next->second.is_finished()) {
      next->second.notes.is_unscheduled = false;
      next->second.notes.followers = std::move(followers);
      enqueue(next->second);
      return;
    }
  }
}

}  // namespace deepinfer::engine
