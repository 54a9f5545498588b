// Where cached prefixes go when their blocks and slots are needed: host memory first, from there to a disk directory, if there is one.
// Not here: what is in device memory (kvcache), moving bytes there and back (engine, model).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/disk_worker.h"

namespace deepinfer::engine {

struct PrefixStoreStats {
  std::size_t num_in_memory = 0;  ///< blocks and states
  std::size_t memory_bytes = 0;
  std::size_t num_on_disk = 0;
  std::size_t disk_bytes = 0;
  std::int64_t num_refused = 0;  ///< writes the system did not do
  std::int64_t num_damaged = 0;  ///< files that were not as they had been written
};

class PrefixStore {
 public:
  explicit PrefixStore(std::size_t max_memory_bytes, std::optional<DiskTier> disk = {});
  PrefixStore(PrefixStore&&) = default;
  PrefixStore& operator=(PrefixStore&&) = delete;
  /// Writes what is in memory to the disk, so that the next process finds it.
  ~PrefixStore();

  [[nodiscard]] bool contains(const PrefixKey& key) const;
  /// Keeps the bytes; the least recently put or read go to disk when memory is short, and are lost without one. Nobody waits for the disk
  /// unless asked to.
  void put(const PrefixKey& key, std::vector<std::byte>&& bytes, WhenFull when_full = WhenFull::refuse);
  /// Begins to bring from the disk what is not in memory; get() then need not wait.
  void begin_read(const PrefixKey& key);
  [[nodiscard]] bool is_reading(const PrefixKey& key) const { return disk_ && disk_->is_reading(key); }
  /// Returns when some read ends, none is under way, or after `timeout`.
  void wait_for_reads(Duration timeout);
  /// Nobody will ask for what begin_read() brings.
  void drop_read(const PrefixKey& key);
  /// nullopt when it is not there or damaged. It is left where it was. Waits for a read.
  [[nodiscard]] std::optional<std::vector<std::byte>> get(const PrefixKey& key);
  /// Returns when the disk has done everything asked for.
  void settle();
  [[nodiscard]] bool has_disk() const { return disk_ != nullptr; }
  [[nodiscard]] PrefixStoreStats stats() const;

 private:
  struct Entry {
    PrefixKey key;
    std::vector<std::byte> bytes;
  };

  void spill(Entry&& entry, WhenFull when_full);

  std::size_t max_memory_bytes_ = 0;
  std::size_t memory_bytes_ = 0;
  std::list<Entry> entries_;  // least recently used first
  std::unordered_map<PrefixKey, std::list<Entry>::iterator, PrefixKeyHash> places_;
  std::unique_ptr<DiskWorker> disk_;  // null: none
};

}  // namespace deepinfer::engine
