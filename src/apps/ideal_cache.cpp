#include "apps/ideal_cache.h"

#include <algorithm>
#include <ranges>

namespace deepinfer::apps {

std::int32_t IdealCache::run(std::span<const kvcache::BlockHash> blocks, std::size_t num_usable, std::size_t num_held) {
  std::int32_t num_found = 0;
  bool is_chain = true;
  for (const kvcache::BlockHash& block : blocks.first(std::min(num_usable, blocks.size()))) {
    is_chain = is_chain && places_.contains(block);
    num_found += is_chain ? 1 : 0;
  }
  for (const kvcache::BlockHash& block : blocks) {  // held while it runs, so the last to go
    if (const auto place = places_.find(block); place != places_.end()) {
      order_.erase(place->second);
      places_.erase(place);
    }
  }
  const std::size_t num_left = num_blocks_ - std::min(num_held, num_blocks_);
  while (order_.size() > num_left) {
    places_.erase(order_.front());
    order_.pop_front();
  }
  for (const kvcache::BlockHash& block : blocks | std::views::reverse) {  // a prefix outlives what follows it
    places_[block] = order_.insert(order_.end(), block);
  }
  return num_found;
}

}  // namespace deepinfer::apps
