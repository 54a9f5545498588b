#include "grammar/grammar.h"

#include "grammar/runtime.h"

namespace deepinfer::grammar {

namespace {

/// Idle runtimes kept warm per grammar.
constexpr std::size_t kMaxIdle = 4;

}  // namespace

CompiledGrammar::CompiledGrammar(ExprPool pool, Network network, RunLimits limits, std::vector<std::string> warnings)
    : pool_(std::move(pool)), network_(std::move(network)), limits_(limits), warnings_(std::move(warnings)) {}

CompiledGrammar::~CompiledGrammar() = default;

std::size_t CompiledGrammar::bytes() const { return sizeof(*this) + pool_.bytes() + network_.bytes(); }

std::unique_ptr<Runtime> CompiledGrammar::take_runtime(const Vocabulary& vocabulary) const {
  {
    const std::lock_guard lock(mutex_);
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if ((*it)->vocabulary == &vocabulary) {
        std::unique_ptr<Runtime> out = std::move(*it);
        idle_.erase(it);
        return out;
      }
    }
  }
  return std::make_unique<Runtime>(pool_, network_, vocabulary, limits_);
}

void CompiledGrammar::give_back(std::unique_ptr<Runtime> runtime) const {
  if (runtime->is_full() || runtime->is_exhausted()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) {
    idle_.push_back(std::move(runtime));
  }
}

}  // namespace deepinfer::grammar
