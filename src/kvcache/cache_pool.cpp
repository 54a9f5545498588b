// All cache groups of a request are taken and given back in one call, so none can be forgotten.
#include "kvcache/cache_pool.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::kvcache {

CachePool::CachePool(CacheGeometry geometry) : geometry_(geometry), blocks_(geometry.num_blocks), slots_(geometry.num_slots) {
  check(geometry.positions_per_block >= 1, "a block covers at least one position");
}

std::int32_t CachePool::num_blocks_for(std::int32_t num_positions) const {
  return num_positions / geometry_.positions_per_block + (num_positions % geometry_.positions_per_block != 0 ? 1 : 0);
}

std::int64_t CachePool::max_positions() const { return std::int64_t{blocks_.capacity()} * geometry_.positions_per_block; }

std::optional<Holding> CachePool::acquire(std::int32_t num_positions) {
  if (slots_.num_free() == 0) {
    return std::nullopt;
  }
  auto blocks = blocks_.acquire(num_blocks_for(num_positions));
  if (!blocks) {
    return std::nullopt;
  }
  const SlotId slot = slots_.acquire(1)->front();
  return Holding(slot, std::move(*blocks));
}

bool CachePool::extend(Holding& holding, std::int32_t num_positions) {
  const std::int32_t num_missing = num_blocks_for(num_positions) - static_cast<std::int32_t>(holding.blocks.size());
  if (num_missing <= 0) {
    return true;
  }
  const auto added = blocks_.acquire(num_missing);
  if (!added) {
    return false;
  }
  holding.blocks.insert(holding.blocks.end(), added->begin(), added->end());
  return true;
}

void CachePool::release(Holding&& holding) {
  const Holding released = std::move(holding);
  blocks_.release(released.blocks);
  slots_.release(std::span(&released.slot, 1));
}

void CachePool::check_integrity(std::span<const Holding* const> holdings) const {
  blocks_.check_integrity();
  slots_.check_integrity();
  std::vector<std::int32_t> block_holders(static_cast<std::size_t>(geometry_.num_blocks));
  std::vector<std::int32_t> slot_holders(static_cast<std::size_t>(geometry_.num_slots));
  for (const Holding* holding : holdings) {
    ++slot_holders.at(static_cast<std::size_t>(holding->slot.value));
    for (const BlockId block : holding->blocks) {
      ++block_holders.at(static_cast<std::size_t>(block.value));
    }
  }
  for (std::int32_t id = 1; id < geometry_.num_blocks; ++id) {
    check(block_holders[static_cast<std::size_t>(id)] == blocks_.num_holders(BlockId{id}), "a block is counted once per holding");
  }
  for (std::int32_t id = 1; id < geometry_.num_slots; ++id) {
    check(slot_holders[static_cast<std::size_t>(id)] == slots_.num_holders(SlotId{id}), "a slot is counted once per holding");
  }
  check(block_holders[0] == 0 && slot_holders[0] == 0, "id 0 is held by nobody");
}

}  // namespace deepinfer::kvcache
