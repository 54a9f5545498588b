#include "grammar/cache.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "grammar/grammar.h"

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
  if (result) {
    (*result)->share(warm_);
  }
  entries_.push_front({key, result, bytes});
  index_[key] = entries_.begin();
  warm_->add(bytes);
  while (!entries_.empty() && warm_->bytes() > max_bytes_) {
    warm_->give_back(entries_.back().bytes);
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

void CompileCache::clear() {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    warm_->give_back(entry.bytes);
  }
  index_.clear();
  entries_.clear();
}

std::size_t CompileCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return warm_->bytes();
}

namespace {

/// Numbers and texts one behind the other, none of which can be taken for a part of its neighbour.
class Key {
 public:
  void add(std::int64_t number) { text_ += std::to_string(number) + ' '; }
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    text_ += text;
  }
  void add(const CompileOptions& options) {
    add(static_cast<std::int64_t>(options.additional));
    add(static_cast<std::int64_t>(options.order));
    add(static_cast<std::int64_t>(options.format));
    add(static_cast<std::int64_t>(options.max_blanks));
    add(static_cast<std::int64_t>(options.layout.has_value()));
    if (options.layout) {
      add(options.layout->item_separator);
      add(options.layout->key_separator);
      add(options.layout->indent.value_or(-1));
    }
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string cache_key(const CompileJob& job) {
  Key key;
  key.add(static_cast<std::int64_t>(job.kind));
  key.add(job.options);
  key.add(job.text);
  return key.take();
}

std::string cache_key(const CompositeJob& job) {
  Key key;
  key.add(static_cast<std::int64_t>(job.tool_use));
  key.add(static_cast<std::int64_t>(job.has_parallel_calls));
  key.add(static_cast<std::int64_t>(job.block_is_open));
  key.add(job.dsml_token.value);
  key.add(job.bound_id ? job.bound_id->value : -1);
  key.add(static_cast<std::int64_t>(job.reasoning_end_ids.size()));
  for (const TokenId id : job.reasoning_end_ids) {
    key.add(id.value);
  }
  key.add(static_cast<std::int64_t>(job.tools.size()));
  for (const ToolDefinition& tool : job.tools) {
    key.add(static_cast<std::int64_t>(tool.is_strict));
    key.add(tool.name);
    key.add(tool.parameters);
  }
  if (job.body) {
    key.add(static_cast<std::int64_t>(job.body->kind));
    key.add(job.body->options);
    key.add(job.body->text);
  }
  return key.take();
}

}  // namespace deepinfer::grammar
