// CompiledGrammar: the immutable result of compiling a constraint, shared by every request that uses it.
// How it is made: compile.h. How it is followed: matcher.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "grammar/expr.h"
#include "grammar/limits.h"
#include "grammar/network.h"

namespace deepinfer::grammar {

class Runtime;
class Vocabulary;

/// Memory of a cache's entries and of the warm runtimes of all grammars that share it, and the most it may become. Thread-safe.
class WarmMemory {
 public:
  explicit WarmMemory(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  /// False when there is no room: the runtime is not to be kept.
  [[nodiscard]] bool take(std::size_t bytes);
  /// Whatever the limit says: the caller makes room.
  void add(std::size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void give_back(std::size_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::size_t max_bytes_;
  std::atomic<std::size_t> bytes_{0};
};

/// Grammar and vocabulary-independent tables. Thread-safe: the only thing that changes is a pool of warm runtimes.
class CompiledGrammar {
 public:
  CompiledGrammar(ExprPool pool, Network network, RunLimits limits, std::vector<std::string> warnings);
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  /// Memory held, without the vocabulary and without warm runtimes.
  [[nodiscard]] std::size_t bytes() const;
  /// Keywords no draft knows and formats no draft defines, which were ignored.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  /// A runtime for `vocabulary`, warm from an earlier matcher when there is one. The grammar and vocabulary outlive it.
  [[nodiscard]] std::unique_ptr<Runtime> take_runtime(const Vocabulary& vocabulary) const;
  void give_back(std::unique_ptr<Runtime> runtime) const;
  /// From now on warm runtimes are kept only as long as `memory` has room for them. Once, by the cache that holds the grammar.
  void share(std::shared_ptr<WarmMemory> memory) const;

 private:
  ExprPool pool_;
  Network network_;
  RunLimits limits_;
  std::vector<std::string> warnings_;
  mutable std::mutex mutex_;
  struct Idle {
    std::unique_ptr<Runtime> runtime;
    std::size_t bytes = 0;
  };
  mutable std::vector<Idle> idle_;
  mutable std::shared_ptr<WarmMemory> warm_memory_;  // may be empty
};

}  // namespace deepinfer::grammar
