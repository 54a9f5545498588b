#include "grammar/grammar.h"

#include "grammar/runtime.h"

namespace deepinfer::grammar {

namespace {

/// Idle runtimes kept warm per grammar.
constexpr std::size_t kMaxIdle = 4;

}  // namespace

bool WarmMemory::take(std::size_t bytes) {
  if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= max_bytes_) {
    return true;
  }
  give_back(bytes);
  return false;
}

CompiledGrammar::CompiledGrammar(ExprPool pool, Network network, RunLimits limits, std::vector<std::string> warnings)
    : pool_(std::move(pool)), network_(std::move(network)), limits_(limits), warnings_(std::move(warnings)) {}

CompiledGrammar::~CompiledGrammar() {
  for (const Idle& idle : idle_) {
    if (warm_memory_ != nullptr) {
      warm_memory_->give_back(idle.bytes);
    }
  }
}

std::size_t CompiledGrammar::bytes() const { return sizeof(*this) + pool_.bytes() + network_.bytes(); }

std::unique_ptr<Runtime> CompiledGrammar::take_runtime(const Vocabulary& vocabulary) const {
  {
    const std::lock_guard lock(mutex_);
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if (it->runtime->vocabulary == &vocabulary) {
        std::unique_ptr<Runtime> out = std::move(it->runtime);
        if (warm_memory_ != nullptr) {
          warm_memory_->give_back(it->bytes);
        }
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
  const std::size_t bytes = runtime->bytes();
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle && (warm_memory_ == nullptr || warm_memory_->take(bytes))) {
    idle_.push_back({std::move(runtime), bytes});
  }
}

void CompiledGrammar::share(std::shared_ptr<WarmMemory> memory) const {
  const std::lock_guard lock(mutex_);
  if (warm_memory_ != nullptr) {
    return;
  }
  warm_memory_ = std::move(memory);
  std::erase_if(idle_, [this](const Idle& idle) { return !warm_memory_->take(idle.bytes); });
}

}  // namespace deepinfer::grammar
