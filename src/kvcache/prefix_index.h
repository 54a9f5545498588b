// PrefixIndex: which block holds which prefix, and which slot holds the bounded state at its end. Free blocks and slots stay here until
// they are handed out for something else. Not here: holders and order of reuse (id_pool.h), when contents are complete (scheduler).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "kvcache/block_hash.h"

namespace deepinfer::kvcache {

class PrefixIndex {
 public:
  struct Entry {
    BlockId block;
    SlotId state{};  ///< the bounded state after the block; 0: none
  };

  PrefixIndex(std::int32_t num_blocks, std::int32_t num_slots);

  /// nullptr when no block holds the prefix.
  [[nodiscard]] const Entry* find(const BlockHash& hash) const;
  /// The block holds the prefix. Nothing happens when another block does already.
  void insert(const BlockHash& hash, BlockId block);
  /// The slot holds the state behind the prefix; the prefix must be here. A state it had before is forgotten.
  void set_state(const BlockHash& hash, SlotId slot);
  /// The block or slot is used for something else. Nothing happens when it holds nothing.
  void forget(BlockId block);
  void forget(SlotId slot);

  /// The prefix in a block, or before the state in a slot; nullptr: none. Valid until it is forgotten.
  [[nodiscard]] const BlockHash* prefix_of(BlockId block) const { return hash_of_block_[static_cast<std::size_t>(block.value)]; }
  [[nodiscard]] const BlockHash* prefix_of(SlotId slot) const { return hash_of_slot_[static_cast<std::size_t>(slot.value)]; }
  [[nodiscard]] bool holds_prefix(BlockId block) const { return prefix_of(block) != nullptr; }
  [[nodiscard]] bool holds_state(SlotId slot) const { return prefix_of(slot) != nullptr; }
  /// Whether the prefix was here and was forgotten; of the last forgotten ones, a few times as many as there are blocks.
  [[nodiscard]] bool was_here(const BlockHash& hash) const { return forgotten_.contains(hash); }
  [[nodiscard]] const std::unordered_map<BlockHash, Entry>& entries() const { return entries_; }
  [[nodiscard]] std::size_t num_prefixes() const { return entries_.size(); }

  /// Aborts unless both directions of the index agree.
  void check_integrity() const;

 private:
  void remember_forgotten(const BlockHash& hash);

  std::unordered_map<BlockHash, Entry> entries_;  // nodes: keys stay where they are
  std::vector<const BlockHash*> hash_of_block_;   // nullptr: none
  std::vector<const BlockHash*> hash_of_slot_;
  std::vector<BlockHash> forgotten_ring_;  // the oldest is overwritten
  std::size_t next_forgotten_ = 0;
  std::unordered_set<BlockHash> forgotten_;
};

}  // namespace deepinfer::kvcache
