// IdPool: which of n numbered things are free, and how many holders each of the others has.
// Not here: what the ids stand for, where their memory is, who the holders are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace deepinfer::kvcache {

/// Ids 0 … num_ids − 1, of which id 0 (the padding target) is never handed out. Id is BlockId or SlotId.
template <class Id>
class IdPool {
 public:
  explicit IdPool(std::int32_t num_ids);

  /// `count` ids with one holder each, the longest unused first; nullopt, and nothing taken, when fewer are free.
  [[nodiscard]] std::optional<std::vector<Id>> acquire(std::int32_t count);
  /// One more holder of an id that is held already.
  void share(Id id);
  /// One holder less of each. An id without holders is free again, reused after all others; the last of `ids` is reused first.
  void release(std::span<const Id> ids);
  /// As release() of one id, but without holders it is the next to be handed out: nobody will ask for what it stood for.
  void discard(Id id);
  /// Takes one certain free id.
  void reclaim(Id id);
  /// Makes a free id the last to be handed out.
  void touch(Id id);

  [[nodiscard]] std::int32_t num_holders(Id id) const;
  [[nodiscard]] bool is_free(Id id) const { return num_holders(id) == 0; }
  [[nodiscard]] std::int32_t num_free() const { return num_free_; }
  [[nodiscard]] std::int32_t num_used() const { return capacity() - num_free_; }
  /// Ids that can be handed out: id 0 is not among them.
  [[nodiscard]] std::int32_t capacity() const { return static_cast<std::int32_t>(entries_.size()) - 1; }

  /// Aborts unless every id is either held or exactly once in the free list.
  void check_integrity() const;

 private:
  struct Entry {
    std::int32_t num_holders = 0;
    std::int32_t previous = 0;  // in the free list, whose two ends are the neighbours of id 0
    std::int32_t next = 0;
  };

  [[nodiscard]] Entry& entry(Id id);
  [[nodiscard]] Entry& at(std::int32_t id) { return entries_[static_cast<std::size_t>(id)]; }
  void link_before(std::int32_t id, std::int32_t next);
  void unlink(std::int32_t id);
  [[nodiscard]] bool drop_holder(Id id);

  std::vector<Entry> entries_;  // entry 0 is the ring's head: next is the first free id, previous the last
  std::int32_t num_free_ = 0;
};

using BlockPool = IdPool<BlockId>;
using SlotPool = IdPool<SlotId>;

extern template class IdPool<BlockId>;
extern template class IdPool<SlotId>;

}  // namespace deepinfer::kvcache
