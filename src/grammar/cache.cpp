#include "grammar/cache.h"

namespace deepinfer::grammar {

std::optional<CompileResult> CompileCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto place = index_.find(key);
  if (place == index_.end()) {
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->result;
}

void CompileCache::put(const std::string& key, const CompileResult& result) {
  if (!result && (result.error().code == ErrorCode::timeout || result.error().code == ErrorCode::cancelled)) {
    return;
  }
  constexpr std::size_t kEntryBytes = 256;  // list and map nodes, error text
  const std::size_t bytes = kEntryBytes + 2 * key.size() + (result ? (*result)->bytes() : 0);
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || index_.contains(key)) {
    return;
  }
  entries_.push_front({key, result, bytes});
  index_[key] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes;
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

void CompileCache::clear() {
  const std::lock_guard lock(mutex_);
  index_.clear();
  entries_.clear();
  bytes_ = 0;
}

std::size_t CompileCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::string cache_key(const CompileJob& job) {
  const CompileOptions& options = job.options;
  std::string key;
  for (const std::int64_t part :
       {static_cast<std::int64_t>(job.kind), static_cast<std::int64_t>(options.additional), static_cast<std::int64_t>(options.order),
        static_cast<std::int64_t>(options.format), static_cast<std::int64_t>(options.max_blanks)}) {
    key += std::to_string(part) + ' ';
  }
  if (options.layout) {
    key += json::to_text(json::Value(json::Array{options.layout->item_separator, options.layout->key_separator,
                                                 options.layout->indent ? json::Value(*options.layout->indent) : json::Value()}));
  }
  return key + '\n' + std::string(job.text);
}

}  // namespace deepinfer::grammar
