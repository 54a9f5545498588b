// What `deepinfer inspect` prints about a checkpoint directory: configuration, inventory, bytes by part, memory plan, every problem.
// Not here: flags and exit codes (apps).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/inventory.h"
#include "model/deepseek_v41/memory_plan.h"

namespace deepinfer::model {

enum class ValueCheck : std::uint8_t {
  by_size,  ///< read all values when the checkpoint is small (weights::should_check_values)
  always,
  never,
};

/// One device of the plan: its name and what it may use. Several devices are ranks that share experts and Engram tables.
struct DevicePlan {
  std::string device;
  MemoryLimits limits;
};

struct InspectOptions {
  std::vector<DevicePlan> devices = {};  ///< empty: one device without a limit
  ValueCheck values = ValueCheck::by_size;
};

struct InspectReport {
  std::string text;
  bool ok = false;  ///< nothing forbids loading the checkpoint with these limits
};

[[nodiscard]] InspectReport inspect_report(const std::filesystem::path& directory, const InspectOptions& options);

/// Sections of the report, as indented lines.
[[nodiscard]] std::string describe_config(const Config& config);
[[nodiscard]] std::string describe_layers(const Config& config);
[[nodiscard]] std::string describe_sizes(const InventorySizes& sizes);
[[nodiscard]] std::string describe_caches(const CacheBytes& cache);
[[nodiscard]] std::string describe_memory(const MemoryPlan& plan);

}  // namespace deepinfer::model
