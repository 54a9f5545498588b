// A first-in first-out free list threaded through the entries: no allocation after construction but the returned ids.
#include "kvcache/id_pool.h"

#include <ranges>

#include "base/check.h"

namespace deepinfer::kvcache {

template <class Id>
IdPool<Id>::IdPool(std::int32_t num_ids) {
  check(num_ids >= 1, "a pool has at least the padding id 0");
  entries_.resize(static_cast<std::size_t>(num_ids));
  for (std::int32_t id = 1; id + 1 < num_ids; ++id) {
    entries_[static_cast<std::size_t>(id)].next_free = id + 1;
  }
  num_free_ = num_ids - 1;
  first_free_ = num_free_ > 0 ? 1 : 0;
  last_free_ = num_free_;
}

template <class Id>
auto IdPool<Id>::entry(Id id) -> Entry& {
  check(id.value > 0 && id.value <= capacity(), "an id in use is one the pool handed out");
  return entries_[static_cast<std::size_t>(id.value)];
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
    const Id id{first_free_};
    Entry& taken = entry(id);
    first_free_ = taken.next_free;
    taken = {.num_holders = 1, .next_free = 0};
    ids.push_back(id);
  }
  num_free_ -= count;
  if (first_free_ == 0) {
    last_free_ = 0;
  }
  return ids;
}

template <class Id>
void IdPool<Id>::share(Id id) {
  Entry& shared = entry(id);
  check(shared.num_holders > 0, "only a held id can be shared");
  ++shared.num_holders;
}

template <class Id>
void IdPool<Id>::release(std::span<const Id> ids) {
  for (const Id id : ids | std::views::reverse) {
    Entry& released = entry(id);
    check(released.num_holders > 0, "only a held id can be released");
    if (--released.num_holders > 0) {
      continue;
    }
    if (last_free_ == 0) {
      first_free_ = id.value;
    } else {
      entries_[static_cast<std::size_t>(last_free_)].next_free = id.value;
    }
    last_free_ = id.value;
    ++num_free_;
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
  for (std::int32_t id = first_free_; id != 0; id = entries_[static_cast<std::size_t>(id)].next_free) {
    check(entries_[static_cast<std::size_t>(id)].num_holders == 0, "a free id has no holder");
    check(++num_listed <= num_free_, "the free list has no cycle and agrees with its length");
    last = id;
  }
  check(last == last_free_, "the end of the free list is known");
  std::int32_t num_unheld = 0;
  for (std::int32_t id = 1; id <= capacity(); ++id) {
    num_unheld += entries_[static_cast<std::size_t>(id)].num_holders == 0 ? 1 : 0;
  }
  check(num_listed == num_free_ && num_unheld == num_free_, "every id without a holder is in the free list");
}

template class IdPool<BlockId>;
template class IdPool<SlotId>;

}  // namespace deepinfer::kvcache
