// Results of compiles, errors included, by kind, text and options: least recently used go first, bounded in bytes, the warm runtimes
// of the grammars among them.
// Thread-safe. Does not compile and does not wait: two threads that miss at once both compile.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "grammar/compile.h"
#include "grammar/composite.h"
#include "grammar/grammar.h"

namespace deepinfer::grammar {

using CompileResult = Compiled<std::shared_ptr<const CompiledGrammar>>;

class CompileCache {
 public:
  explicit CompileCache(std::size_t max_bytes) : max_bytes_(max_bytes), warm_(std::make_shared<WarmMemory>(max_bytes)) {}

  [[nodiscard]] std::optional<CompileResult> find(const std::string& key);
  /// Results that time, cancellation or a full machine made are not kept.
  void put(const std::string& key, const CompileResult& result);
  void clear();
  /// Warm runtimes included.
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Entry {
    std::string key;
    CompileResult result;
    std::size_t bytes = 0;
  };

  std::size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  std::shared_ptr<WarmMemory> warm_;  // of the entries, of the grammars in the cache, and of those in use that were
};

/// The key of a job: everything its result depends on.
[[nodiscard]] std::string cache_key(const CompileJob& job);
[[nodiscard]] std::string cache_key(const CompositeJob& job);

}  // namespace deepinfer::grammar
