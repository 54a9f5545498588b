// The memory plan of an engine on a device: how large the caches are and where the tables of Engram lie when nobody says.
// Not here: the arithmetic (model/memory_plan.h), allocation.
#pragma once

#include "base/result.h"
#include "engine/options.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/memory_plan.h"
#include "ops/device.h"

namespace deepinfer::engine {

/// Where the tables of a model lie that needs `needed_bytes` of the device with its tables there. A device whose memory is the host's has one
/// place.
[[nodiscard]] model::EngramTables engram_tables(EngramMemory wish, std::size_t needed_bytes, const DeviceInfo& device);

/// Without a stated limit the plan is what the options ask for, unless the device is smaller: then the blocks get what it leaves. Tables of
/// Engram leave a GPU before blocks do; a CPU reads them in the files when all else does not fit.
/// Errors: those of model::plan_memory; when no place has room for the tables, with the numbers of all.
[[nodiscard]] Result<model::MemoryPlan> plan_memory(const EngineOptions& options, const model::Config& config, const DeviceInfo& device);

}  // namespace deepinfer::engine
