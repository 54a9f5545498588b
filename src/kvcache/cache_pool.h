// CachePool: the cache groups of an engine as one pool. A request holds one slot (bounded state: window rings, compressor
// tails, Engram history) and the blocks of its positions (compressed rows and index keys share one block table).
// Not here: memory, tokens, who may have how much.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kvcache/id_pool.h"

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

  Holding() = default;
  Holding(SlotId slot_id, std::vector<BlockId> block_ids) : slot(slot_id), blocks(std::move(block_ids)) {}
  Holding(Holding&&) noexcept = default;
  Holding& operator=(Holding&&) noexcept = default;
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() = default;
};

class CachePool {
 public:
  explicit CachePool(CacheGeometry geometry);

  /// A slot and blocks for positions 0 … num_positions − 1; nullopt, and nothing taken, when either is short.
  [[nodiscard]] std::optional<Holding> acquire(std::int32_t num_positions);
  /// Makes `holding` cover positions 0 … num_positions − 1; false, and nothing taken, when blocks are short.
  [[nodiscard]] bool extend(Holding& holding, std::int32_t num_positions);
  /// Gives everything back.
  void release(Holding&& holding);

  [[nodiscard]] std::int32_t num_blocks_for(std::int32_t num_positions) const;
  /// The longest request that fits when it is alone.
  [[nodiscard]] std::int64_t max_positions() const;
  [[nodiscard]] const BlockPool& blocks() const { return blocks_; }
  [[nodiscard]] const SlotPool& slots() const { return slots_; }

  /// Aborts unless the pools are sound and `holdings` are exactly the ones that were given out.
  void check_integrity(std::span<const Holding* const> holdings) const;

 private:
  CacheGeometry geometry_;
  BlockPool blocks_;
  SlotPool slots_;
};

}  // namespace deepinfer::kvcache
