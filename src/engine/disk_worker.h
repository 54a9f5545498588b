// A DiskTier on a thread of its own: who asks never waits for a file. Writes are queued, bounded in bytes; reads are begun and their bytes
// taken later. Not here: files (disk_tier.h), what is kept where (prefix_store.h).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "engine/disk_tier.h"

namespace deepinfer::engine {

/// Bytes that wait to be written at most: a burst of evictions, not more than a disk writes in a second or two.
inline constexpr std::size_t kMaxQueuedBytes = std::size_t{256} << 20;

struct DiskStats {
  std::size_t num_files = 0;
  std::size_t num_bytes = 0;
  std::int64_t num_refused = 0;  ///< writes that the system or the bound of the queue did not allow
  std::int64_t num_damaged = 0;  ///< files that were not as they had been written
};

enum class WhenFull : std::uint8_t { refuse, wait };

class DiskWorker {
 public:
  explicit DiskWorker(DiskTier tier, std::size_t max_queued_bytes = kMaxQueuedBytes);
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;
  /// Writes what is queued; reads that were not begun are dropped.
  ~DiskWorker();

  /// On the disk, or on its way there.
  [[nodiscard]] bool contains(const PrefixKey& key) const;
  /// Nothing happens when it is there or on its way.
  void write(const PrefixKey& key, std::vector<std::byte>&& bytes, WhenFull when_full = WhenFull::refuse);
  /// Begins to read what contains() says is there; nothing happens when that has begun before or it is not there.
  void begin_read(const PrefixKey& key);
  [[nodiscard]] bool is_reading(const PrefixKey& key) const;
  /// What a read has brought, once; nullopt before and without one, and when the file was damaged.
  [[nodiscard]] std::optional<std::vector<std::byte>> take(const PrefixKey& key);
  /// Returns when the key is not being read any more.
  void wait_for(const PrefixKey& key);
  /// Returns when some read ends, none is under way, or after `timeout`.
  void wait_for_any(Duration timeout);
  /// Returns when nothing is queued or under way.
  void settle();
  [[nodiscard]] DiskStats stats() const;

 private:
  using Bytes = std::vector<std::byte>;
  struct Job {
    PrefixKey key;
    std::shared_ptr<const Bytes> written;  // null: a read
  };

  void run();
  void do_write(const Job& job);
  void do_read(const Job& job);
  void note_changes_locked();

  const std::size_t max_queued_bytes_;
  DiskTier tier_;  // touched by thread_ only, once it runs

  mutable std::mutex mutex_;
  std::condition_variable has_jobs_;
  std::condition_variable has_changed_;
  bool is_closing_ = false;
  std::deque<Job> jobs_;
  std::size_t num_queued_bytes_ = 0;
  std::unordered_map<PrefixKey, std::shared_ptr<const Bytes>, PrefixKeyHash> writing_;
  std::unordered_set<PrefixKey, PrefixKeyHash> reading_;
  std::unordered_map<PrefixKey, Bytes, PrefixKeyHash> brought_;
  std::unordered_set<PrefixKey, PrefixKeyHash> present_;  // on the disk
  DiskStats stats_;

  std::jthread thread_;
};

}  // namespace deepinfer::engine
