#include "engine/prefix_store.h"

#include <utility>

namespace deepinfer::engine {

PrefixStore::PrefixStore(std::size_t max_memory_bytes, std::optional<DiskTier> disk)
    : max_memory_bytes_(max_memory_bytes), disk_(disk ? std::make_unique<DiskWorker>(std::move(*disk)) : nullptr) {}

PrefixStore::~PrefixStore() {
  for (Entry& entry : entries_) {
    spill(std::move(entry), WhenFull::wait);
  }
}

bool PrefixStore::contains(const PrefixKey& key) const { return places_.contains(key) || (disk_ && disk_->contains(key)); }

void PrefixStore::put(const PrefixKey& key, std::vector<std::byte>&& bytes, WhenFull when_full) {
  if (const auto found = places_.find(key); found != places_.end()) {
    entries_.splice(entries_.end(), entries_, found->second);  // equal keys mean equal bytes
    return;
  }
  memory_bytes_ += bytes.size();
  entries_.push_back({.key = key, .bytes = std::move(bytes)});
  places_[key] = std::prev(entries_.end());
  while (memory_bytes_ > max_memory_bytes_) {
    Entry& oldest = entries_.front();
    memory_bytes_ -= oldest.bytes.size();
    places_.erase(oldest.key);
    spill(std::move(oldest), when_full);
    entries_.pop_front();
  }
}

void PrefixStore::spill(Entry&& entry, WhenFull when_full) {
  if (disk_) {
    disk_->write(entry.key, std::move(entry.bytes), when_full);
  }
}

void PrefixStore::begin_read(const PrefixKey& key) {
  if (disk_ && !places_.contains(key)) {
    disk_->begin_read(key);
  }
}

void PrefixStore::wait_for_reads(Duration timeout) {
  if (disk_) {
    disk_->wait_for_any(timeout);
  }
}

void PrefixStore::drop_read(const PrefixKey& key) {
  if (disk_) {
    static_cast<void>(disk_->take(key));
  }
}

std::optional<std::vector<std::byte>> PrefixStore::get(const PrefixKey& key) {
  if (const auto found = places_.find(key); found != places_.end()) {
    entries_.splice(entries_.end(), entries_, found->second);
    return found->second->bytes;
  }
  if (!disk_) {
    return std::nullopt;
  }
  disk_->begin_read(key);
  disk_->wait_for(key);
  return disk_->take(key);
}

void PrefixStore::settle() {
  if (disk_) {
    disk_->settle();
  }
}

PrefixStoreStats PrefixStore::stats() const {
  const DiskStats disk = disk_ ? disk_->stats() : DiskStats{};
  return {.num_in_memory = entries_.size(),
          .memory_bytes = memory_bytes_,
          .num_on_disk = disk.num_files,
          .disk_bytes = disk.num_bytes,
          .num_refused = disk.num_refused,
          .num_damaged = disk.num_damaged};
}

}  // namespace deepinfer::engine
