#include "apps/ideal_cache.h"

#include <algorithm>
#include <ranges>

namespace deepinfer::apps {

void LruNames::erase(const kvcache::BlockHash& name) {
  if (const auto place = places_.find(name); place != places_.end()) {
    order_.erase(place->second);
    places_.erase(place);
  }
}

void LruNames::put(const kvcache::BlockHash& name) {
  erase(name);
  places_[name] = order_.insert(order_.end(), name);
}

kvcache::BlockHash LruNames::take_oldest() {
  const kvcache::BlockHash oldest = order_.front();
  erase(oldest);
  return oldest;
}

std::int32_t IdealCache::run(std::span<const kvcache::BlockHash> blocks, std::size_t num_usable, std::size_t num_held) {
  const auto usable = blocks.first(std::min(num_usable, blocks.size()));
  const auto is_here = [this](const kvcache::BlockHash& block) { return blocks_.contains(block); };
  const auto num_found = static_cast<std::size_t>(std::ranges::find_if_not(usable, is_here) - usable.begin());
  std::size_t num_hit = num_found;
  while (num_states_ && num_hit > 0 && !states_.contains(usable[num_hit - 1])) {
    --num_hit;
  }
  for (const kvcache::BlockHash& block : blocks) {  // held while it runs, so the last to go
    blocks_.erase(block);
  }
  const std::size_t num_left = num_blocks_ - std::min(num_held, num_blocks_);
  while (blocks_.size() > num_left) {
    states_.erase(blocks_.take_oldest());
  }
  for (const kvcache::BlockHash& block : blocks | std::views::reverse) {  // a prefix outlives what follows it
    blocks_.put(block);
  }
  if (num_states_) {
    put_states(usable, num_found, num_hit);
  }
  return static_cast<std::int32_t>(num_hit);
}

void IdealCache::put_states(std::span<const kvcache::BlockHash> usable, std::size_t num_found, std::size_t num_hit) {
  for (const std::size_t end : {num_hit, num_found, usable.size()}) {
    if (end > 0) {
      states_.put(usable[end - 1]);
    }
  }
  while (states_.size() > static_cast<std::size_t>(*num_states_)) {
    states_.take_oldest();
  }
}

}  // namespace deepinfer::apps
