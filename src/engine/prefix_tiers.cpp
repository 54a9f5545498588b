#include "engine/prefix_tiers.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace deepinfer::engine {

PrefixTiers::PrefixTiers(CacheCalls calls, PrefixStore store, Policy policy)
    : calls_(std::move(calls)), store_(std::move(store)), policy_(policy) {}

void PrefixTiers::save_evicted(kvcache::CachePool& pool) {
  for (const kvcache::Evicted& evicted : pool.take_evicted()) {
    if (evicted.block.value != 0) {
      save_block(evicted.prefix, evicted.block);
    }
    save_state(evicted.prefix, evicted.state);
  }
}

void PrefixTiers::save_all(const kvcache::CachePool& pool) {
  if (!store_.has_disk()) {
    return;
  }
  for (const auto& [prefix, entry] : pool.index().entries()) {
    save_block(prefix, entry.block, WhenFull::wait);
    save_state(prefix, entry.state, WhenFull::wait);
  }
}

bool PrefixTiers::begin_restore(const kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) {
  if (!store_.has_disk()) {
    return false;
  }
  const auto useful = prefixes.first(num_useful(pool, prefixes));
  for (const kvcache::BlockHash& prefix : useful) {
    if (pool.index().find(prefix) == nullptr) {
      store_.begin_read({.prefix = prefix, .part = PrefixPart::block});
    }
  }
  if (policy_.needs_states && !useful.empty() && !pool.has_state(useful.back())) {
    store_.begin_read({.prefix = useful.back(), .part = PrefixPart::state});
  }
  return is_reading(useful);
}

bool PrefixTiers::is_reading(std::span<const kvcache::BlockHash> prefixes) const {
  return std::ranges::any_of(prefixes, [this](const kvcache::BlockHash& prefix) {
    return store_.is_reading({.prefix = prefix, .part = PrefixPart::block}) ||
           store_.is_reading({.prefix = prefix, .part = PrefixPart::state});
  });
}

void PrefixTiers::drop_reads(std::span<const kvcache::BlockHash> prefixes) {
  for (const kvcache::BlockHash& prefix : prefixes) {
    store_.drop_read({.prefix = prefix, .part = PrefixPart::block});
    store_.drop_read({.prefix = prefix, .part = PrefixPart::state});
  }
}

void PrefixTiers::save_block(const kvcache::BlockHash& prefix, BlockId block, WhenFull when_full) {
  std::vector<std::byte> bytes(calls_.block_bytes);
  if (calls_.read_block(block, bytes)) {
    store_.put({.prefix = prefix, .part = PrefixPart::block}, std::move(bytes), when_full);
  }
}

void PrefixTiers::save_state(const kvcache::BlockHash& prefix, SlotId slot, WhenFull when_full) {
  if (slot.value == 0 || !policy_.needs_states) {
    return;
  }
  std::vector<std::byte> bytes(calls_.state_bytes);
  if (calls_.read_state(slot, bytes)) {
    store_.put({.prefix = prefix, .part = PrefixPart::state}, std::move(bytes), when_full);
  }
}

void PrefixTiers::restore(kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) {
  const auto useful = prefixes.first(num_useful(pool, prefixes));
  const std::size_t num_here = restore_blocks(pool, useful);
  if (policy_.needs_states) {
    restore_state(pool, useful.first(num_here));
  }
}

/// Leading prefixes that are somewhere, up to the last one with a state when states are needed.
std::size_t PrefixTiers::num_useful(const kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) const {
  std::size_t num_blocks = 0;
  std::size_t num_with_state = 0;
  for (const kvcache::BlockHash& prefix : prefixes) {
    if (pool.index().find(prefix) == nullptr && !store_.contains({.prefix = prefix, .part = PrefixPart::block})) {
      break;
    }
    ++num_blocks;
    if (pool.has_state(prefix) || store_.contains({.prefix = prefix, .part = PrefixPart::state})) {
      num_with_state = num_blocks;
    }
  }
  return policy_.needs_states ? num_with_state : num_blocks;
}

/// Returns how many leading prefixes the pool has afterwards. Blocks of the chain itself make no room for others of it.
std::size_t PrefixTiers::restore_blocks(kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) {
  std::int32_t num_others = pool.blocks().num_free() - pool.touch(prefixes);
  std::size_t num_here = 0;
  for (; num_here < prefixes.size(); ++num_here) {
    const kvcache::BlockHash& prefix = prefixes[num_here];
    if (pool.index().find(prefix) != nullptr) {
      continue;
    }
    const auto bytes = num_others > 0 ? store_.get({.prefix = prefix, .part = PrefixPart::block}) : std::nullopt;
    if (!bytes || bytes->size() != calls_.block_bytes) {
      break;
    }
    const auto block = pool.adopt(prefix);
    save_evicted(pool);
    calls_.write_block(*block, *bytes);
    --num_others;
  }
  pool.touch(prefixes.first(num_here));
  return num_here;
}

/// The deepest state that can be had.
void PrefixTiers::restore_state(kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) {
  for (; !prefixes.empty() && !pool.has_state(prefixes.back()); prefixes = prefixes.first(prefixes.size() - 1)) {
    const auto bytes = store_.get({.prefix = prefixes.back(), .part = PrefixPart::state});
    if (!bytes || bytes->size() != calls_.state_bytes) {
      continue;
    }
    if (const auto slot = pool.adopt_state(prefixes.back())) {
      save_evicted(pool);
      calls_.write_state(*slot, *bytes);
    }
    return;
  }
}

}  // namespace deepinfer::engine
