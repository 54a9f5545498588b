// All cache groups of a request are taken and given back in one call, so none can be forgotten.
#include "kvcache/cache_pool.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/check.h"

namespace deepinfer::kvcache {

CachePool::CachePool(CacheGeometry geometry)
    : geometry_(geometry), blocks_(geometry.num_blocks), slots_(geometry.num_slots), index_(geometry.num_blocks, geometry.num_slots) {
  check(geometry.positions_per_block >= 1, "a block covers at least one position");
}

std::int32_t CachePool::num_blocks_for(std::int32_t num_positions) const {
  return num_positions / geometry_.positions_per_block + (num_positions % geometry_.positions_per_block != 0 ? 1 : 0);
}

std::int64_t CachePool::max_positions() const { return std::int64_t{blocks_.capacity()} * geometry_.positions_per_block; }

PrefixMatch CachePool::match(std::span<const BlockHash> prefixes) const {
  PrefixMatch out;
  for (const BlockHash& prefix : prefixes) {
    const PrefixIndex::Entry* entry = index_.find(prefix);
    if (entry == nullptr) {
      break;
    }
    ++out.num_blocks;
    out.num_state_blocks = entry->state.value != 0 ? out.num_blocks : out.num_state_blocks;
  }
  return out;
}

std::int32_t CachePool::num_blocks_needed(std::int32_t num_positions, std::span<const BlockHash> shared) const {
  const auto is_held = [this](const BlockHash& prefix) {
    const PrefixIndex::Entry* entry = index_.find(prefix);
    check(entry != nullptr, "a shared prefix is here");
    return !blocks_.is_free(entry->block);
  };
  return num_blocks_for(num_positions) - static_cast<std::int32_t>(std::ranges::count_if(shared, is_held));
}

SlotId CachePool::state_behind(const BlockHash& prefix) const {
  const PrefixIndex::Entry* entry = index_.find(prefix);
  check(entry != nullptr, "a state is asked for behind a prefix that is here");
  return entry->state;
}

bool CachePool::has_state(const BlockHash& prefix) const {
  const PrefixIndex::Entry* entry = index_.find(prefix);
  return entry != nullptr && entry->state.value != 0;
}

void CachePool::forget_state(const BlockHash& prefix) {
  if (has_state(prefix)) {
    const SlotId slot = state_behind(prefix);
    index_.forget(slot);
    slots_.reclaim(slot);
    slots_.discard(slot);
  }
}

/// What lay in the slot that has waited longest is forgotten.
SlotId CachePool::take_slot() {
  const SlotId slot = slots_.acquire(1)->front();
  if (const BlockHash* prefix = index_.prefix_of(slot); prefix != nullptr && notes_evictions_) {
    evicted_.push_back({.prefix = *prefix, .state = slot});
  }
  index_.forget(slot);
  return slot;
}

/// What lay in the blocks that have waited longest is forgotten.
void CachePool::take_blocks(std::int32_t count, std::vector<BlockId>& out) {
  const auto taken = blocks_.acquire(count);
  check(taken.has_value(), "there are as many free blocks as were counted");
  for (const BlockId block : *taken) {
    if (const BlockHash* prefix = index_.prefix_of(block); prefix != nullptr && notes_evictions_) {
      evicted_.push_back({.prefix = *prefix, .block = block, .state = state_behind(*prefix)});
    }
    index_.forget(block);
    out.push_back(block);
  }
}

std::optional<BlockId> CachePool::adopt(const BlockHash& prefix) {
  check(index_.find(prefix) == nullptr, "only a prefix that is not here comes back");
  if (blocks_.num_free() == 0) {
    return std::nullopt;
  }
  std::vector<BlockId> taken;
  take_blocks(1, taken);
  index_.insert(prefix, taken.front());
  blocks_.release(taken);
  return taken.front();
}

std::optional<SlotId> CachePool::adopt_state(const BlockHash& prefix) {
  if (slots_.num_free() == 0) {
    return std::nullopt;
  }
  const SlotId slot = take_slot();
  index_.set_state(prefix, slot);
  slots_.release(std::span(&slot, 1));
  return slot;
}

std::int32_t CachePool::touch(std::span<const BlockHash> prefixes) {
  std::int32_t num_free = 0;
  for (const BlockHash& prefix : prefixes | std::views::reverse) {
    const PrefixIndex::Entry* entry = index_.find(prefix);
    if (entry != nullptr && blocks_.is_free(entry->block)) {
      blocks_.touch(entry->block);
      ++num_free;
    }
  }
  return num_free;
}

std::optional<Holding> CachePool::acquire(std::int32_t num_positions, std::span<const BlockHash> shared, SlotId state) {
  if (slots_.num_free() == 0 || num_blocks_needed(num_positions, shared) > blocks_.num_free()) {
    return std::nullopt;
  }
  std::vector<BlockId> table;
  table.reserve(static_cast<std::size_t>(num_blocks_for(num_positions)));
  for (const BlockHash& prefix : shared) {
    table.push_back(index_.find(prefix)->block);
    if (blocks_.is_free(table.back())) {
      blocks_.reclaim(table.back());
    } else {
      blocks_.share(table.back());
    }
  }
  if (state.value != 0) {
    slots_.touch(state);
  }
  take_blocks(num_blocks_for(num_positions) - static_cast<std::int32_t>(shared.size()), table);
  return Holding(take_slot(), std::move(table));
}

bool CachePool::extend(Holding& holding, std::int32_t num_positions) {
  const std::int32_t num_missing = num_blocks_for(num_positions) - static_cast<std::int32_t>(holding.blocks.size());
  if (num_missing > blocks_.num_free()) {
    return false;
  }
  if (num_missing > 0) {
    take_blocks(num_missing, holding.blocks);
  }
  return true;
}

std::optional<Holding> CachePool::fork(const Holding& parent, std::int32_t num_shared, std::int32_t num_positions) {
  const std::int32_t num_own = num_blocks_for(num_positions) - num_shared;
  check(num_shared <= static_cast<std::int32_t>(parent.blocks.size()) && num_own >= 0, "a fork shares blocks that the parent has");
  if (slots_.num_free() == 0 || num_own > blocks_.num_free()) {
    return std::nullopt;
  }
  std::vector<BlockId> table(parent.blocks.begin(), parent.blocks.begin() + num_shared);
  for (const BlockId block : table) {
    blocks_.share(block);
  }
  take_blocks(num_own, table);
  return Holding(take_slot(), std::move(table));
}

void CachePool::release(Holding&& holding) {
  const Holding released = std::move(holding);
  for (const BlockId block : released.blocks | std::views::reverse) {  // so that a prefix outlives what follows it
    if (index_.holds_prefix(block)) {
      blocks_.release(std::span(&block, 1));
    } else {
      blocks_.discard(block);
    }
  }
  slots_.discard(released.slot);
  if (released.saved_state.value != 0) {
    slots_.discard(released.saved_state);
  }
}

bool CachePool::acquire_state(Holding& holding) {
  check(holding.saved_state.value == 0, "a state is copied once at a time");
  if (slots_.num_free() == 0) {
    return false;
  }
  holding.saved_state = take_slot();
  return true;
}

void CachePool::publish_state(const BlockHash& prefix, Holding& holding) {
  const SlotId slot = std::exchange(holding.saved_state, SlotId{});
  index_.set_state(prefix, slot);
  slots_.release(std::span(&slot, 1));
}

void CachePool::discard_state(Holding& holding) { slots_.discard(std::exchange(holding.saved_state, SlotId{})); }

void CachePool::check_integrity(std::span<const Holding* const> holdings) const {
  blocks_.check_integrity();
  slots_.check_integrity();
  index_.check_integrity();
  std::vector<std::int32_t> block_holders(static_cast<std::size_t>(geometry_.num_blocks));
  std::vector<std::int32_t> slot_holders(static_cast<std::size_t>(geometry_.num_slots));
  for (const Holding* holding : holdings) {
    ++slot_holders.at(static_cast<std::size_t>(holding->slot.value));
    if (holding->saved_state.value != 0) {
      ++slot_holders.at(static_cast<std::size_t>(holding->saved_state.value));
    }
    for (const BlockId block : holding->blocks) {
      ++block_holders.at(static_cast<std::size_t>(block.value));
    }
  }
  for (std::int32_t id = 1; id < geometry_.num_blocks; ++id) {
    check(block_holders[static_cast<std::size_t>(id)] == blocks_.num_holders(BlockId{id}), "a block is counted once per holding");
  }
  for (std::int32_t id = 1; id < geometry_.num_slots; ++id) {
    check(slot_holders[static_cast<std::size_t>(id)] == slots_.num_holders(SlotId{id}), "a slot is counted once per holding");
    check(!index_.holds_state(SlotId{id}) || slots_.is_free(SlotId{id}), "nobody writes to a slot with a state of the index");
  }
  check(block_holders[0] == 0 && slot_holders[0] == 0, "id 0 is held by nobody");
}

}  // namespace deepinfer::kvcache
