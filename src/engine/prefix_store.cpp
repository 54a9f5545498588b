#include "engine/prefix_store.h"

#include <utility>

namespace deepinfer::engine {

PrefixStore::PrefixStore(std::size_t max_memory_bytes, std::optional<DiskTier> disk)
    : max_memory_bytes_(max_memory_bytes), disk_(std::move(disk)) {}

PrefixStore::~PrefixStore() {
  for (const Entry& entry : entries_) {
    spill(entry);
  }
}

bool PrefixStore::contains(const PrefixKey& key) const { return places_.contains(key) || (disk_ && disk_->contains(key)); }

void PrefixStore::put(const PrefixKey& key, std::vector<std::byte>&& bytes) {
  if (const auto found = places_.find(key); found != places_.end()) {
    entries_.splice(entries_.end(), entries_, found->second);  // equal keys mean equal bytes
    return;
  }
  memory_bytes_ += bytes.size();
  entries_.push_back({.key = key, .bytes = std::move(bytes)});
  places_[key] = std::prev(entries_.end());
  while (memory_bytes_ > max_memory_bytes_) {
    const Entry& oldest = entries_.front();
    spill(oldest);
    memory_bytes_ -= oldest.bytes.size();
    places_.erase(oldest.key);
    entries_.pop_front();
  }
}

/// The same bytes may be on disk already, from an earlier turn.
void PrefixStore::spill(const Entry& entry) {
  if (disk_ && !disk_->contains(entry.key) && !disk_->write(entry.key, entry.bytes)) {
    ++num_refused_;
  }
}

std::optional<std::vector<std::byte>> PrefixStore::get(const PrefixKey& key) {
  if (const auto found = places_.find(key); found != places_.end()) {
    entries_.splice(entries_.end(), entries_, found->second);
    return found->second->bytes;
  }
  if (!disk_ || !disk_->contains(key)) {
    return std::nullopt;
  }
  auto bytes = disk_->read(key);
  num_damaged_ += bytes ? 0 : 1;
  return bytes;
}

PrefixStoreStats PrefixStore::stats() const {
  return {.num_in_memory = entries_.size(),
          .memory_bytes = memory_bytes_,
          .num_on_disk = disk_ ? disk_->num_files() : 0,
          .disk_bytes = disk_ ? disk_->num_bytes() : 0,
          .num_refused = num_refused_,
          .num_damaged = num_damaged_};
}

}  // namespace deepinfer::engine
