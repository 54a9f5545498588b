// From a checkpoint directory to an engine that can run: every check first, allocation last. All errors are sentences that say what
// to change. Not here: flags, progress bars, devices (apps).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/memory_plan.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::grammar {
class Vocabulary;
}

namespace deepinfer::engine {

/// What load_engine does, in this order.
enum class LoadPhase : std::uint8_t { config, tokenizer, checkpoint, values, model, done };
inline constexpr std::int32_t kNumLoadPhases = static_cast<std::int32_t>(LoadPhase::done);

/// "reading the configuration", …: for a progress bar.
[[nodiscard]] std::string_view describe(LoadPhase phase);

/// Called when a phase begins; `done` at the end.
using LoadProgress = std::function<void(LoadPhase)>;

struct LoadedEngine {
  std::unique_ptr<Engine> engine;
  tokenizer::Tokenizer tokenizer;
  std::shared_ptr<const grammar::Vocabulary> vocabulary;  ///< for compiling constraints
  model::Config config;
  EngineOptions options;  ///< as used: max_model_len resolved
  model::MemoryPlan memory;
  std::vector<model::CacheGroup> cache_groups;  ///< bytes per block or slot, for start-up lines and metrics
  std::vector<std::string> warnings;            ///< oddities of the checkpoint, one sentence each
};

/// `device` must outlive the engine. `clock`: EngineParts::clock; none: the usual one. Errors: not_found, io, corrupt,
/// unsupported (the files), invalid_argument (the options), exhausted (memory), each naming the file, the tensor or the numbers.
[[nodiscard]] Result<LoadedEngine> load_engine(const std::filesystem::path& directory, const EngineOptions& options, Device& device,
                                               const LoadProgress& progress = {}, std::unique_ptr<const Clock> clock = nullptr);

}  // namespace deepinfer::engine
