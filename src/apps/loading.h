// From flags to a served model: checkpoint, checks, tokenizer, device, model, engine thread. Everything that can be wrong with a model
// directory is found here, in sentences.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/model_flags.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/options.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"
#include "server/served_model.h"

namespace deepinfer::apps {

/// The directory of --model, or of the bundled model. Errors: not_found.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::filesystem::path& given);
/// Errors: invalid_argument for a device that this build does not have.
[[nodiscard]] Result<std::unique_ptr<Device>> open_device(const ModelFlags& flags);
[[nodiscard]] engine::EngineOptions engine_options(const ModelFlags& flags);
/// Where --engram-memory puts the tables of a model that is made without an engine.
[[nodiscard]] model::EngramTables engram_tables(const ModelFlags& flags, const model::Config& config, const model::CacheSizes& sizes,
                                                const DeviceInfo& device);

/// What a served model is beside its files.
struct ServedSettings {
  std::string name = {};         ///< in the APIs; empty: the name of the directory
  bool strict_official = false;  ///< see server::ServedModel
};

/// Shows progress on stderr.
[[nodiscard]] Result<std::shared_ptr<const server::ServedModel>> load_served_model(const ModelFlags& flags, const ServedSettings& settings,
                                                                                   const Log& log);

}  // namespace deepinfer::apps
