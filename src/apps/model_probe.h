// The line protocol of `deepinfer model probe` (docs/spec/cli.md): one JSON request line to one JSON answer line.
// Drives the model directly for forward, score and layers, and an engine for generate and stats; each is made when first needed.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/model_flags.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/load.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/probe.h"
#include "ops/device.h"

namespace deepinfer::apps {

class ModelProbe {
 public:
  /// Errors: those of the configuration and the device. Weights are opened with the first request that needs them.
  static Result<std::unique_ptr<ModelProbe>> open(const ModelFlags& flags);

  /// Never fails: what is wrong is the answer {"error": {"kind", "message"}}.
  [[nodiscard]] std::string answer(std::string_view line);

 private:
  using Answer = Result<json::Value>;

  ModelProbe(std::filesystem::path directory, ModelFlags flags, model::Config config, std::unique_ptr<Device> device);
  [[nodiscard]] Answer dispatch(const json::Value& request);
  [[nodiscard]] Answer forward(const json::Value& request);
  [[nodiscard]] Answer draft(const json::Value& request);
  [[nodiscard]] Answer score(const json::Value& request);
  [[nodiscard]] Answer layers(const json::Value& request);
  [[nodiscard]] Answer generate(const json::Value& request);
  [[nodiscard]] Answer stats();
  [[nodiscard]] Result<model::Probe*> direct();
  [[nodiscard]] Result<engine::LoadedEngine*> engine();

  std::filesystem::path directory_;
  ModelFlags flags_;
  model::Config config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<model::DeepseekV41> model_;  ///< of direct()
  std::optional<model::Probe> direct_;
  std::optional<engine::LoadedEngine> engine_;
};

}  // namespace deepinfer::apps
