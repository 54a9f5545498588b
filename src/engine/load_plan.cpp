#include "engine/load_plan.h"

#include <algorithm>
#include <string>
#include <utility>

namespace deepinfer::engine {
namespace {

using model::EngramTables;

/// Only exact reuse keeps states.
bool keeps_states(const EngineOptions& options) { return options.prefix_cache && options.replay == Replay::exact; }

std::int32_t num_prefix_states(const EngineOptions& options) {
  if (!keeps_states(options)) {
    return 0;
  }
  return options.num_prefix_states == -1 ? options.max_requests : options.num_prefix_states;
}

/// States behind prefixes get this part of the memory of blocks when nobody says how many: for exact reuse blocks without one are of no
/// use. On the Mooncake conversation trace with 1,024 blocks a state per four blocks has every hit, one per eight four fifths of them.
constexpr std::size_t kStateShare = 2;

std::int32_t default_prefix_states(const EngineOptions& options, const model::MemoryPlan& plan) {
  const std::size_t num_states = plan.block_bytes / kStateShare / plan.cache.per_slot();
  return std::clamp(static_cast<std::int32_t>(std::min<std::size_t>(num_states, 1 << 20)), options.max_requests,
                    std::max(options.max_requests, plan.sizes.num_blocks));
}

/// What the options promise to others is not free for tables. At least a byte, which has room for none: 0 would be no limit.
std::size_t free_for_tables(const EngineOptions& options, const DeviceInfo& device) {
  const std::size_t promised = options.swap_memory_bytes + options.prefix_memory_bytes;
  return std::max<std::size_t>(1, device.host_bytes - std::min(device.host_bytes, promised));
}

model::MemoryLimits limits_of(const EngineOptions& options, EngramTables tables, const DeviceInfo& device) {
  return {.memory_bytes = options.memory_bytes,
          .kv_memory_bytes = options.kv_memory_bytes,
          .max_requests = options.max_requests,
          .num_prefix_states = num_prefix_states(options),
          .max_batched_tokens = options.max_batched_tokens,
          .max_model_len = options.max_model_len,
          .max_drafts = options.max_drafts,
          .engram_tables = tables,
          .host_memory_bytes = free_for_tables(options, device)};
}

/// With the tables in one place.
Result<model::MemoryPlan> plan_with(EngramTables tables, const EngineOptions& options, const model::Config& config, const DeviceInfo& device) {
  model::MemoryLimits limits = limits_of(options, tables, device);
  auto plan = model::plan_memory(config, limits);
  if (plan && options.memory_bytes == 0 && device.memory_bytes > 0 && plan->total_bytes() > device.memory_bytes) {
    limits.memory_bytes = device.memory_bytes;
    plan = model::plan_memory(config, limits);
  }
  if (plan && keeps_states(options) && options.num_prefix_states == -1) {
    limits.num_prefix_states = default_prefix_states(options, *plan);
    auto with_states = model::plan_memory(config, limits);
    return with_states ? std::move(with_states) : std::move(plan);
  }
  return plan;
}

/// The first place that has room, or the arithmetic of both.
Result<model::MemoryPlan> plan_with_either(EngramTables first, EngramTables second, const EngineOptions& options, const model::Config& config,
                                           const DeviceInfo& device) {
  auto plan = plan_with(first, options, config, device);
  if (plan || plan.error().kind != ErrorKind::exhausted) {
    return plan;
  }
  auto other = plan_with(second, options, config, device);
  if (other || other.error().kind != ErrorKind::exhausted) {
    return other;
  }
  const bool is_memory_first = first == EngramTables::in_memory;
  const std::string& inside = (is_memory_first ? plan : other).error().message;
  const std::string& outside = (is_memory_first ? other : plan).error().message;
  return fail(ErrorKind::exhausted, inside + "; with the Engram tables outside the memory of the device: " + outside);
}

}  // namespace

model::EngramTables engram_tables(EngramMemory wish, std::size_t needed_bytes, const DeviceInfo& device) {
  if (device.reads_host_memory || wish == EngramMemory::device) {
    return EngramTables::in_memory;
  }
  const bool fits = device.memory_bytes == 0 || needed_bytes <= device.memory_bytes;
  return wish == EngramMemory::automatic && fits ? EngramTables::in_memory : EngramTables::in_host_memory;
}

Result<model::MemoryPlan> plan_memory(const EngineOptions& options, const model::Config& config, const DeviceInfo& device) {
  if (config.engram_layer_ids.empty()) {
    return plan_with(EngramTables::in_memory, options, config, device);
  }
  const auto wanted = model::plan_memory(config, limits_of(options, EngramTables::in_memory, device));
  const std::size_t needed_bytes = wanted ? wanted->total_bytes() : device.memory_bytes + 1;  // does not fit
  const EngramTables first = engram_tables(options.engram_memory, needed_bytes, device);
  if (options.engram_memory != EngramMemory::automatic) {
    return plan_with(first, options, config, device);
  }
  const EngramTables outside = device.reads_host_memory ? EngramTables::on_disk : EngramTables::in_host_memory;
  return plan_with_either(first, first == EngramTables::in_memory ? outside : EngramTables::in_memory, options, config, device);
}

}  // namespace deepinfer::engine
