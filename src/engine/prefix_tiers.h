// Moves cached prefixes between the device and the PrefixStore: what is evicted goes down, what a new request begins with comes up.
// Not here: the bytes' life below the device (prefix_store.h), who may have which block (scheduler, kvcache).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "engine/prefix_store.h"
#include "kvcache/cache_pool.h"

namespace deepinfer::engine {

/// Bytes of a block or of the bounded state in a slot; each call is in order with the launches and done on return. Reads return false when
/// the device has a fault.
struct CacheCalls {
  std::size_t block_bytes = 0;
  std::size_t state_bytes = 0;
  std::move_only_function<bool(BlockId, std::span<std::byte> to)> read_block;
  std::move_only_function<void(BlockId, std::span<const std::byte> from)> write_block;
  std::move_only_function<bool(SlotId, std::span<std::byte> to)> read_state;
  std::move_only_function<void(SlotId, std::span<const std::byte> from)> write_state;
};

class PrefixTiers {
 public:
  /// `needs_states`: a prefix is of use only with the state behind it (exact reuse).
  struct Policy {
    bool needs_states = true;
  };
  PrefixTiers(CacheCalls calls, PrefixStore store, Policy policy);

  /// Keeps what the pool has evicted, before its new owner writes.
  void save_evicted(kvcache::CachePool& pool);
  /// Begins to bring from the disk what restore() will want of the chain. False: there is nothing to wait for.
  [[nodiscard]] bool begin_restore(const kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes);
  /// Whether something of that is still under way.
  [[nodiscard]] bool is_reading(std::span<const kvcache::BlockHash> prefixes) const;
  /// Returns when a read ends, or after `timeout`.
  void wait_for_reads(Duration timeout) { store_.wait_for_reads(timeout); }
  /// What was brought and is not needed any more goes.
  void drop_reads(std::span<const kvcache::BlockHash> prefixes);
  /// Brings up what the store has of the chain beyond what the pool has, as far as free blocks reach.
  void restore(kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes);
  /// Keeps everything the pool knows, for the next process. Nothing without a disk.
  void save_all(const kvcache::CachePool& pool);
  [[nodiscard]] PrefixStoreStats stats() const { return store_.stats(); }

 private:
  void save_block(const kvcache::BlockHash& prefix, BlockId block, WhenFull when_full = WhenFull::refuse);
  void save_state(const kvcache::BlockHash& prefix, SlotId slot, WhenFull when_full = WhenFull::refuse);
  [[nodiscard]] std::size_t num_useful(const kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes) const;
  [[nodiscard]] std::size_t restore_blocks(kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes);
  void restore_state(kvcache::CachePool& pool, std::span<const kvcache::BlockHash> prefixes);

  CacheCalls calls_;
  PrefixStore store_;
  Policy policy_;
};

}  // namespace deepinfer::engine
