// CachePool: the cache groups of an engine as one pool. A request holds one slot (bounded state: window rings, compressor
// tails, Engram history) and the blocks of its positions (compressed rows and index keys share one block table). Blocks and slots that
// nobody holds keep what is in them until they are needed, so a later request with the same prefix can start behind it.
// Not here: memory, tokens, who may have how much.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kvcache/block_hash.h"
#include "kvcache/id_pool.h"
#include "kvcache/prefix_index.h"

namespace deepinfer::kvcache {

/// How much there is; must agree with the sizes the model allocated.
struct CacheGeometry {
  std::int32_t positions_per_block = 128;  ///< model.md §9.1
  std::int32_t num_blocks = 0;             ///< block 0 (padding) included
  std::int32_t num_slots = 0;              ///< slot 0 (padding) included
};

/// What one request holds of all cache groups. Moves with the request's state, never copies; given back by CachePool::release.
struct Holding {
  SlotId slot;
  std::vector<BlockId> blocks;  ///< block i covers positions [i · positions_per_block, (i + 1) · positions_per_block)
  SlotId saved_state{};         ///< a slot for a copy of `slot` that is not known to others yet; 0: none

  Holding() = default;
  Holding(SlotId slot_id, std::vector<BlockId> block_ids) : slot(slot_id), blocks(std::move(block_ids)) {}
  Holding(Holding&&) noexcept = default;
  Holding& operator=(Holding&&) noexcept = default;
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() = default;
};

/// How much of a chain of prefixes is in the cache.
struct PrefixMatch {
  std::int32_t num_blocks = 0;        ///< leading blocks that are here
  std::int32_t num_state_blocks = 0;  ///< of these, up to the last one with a state behind it
};

/// What a prefix lost because its block or the slot of its state is needed for something else; 0: not this one.
struct Evicted {
  BlockHash prefix;
  BlockId block{};
  SlotId state{};
};

class CachePool {
 public:
  explicit CachePool(CacheGeometry geometry);

  /// A slot and blocks for positions 0 … num_positions − 1; nullopt, and nothing taken, when either is short. The first blocks are
  /// those of `shared`, prefixes that are all here. The slot `state` of one of them keeps what is in it; only when no other slot is
  /// free, the holding has that one.
  [[nodiscard]] std::optional<Holding> acquire(std::int32_t num_positions, std::span<const BlockHash> shared = {}, SlotId state = {});
  /// Makes `holding` cover positions 0 … num_positions − 1; false, and nothing taken, when blocks are short.
  [[nodiscard]] bool extend(Holding& holding, std::int32_t num_positions);
  /// A holding beside `parent` that shares its first `num_shared` blocks and has blocks of its own for the other positions; the caller
  /// copies what is in them and in the slot. nullopt, and nothing taken, when either is short.
  [[nodiscard]] std::optional<Holding> fork(const Holding& parent, std::int32_t num_shared, std::int32_t num_positions);
  /// Gives everything back. Blocks with a known prefix are reused last.
  void release(Holding&& holding);

  [[nodiscard]] PrefixMatch match(std::span<const BlockHash> prefixes) const;
  /// Free blocks that acquire() would take.
  [[nodiscard]] std::int32_t num_blocks_needed(std::int32_t num_positions, std::span<const BlockHash> shared) const;
  /// The slot with the state behind a prefix that is here; 0: none.
  [[nodiscard]] SlotId state_behind(const BlockHash& prefix) const;
  [[nodiscard]] bool has_state(const BlockHash& prefix) const;
  /// The state behind a prefix is not worth its slot any more. Nothing happens when there is none.
  void forget_state(const BlockHash& prefix);
  /// Makes a held block known as the one with this prefix, if none is yet.
  void publish(const BlockHash& prefix, BlockId block) { index_.insert(prefix, block); }
  /// Takes a slot for a copy of the holding's state; false when every slot is held.
  [[nodiscard]] bool acquire_state(Holding& holding);
  /// The copy is there: makes it known behind a prefix that is here.
  void publish_state(const BlockHash& prefix, Holding& holding);
  /// Nobody will look for the copy.
  void discard_state(Holding& holding);

  /// From now on evictions are noted for take_evicted().
  void note_evictions() { notes_evictions_ = true; }
  /// The evictions since the last call, in order. What was in them is lost when the new owner writes.
  [[nodiscard]] std::vector<Evicted> take_evicted() { return std::exchange(evicted_, {}); }
  /// A free block for a prefix, or slot for the state behind one, that comes back from elsewhere; free afterwards as well, found, and
  /// reused after all others. nullopt when there is none.
  [[nodiscard]] std::optional<BlockId> adopt(const BlockHash& prefix);
  [[nodiscard]] std::optional<SlotId> adopt_state(const BlockHash& prefix);
  /// Makes the free ones of a chain of prefixes that are here the last to be reused, its end before its beginning. Returns their number.
  std::int32_t touch(std::span<const BlockHash> prefixes);

  [[nodiscard]] std::int32_t num_blocks_for(std::int32_t num_positions) const;
  [[nodiscard]] std::int32_t positions_per_block() const { return geometry_.positions_per_block; }
  /// The longest request that fits when it is alone.
  [[nodiscard]] std::int64_t max_positions() const;
  [[nodiscard]] const BlockPool& blocks() const { return blocks_; }
  [[nodiscard]] const SlotPool& slots() const { return slots_; }
  [[nodiscard]] const PrefixIndex& index() const { return index_; }

  /// Aborts unless pools and index are sound and `holdings` are exactly the ones that were given out.
  void check_integrity(std::span<const Holding* const> holdings) const;

 private:
  [[nodiscard]] SlotId take_slot();
  void take_blocks(std::int32_t count, std::vector<BlockId>& out);

  CacheGeometry geometry_;
  BlockPool blocks_;
  SlotPool slots_;
  PrefixIndex index_;
  bool notes_evictions_ = false;
  std::vector<Evicted> evicted_;
};

}  // namespace deepinfer::kvcache
