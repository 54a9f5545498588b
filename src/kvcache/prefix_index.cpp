#include "kvcache/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::kvcache {
namespace {

/// Forgotten prefixes per block that are remembered, to tell "evicted" from "never seen".
constexpr std::size_t kForgottenPerBlock = 4;

}  // namespace

PrefixIndex::PrefixIndex(std::int32_t num_blocks, std::int32_t num_slots)
    : hash_of_block_(static_cast<std::size_t>(num_blocks)), hash_of_slot_(static_cast<std::size_t>(num_slots)) {}

const PrefixIndex::Entry* PrefixIndex::find(const BlockHash& hash) const {
  const auto found = entries_.find(hash);
  return found == entries_.end() ? nullptr : &found->second;
}

void PrefixIndex::insert(const BlockHash& hash, BlockId block) {
  const auto [place, inserted] = entries_.try_emplace(hash, Entry{.block = block});
  if (inserted) {
    check(!holds_prefix(block), "a block holds one prefix");
    hash_of_block_[static_cast<std::size_t>(block.value)] = &place->first;
  }
}

void PrefixIndex::set_state(const BlockHash& hash, SlotId slot) {
  const auto found = entries_.find(hash);
  check(found != entries_.end(), "a state lies behind a prefix that is here");
  check(!holds_state(slot), "a slot holds one state");
  if (found->second.state.value != 0) {
    forget(found->second.state);
  }
  found->second.state = slot;
  hash_of_slot_[static_cast<std::size_t>(slot.value)] = &found->first;
}

void PrefixIndex::forget(BlockId block) {
  const BlockHash* hash = hash_of_block_[static_cast<std::size_t>(block.value)];
  if (hash == nullptr) {
    return;
  }
  const auto found = entries_.find(*hash);
  if (found->second.state.value != 0) {
    forget(found->second.state);
  }
  hash_of_block_[static_cast<std::size_t>(block.value)] = nullptr;
  remember_forgotten(found->first);
  entries_.erase(found);
}

void PrefixIndex::forget(SlotId slot) {
  const BlockHash* hash = hash_of_slot_[static_cast<std::size_t>(slot.value)];
  if (hash != nullptr) {
    entries_.at(*hash).state = {};
    hash_of_slot_[static_cast<std::size_t>(slot.value)] = nullptr;
  }
}

void PrefixIndex::remember_forgotten(const BlockHash& hash) {
  if (!forgotten_.insert(hash).second) {
    return;
  }
  if (forgotten_ring_.size() < kForgottenPerBlock * hash_of_block_.size()) {
    forgotten_ring_.push_back(hash);
    return;
  }
  forgotten_.erase(forgotten_ring_[next_forgotten_]);
  forgotten_ring_[next_forgotten_] = hash;
  next_forgotten_ = (next_forgotten_ + 1) % forgotten_ring_.size();
}

void PrefixIndex::check_integrity() const {
  std::size_t num_states = 0;
  for (const auto& [hash, entry] : entries_) {
    check(hash_of_block_.at(static_cast<std::size_t>(entry.block.value)) == &hash, "a prefix's block knows its prefix");
    if (entry.state.value != 0) {
      ++num_states;
      check(hash_of_slot_.at(static_cast<std::size_t>(entry.state.value)) == &hash, "a state's slot knows its prefix");
    }
  }
  const auto is_set = [](const BlockHash* hash) { return hash != nullptr; };
  check(static_cast<std::size_t>(std::ranges::count_if(hash_of_block_, is_set)) == entries_.size(),
        "a block with a prefix is in the index");
  check(static_cast<std::size_t>(std::ranges::count_if(hash_of_slot_, is_set)) == num_states, "a slot with a state is in the index");
  check(forgotten_.size() == forgotten_ring_.size(), "what was forgotten is remembered once");
}

}  // namespace deepinfer::kvcache
