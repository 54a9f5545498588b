// The free list is a ring through the entries, with entry 0 as its head: no allocation after construction but the returned ids.
#include "kvcache/id_pool.h"

#include <ranges>

#include "base/check.h"

namespace deepinfer::kvcache {

template <class Id>
IdPool<Id>::IdPool(std::int32_t num_ids) {
  check(num_ids >= 1, "a pool has at least the padding id 0");
  entries_.resize(static_cast<std::size_t>(num_ids));
  for (std::int32_t id = 1; id < num_ids; ++id) {
    link_before(id, 0);
  }
}

template <class Id>
auto IdPool<Id>::entry(Id id) -> Entry& {
  check(id.value > 0 && id.value <= capacity(), "an id in use is one the pool handed out");
  return at(id.value);
}

template <class Id>
void IdPool<Id>::link_before(std::int32_t id, std::int32_t next) {
  const std::int32_t previous = at(next).previous;
  at(id).previous = previous;
  at(id).next = next;
  at(previous).next = id;
  at(next).previous = id;
  ++num_free_;
}

template <class Id>
void IdPool<Id>::unlink(std::int32_t id) {
  at(at(id).previous).next = at(id).next;
  at(at(id).next).previous = at(id).previous;
  --num_free_;
}

template <class Id>
std::optional<std::vector<Id>> IdPool<Id>::acquire(std::int32_t count) {
  check(count >= 0, "the number of ids asked for is not negative");
  if (count > num_free_) {
    return std::nullopt;
  }
  std::vector<Id> ids;
  ids.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    ids.push_back({at(0).next});
    reclaim(ids.back());
  }
  return ids;
}

template <class Id>
void IdPool<Id>::reclaim(Id id) {
  check(entry(id).num_holders == 0, "only a free id can be taken");
  unlink(id.value);
  entry(id).num_holders = 1;
}

template <class Id>
void IdPool<Id>::touch(Id id) {
  check(entry(id).num_holders == 0, "only a free id has a place in the free list");
  unlink(id.value);
  link_before(id.value, 0);
}

template <class Id>
void IdPool<Id>::share(Id id) {
  Entry& shared = entry(id);
  check(shared.num_holders > 0, "only a held id can be shared");
  ++shared.num_holders;
}

/// True when the id has no holder any more.
template <class Id>
bool IdPool<Id>::drop_holder(Id id) {
  Entry& released = entry(id);
  check(released.num_holders > 0, "only a held id can be released");
  return --released.num_holders == 0;
}

template <class Id>
void IdPool<Id>::release(std::span<const Id> ids) {
  for (const Id id : ids | std::views::reverse) {
    if (drop_holder(id)) {
      link_before(id.value, 0);
    }
  }
}

template <class Id>
void IdPool<Id>::discard(Id id) {
  if (drop_holder(id)) {
    link_before(id.value, at(0).next);
  }
}

template <class Id>
std::int32_t IdPool<Id>::num_holders(Id id) const {
  check(id.value > 0 && id.value <= capacity(), "an id in use is one the pool handed out");
  return entries_[static_cast<std::size_t>(id.value)].num_holders;
}

template <class Id>
void IdPool<Id>::check_integrity() const {
  std::int32_t num_listed = 0;
  std::int32_t last = 0;
  for (std::int32_t id = entries_[0].next; id != 0; id = entries_[static_cast<std::size_t>(id)].next) {
    const Entry& free = entries_[static_cast<std::size_t>(id)];
    check(free.num_holders == 0, "a free id has no holder");
    check(free.previous == last, "the free list reads the same in both directions");
    check(++num_listed <= num_free_, "the free list has no cycle and agrees with its length");
    last = id;
  }
  check(last == entries_[0].previous, "the end of the free list is known");
  std::int32_t num_unheld = 0;
  for (std::int32_t id = 1; id <= capacity(); ++id) {
    num_unheld += entries_[static_cast<std::size_t>(id)].num_holders == 0 ? 1 : 0;
  }
  check(num_listed == num_free_ && num_unheld == num_free_, "every id without a holder is in the free list");
}

template class IdPool<BlockId>;
template class IdPool<SlotId>;

}  // namespace deepinfer::kvcache
