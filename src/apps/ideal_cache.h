// The prefix cache that a trace could have at best with a given number of blocks: requests one after the other in order of arrival, the
// least recently used block goes first, nothing is lost to states, companions or work in progress. Names only, no tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "kvcache/block_hash.h"

namespace deepinfer::apps {

class IdealCache {
 public:
  explicit IdealCache(std::int32_t num_blocks) : num_blocks_(static_cast<std::size_t>(num_blocks)) {}

  /// Runs a request whose known tokens in the end fill `blocks` and need `num_held` blocks, full or not. Of the first `num_usable` ones,
  /// those of the prompt, returns how many leading ones were here.
  std::int32_t run(std::span<const kvcache::BlockHash> blocks, std::size_t num_usable, std::size_t num_held);

 private:
  std::size_t num_blocks_;
  std::list<kvcache::BlockHash> order_;  // least recently used first
  std::unordered_map<kvcache::BlockHash, std::list<kvcache::BlockHash>::iterator> places_;
};

}  // namespace deepinfer::apps
