#include "engine/disk_worker.h"

#include <utility>

namespace deepinfer::engine {

DiskWorker::DiskWorker(DiskTier tier, std::size_t max_queued_bytes) : max_queued_bytes_(max_queued_bytes), tier_(std::move(tier)) {
  for (const PrefixKey& key : tier_.keys()) {
    present_.insert(key);
  }
  note_changes_locked();
  thread_ = std::jthread([this] { run(); });
}

DiskWorker::~DiskWorker() {
  {
    const std::scoped_lock lock(mutex_);
    is_closing_ = true;
  }
  has_jobs_.notify_all();
  thread_.join();
}

bool DiskWorker::contains(const PrefixKey& key) const {
  const std::scoped_lock lock(mutex_);
  return present_.contains(key) || writing_.contains(key);
}

void DiskWorker::write(const PrefixKey& key, Bytes&& bytes, WhenFull when_full) {
  std::unique_lock lock(mutex_);
  if (present_.contains(key) || writing_.contains(key)) {
    return;
  }
  // One write of any size is always taken.
  const auto has_room = [&] { return num_queued_bytes_ == 0 || num_queued_bytes_ + bytes.size() <= max_queued_bytes_; };
  if (when_full == WhenFull::refuse && !has_room()) {
    ++stats_.num_refused;
    return;
  }
  has_changed_.wait(lock, has_room);
  num_queued_bytes_ += bytes.size();
  auto shared = std::make_shared<const Bytes>(std::move(bytes));
  writing_.emplace(key, shared);
  jobs_.push_back({.key = key, .written = std::move(shared)});
  has_jobs_.notify_one();
}

void DiskWorker::begin_read(const PrefixKey& key) {
  const std::scoped_lock lock(mutex_);
  if (reading_.contains(key) || brought_.contains(key)) {
    return;
  }
  if (const auto written = writing_.find(key); written != writing_.end()) {
    brought_.emplace(key, *written->second);
  } else if (present_.contains(key)) {
    reading_.insert(key);
    jobs_.push_front({.key = key, .written = nullptr});  // somebody waits for a read, nobody for a write
    has_jobs_.notify_one();
  }
}

bool DiskWorker::is_reading(const PrefixKey& key) const {
  const std::scoped_lock lock(mutex_);
  return reading_.contains(key);
}

std::optional<std::vector<std::byte>> DiskWorker::take(const PrefixKey& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = brought_.find(key);
  if (found == brought_.end()) {
    return std::nullopt;
  }
  Bytes out = std::move(found->second);
  brought_.erase(found);
  return out;
}

void DiskWorker::wait_for(const PrefixKey& key) {
  std::unique_lock lock(mutex_);
  has_changed_.wait(lock, [&] { return !reading_.contains(key); });
}

void DiskWorker::wait_for_any(Duration timeout) {
  std::unique_lock lock(mutex_);
  const std::size_t num_before = reading_.size();
  has_changed_.wait_for(lock, timeout, [&] { return reading_.empty() || reading_.size() != num_before; });
}

void DiskWorker::settle() {
  std::unique_lock lock(mutex_);
  has_changed_.wait(lock, [this] { return writing_.empty() && reading_.empty(); });
}

DiskStats DiskWorker::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void DiskWorker::run() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      has_jobs_.wait(lock, [this] { return is_closing_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
      if (is_closing_ && !job.written) {
        continue;
      }
    }
    if (job.written) {
      do_write(job);
    } else {
      do_read(job);
    }
    has_changed_.notify_all();
  }
}

void DiskWorker::do_write(const Job& job) {
  const bool is_written = tier_.write(job.key, *job.written);
  const std::scoped_lock lock(mutex_);
  note_changes_locked();
  if (is_written) {
    present_.insert(job.key);
  } else {
    ++stats_.num_refused;
  }
  writing_.erase(job.key);
  num_queued_bytes_ -= job.written->size();
}

void DiskWorker::do_read(const Job& job) {
  auto bytes = tier_.read(job.key);
  const std::scoped_lock lock(mutex_);
  note_changes_locked();
  if (bytes) {
    brought_.emplace(job.key, std::move(*bytes));
  } else {
    ++stats_.num_damaged;
  }
  reading_.erase(job.key);
}

void DiskWorker::note_changes_locked() {
  for (const PrefixKey& key : tier_.take_removed()) {
    present_.erase(key);
  }
  stats_.num_files = tier_.num_files();
  stats_.num_bytes = tier_.num_bytes();
}

}  // namespace deepinfer::engine
