// Transitions. Every path that ends the use of a cache goes through give_back.
#include "scheduler/request.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::scheduler {
namespace {

/// The cache inside a State or const State; nullptr in states without one.
template <class AnyState>
auto* holding_of(AnyState& state) {
  using Held = decltype(&std::get_if<Decoding>(&state)->cache);
  if (auto* prefilling = std::get_if<Prefilling>(&state)) {
    return &prefilling->cache;
  }
  auto* decoding = std::get_if<Decoding>(&state);
  return decoding == nullptr ? Held{nullptr} : &decoding->cache;
}

/// The one release path: whatever `state` holds returns to the pool.
void give_back(State&& state, kvcache::CachePool& pool) {
  if (kvcache::Holding* held = holding_of(state)) {
    pool.release(std::move(*held));
  }
}

}  // namespace

std::int32_t num_computed(const Request& request) {
  if (const auto* prefilling = std::get_if<Prefilling>(&request.state)) {
    return prefilling->num_computed;
  }
  return std::holds_alternative<Decoding>(request.state) ? request.num_tokens - 1 : 0;
}

const kvcache::Holding* holding(const Request& request) { return holding_of(request.state); }
kvcache::Holding* holding(Request& request) { return holding_of(request.state); }

std::int32_t* num_overtaken(Request& request) {
  if (auto* waiting = std::get_if<Waiting>(&request.state)) {
    return &waiting->num_overtaken;
  }
  auto* preempted = std::get_if<Preempted>(&request.state);
  return preempted == nullptr ? nullptr : &preempted->num_overtaken;
}

Prefilling admit(State&& queued, kvcache::Holding&& cache, const PrefixUse& use) {
  check(std::holds_alternative<Waiting>(queued) || std::holds_alternative<Preempted>(queued), "only a queued request is admitted");
  return {.cache = std::move(cache),
          .num_computed = use.first_position,
          .first_valid = use.first_valid,
          .stored_until = use.stored_until,
          .checkpoint = use.checkpoint};
}

Decoding start_decoding(Prefilling&& state) { return {.cache = std::move(state.cache)}; }

Progress progress_of(const Request& request) {
  Progress out{.num_computed = num_computed(request)};
  if (const auto* prefilling = std::get_if<Prefilling>(&request.state)) {
    out.first_valid = prefilling->first_valid;
    out.stored_until = prefilling->stored_until;
    out.checkpoint = prefilling->checkpoint;
  }
  return out;
}

Preempted preempt(State&& running, const Progress& progress, kvcache::CachePool& pool) {
  check(holding_of(running) != nullptr, "only a running request is preempted");
  give_back(std::move(running), pool);
  return {.progress = progress};
}

Finished finish(State&& state, kvcache::CachePool& pool) {
  check(!std::holds_alternative<Finished>(state), "a request finishes once");
  give_back(std::move(state), pool);
  return {};
}

}  // namespace deepinfer::scheduler
