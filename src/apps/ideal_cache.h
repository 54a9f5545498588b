// The prefix cache that a trace could have at best with a given capacity: requests one after the other in order of arrival, the least
// recently used goes first, nothing is lost to companions or work in progress. Exact reuse also needs states: they are kept where a prompt
// ends and where it leaves what was here, as in the engine. Names only, no tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>

#include "kvcache/block_hash.h"

namespace deepinfer::apps {

/// Names in order of use.
class LruNames {
 public:
  [[nodiscard]] bool contains(const kvcache::BlockHash& name) const { return places_.contains(name); }
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  void erase(const kvcache::BlockHash& name);
  /// As the one used last.
  void put(const kvcache::BlockHash& name);
  /// The least recently used one.
  kvcache::BlockHash take_oldest();

 private:
  std::list<kvcache::BlockHash> order_;
  std::unordered_map<kvcache::BlockHash, std::list<kvcache::BlockHash>::iterator> places_;
};

class IdealCache {
 public:
  /// `num_states`: nullopt when a hit needs none.
  IdealCache(std::int32_t num_blocks, std::optional<std::int32_t> num_states)
      : num_blocks_(static_cast<std::size_t>(num_blocks)), num_states_(num_states) {}

  /// Runs a request whose known tokens in the end fill `blocks` and need `num_held` blocks, full or not. Of the first `num_usable` ones,
  /// those of the prompt, returns how many leading ones need not be computed.
  std::int32_t run(std::span<const kvcache::BlockHash> blocks, std::size_t num_usable, std::size_t num_held);

 private:
  void put_states(std::span<const kvcache::BlockHash> usable, std::size_t num_found, std::size_t num_hit);

  std::size_t num_blocks_;
  std::optional<std::int32_t> num_states_;
  LruNames blocks_;
  LruNames states_;
};

}  // namespace deepinfer::apps
