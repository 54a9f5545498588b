// Prefixes from below the device: a request whose prefix lies on the disk reaches the scheduler when the files are read, which another
// thread does; the others go on.
#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/engine.h"

namespace deepinfer::engine {
namespace {

/// How long a step without work waits for a read; only bounds one wait.
constexpr std::chrono::milliseconds kReadWait{10};

}  // namespace

/// At least one token is left to compute.
std::span<const kvcache::BlockHash> Engine::usable_prefixes(std::span<const kvcache::BlockHash> prefixes, std::int32_t num_tokens) const {
  const auto num_usable = static_cast<std::size_t>((num_tokens - 1) / parts_.geometry.positions_per_block);
  return prefixes.first(std::min(num_usable, prefixes.size()));
}

/// Takes `submitted` and true when it has to wait.
bool Engine::await_reads(LiveRequest& live, scheduler::Submitted& submitted) {
  if (!parts_.tiers->begin_restore(scheduler_.pool(), usable_prefixes(submitted.prefixes, submitted.num_tokens))) {
    return false;
  }
  live.notes.is_unscheduled = true;
  reading_.push_back(std::move(submitted));
  return true;
}

void Engine::enqueue_read() {
  if (reading_.empty()) {
    return;
  }
  std::erase_if(reading_, [this](scheduler::Submitted& submitted) {
    const auto prefixes = usable_prefixes(submitted.prefixes, submitted.num_tokens);
    if (parts_.tiers->is_reading(prefixes)) {
      return false;
    }
    const auto found = live_.find(submitted.request);
    if (found == live_.end() || found->second.is_finished()) {
      parts_.tiers->drop_reads(prefixes);
      return true;
    }
    found->second.notes.is_unscheduled = false;
    arrivals_.push_back(submitted.request);
    apply(std::move(submitted));
    return true;
  });
}

/// For a step that had nothing else to do.
bool Engine::wait_for_reads() {
  if (reading_.empty()) {
    return false;
  }
  parts_.tiers->wait_for_reads(kReadWait);
  return true;
}

void Engine::restore_prefixes() {
  for (const RequestId id : arrivals_) {
    const scheduler::Request* request = scheduler_.find(id);
    if (request == nullptr || request->prefixes.empty()) {
      continue;
    }
    const auto usable = usable_prefixes(request->prefixes, request->num_tokens);
    parts_.tiers->restore(scheduler_.pool_for_tiers(), usable);
    parts_.tiers->drop_reads(usable);
  }
  arrivals_.clear();
}

}  // namespace deepinfer::engine
