// CompiledGrammar: the immutable result of compiling a constraint, shared by every request that uses it.
// How it is made: compile.h. How it is followed: matcher.h.
#pragma once

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

 private:
  ExprPool pool_;
  Network network_;
  RunLimits limits_;
  std::vector<std::string> warnings_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Runtime>> idle_;
};

}  // namespace deepinfer::grammar
