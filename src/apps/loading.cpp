#include "apps/loading.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "apps/progress.h"
#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "backends/self_test.h"
#include "engine/engine_thread.h"
#include "engine/load.h"
#include "engine/load_plan.h"

namespace deepinfer::apps {
namespace {

/// A device and the engine on it, in the order in which they must end.
struct OwnedEngine {
  std::unique_ptr<Device> device;
  engine::EngineThread thread;
};

std::string name_of(const std::filesystem::path& directory) {
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

Result<std::filesystem::path> find_model(const std::filesystem::path& given) {
  std::filesystem::path directory = model_directory(given);
  std::error_code ignored;
  if (directory.empty()) {
    return fail(ErrorKind::not_found, "the bundled model is not beside the program; say where a model is with --model DIR");
  }
  if (!std::filesystem::is_directory(directory, ignored)) {
    return fail(ErrorKind::not_found, "there is no model directory " + directory.string() + "; give another --model");
  }
  return directory;
}

Result<std::unique_ptr<Device>> open_device(const ModelFlags& flags) {
  if (flags.device == "cpu") {
    return cpu::make_device({.num_threads = flags.num_threads});
  }
  const std::string_view name = flags.device;
  std::int32_t index = 0;
  const bool is_indexed = name.starts_with("cuda:");
  if (is_indexed) {
    const auto [end, error] = std::from_chars(name.data() + std::strlen("cuda:"), name.data() + name.size(), index);
    if (error != std::errc{} || end != name.data() + name.size()) {
      return fail(ErrorKind::invalid_argument, "--device " + flags.device + ": write cuda:N with the number of a GPU, from 0");
    }
  } else if (name != "cuda") {
    return fail(ErrorKind::invalid_argument, "--device " + flags.device + ": give cpu, cuda or cuda:N");
  }
  auto device = cuda::make_device({.device = index});
  if (!device) {
    return fail(ErrorKind::invalid_argument, "--device " + flags.device + ": " + device.error().message + "; take --device cpu");
  }
  if (const auto tested = self_test(**device); !tested) {
    return std::unexpected(tested.error());
  }
  return device;
}

namespace {

engine::EngramMemory engram_memory(const ModelFlags& flags) {
  return flags.engram_memory == "device" ? engine::EngramMemory::device
         : flags.engram_memory == "host" ? engine::EngramMemory::host
                                         : engine::EngramMemory::automatic;
}

}  // namespace

engine::EngineOptions engine_options(const ModelFlags& flags) {
  return {
      .max_requests = flags.max_requests,
      .max_batched_tokens = std::max(flags.max_batched_tokens, flags.max_requests),
      .max_model_len = flags.max_model_len,
      .max_queue = flags.max_queue,
      .replay = flags.replay == "exact" ? engine::Replay::exact : engine::Replay::bounded,
      .replay_keep = flags.replay_keep,
      .replay_masks = flags.replay == "mask",
      .prefix_cache = flags.prefix_cache,
      .num_prefix_states = flags.num_prefix_states,
      .prefix_memory_bytes = flags.prefix_memory_bytes,
      .prefix_directory = flags.prefix_directory,
      .prefix_disk_bytes = flags.prefix_disk_bytes,
      .swap_memory_bytes = flags.swap_memory_bytes,
      .speculation = flags.speculative == "off"     ? engine::SpeculationMode::off
                     : flags.verification == "full" ? engine::SpeculationMode::full
                                                    : engine::SpeculationMode::confidence,
      .verification_rule = flags.verification_rule == "rejection" ? engine::VerificationRule::rejection : engine::VerificationRule::coupled,
      .max_drafts = flags.speculative == "on" || flags.speculative == "off" ? -1 : std::stoi(flags.speculative),
      .jump_ahead = flags.jump_ahead == "on",
      .confidence_temperatures = flags.confidence_temperatures,
      .fit_confidence = flags.fit_confidence,
      .overlap_depth = flags.overlap_depth,
      .engram_memory = engram_memory(flags),
      .kv_memory_bytes = flags.kv_memory_bytes};
}

model::EngramTables engram_tables(const ModelFlags& flags, const model::Config& config, const model::CacheSizes& sizes,
                                  const DeviceInfo& device) {
  const model::CacheBytes cache = model::cache_bytes(config, sizes.max_drafts);
  const std::size_t cache_bytes = static_cast<std::size_t>(sizes.num_blocks) * cache.per_block() +
                                  static_cast<std::size_t>(sizes.num_slots) * cache.per_slot();
  const std::size_t weight_bytes = model::rank_sizes(config, {}).total().bytes;
  return engine::engram_tables(engram_memory(flags), weight_bytes + cache_bytes + model::workspace_bytes(config, sizes), device);
}

namespace {

server::ServedMemory served_memory(const engine::LoadedEngine& loaded) {
  server::ServedMemory out{.weight_bytes = loaded.memory.weight_bytes, .workspace_bytes = loaded.memory.workspace_bytes, .groups = {}};
  for (const model::CacheGroup& group : loaded.cache_groups) {
    out.groups.push_back({.name = group.name,
                          .unit = group.unit == model::CacheUnit::block ? server::CacheUnit::block : server::CacheUnit::slot,
                          .bytes_per_unit = group.bytes_per_unit,
                          .num_units = group.num_units});
  }
  return out;
}

/// Behind the sum of the plan: Engram tables that do not count in it.
std::string tables_elsewhere(const model::MemoryPlan& plan) {
  if (plan.engram_tables == model::EngramTables::in_memory) {
    return "";
  }
  const bool is_on_host = plan.engram_tables == model::EngramTables::in_host_memory;
  return ", beside it Engram tables of " + std::to_string(plan.weights[model::WeightPart::engram_tables].bytes >> 20) + " MiB " +
         (is_on_host ? "in host memory" : "in the mapped files");
}

void tell_memory(const server::ServedMemory& memory, const Log& log) {
  std::size_t num_bytes = 0;
  for (const server::ServedCacheGroup& group : memory.groups) {
    log.info("cache group " + group.name + ": " + std::to_string(group.num_units) + " x " + std::to_string(group.bytes_per_unit) +
             " bytes = " + std::to_string(group.num_bytes() >> 10) + " KiB");
    num_bytes += group.num_bytes();
  }
  log.info("cache groups together: " + std::to_string(num_bytes >> 10) + " KiB");
}

void add_structured_output(server::ServedModel& model, const ModelFlags& flags, std::shared_ptr<const grammar::Vocabulary> vocabulary,
                           const Log& log) {
  if (flags.structured_output == "off") {
    return;
  }
  const server::ToolConstraint tools = flags.tool_constraint == "off"      ? server::ToolConstraint::off
                                       : flags.tool_constraint == "schema" ? server::ToolConstraint::schema
                                                                           : server::ToolConstraint::structure;
  Result<server::ConstraintSettings> settings = server::constraint_settings(model.tokenizer, tools);
  if (!settings) {
    log.warning(settings.error().message + "; requests for it will be refused");
    return;
  }
  model.constraints = *settings;
  const auto max_waiting = static_cast<std::size_t>(flags.max_requests) + static_cast<std::size_t>(flags.max_queue);
  model.compiler = std::make_shared<grammar::CompilePool>(std::move(vocabulary), grammar::CompilePoolOptions{.max_waiting = max_waiting});
}

}  // namespace

namespace {

/// More are not worth their start: four encode a prompt of a million tokens in about ten milliseconds.
std::int32_t num_encode_threads() { return static_cast<std::int32_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 4U)); }

}  // namespace

Result<std::shared_ptr<const server::ServedModel>> load_served_model(const ModelFlags& flags, const ServedSettings& settings,
                                                                     const Log& log) {
  const auto directory = find_model(flags.model);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  auto device = open_device(flags);
  if (!device) {
    return std::unexpected(std::move(device.error()));
  }
  const std::string name = settings.name.empty() ? name_of(*directory) : settings.name;
  Result<engine::LoadedEngine> loaded = fail(ErrorKind::io, "");
  {
    Progress progress("loading " + name);
    loaded = engine::load_engine(*directory, engine_options(flags), **device, [&progress](engine::LoadPhase phase) {
      progress.show(static_cast<std::size_t>(phase), static_cast<std::size_t>(engine::kNumLoadPhases), engine::describe(phase));
    });
  }
  if (!loaded) {
    return std::unexpected(std::move(loaded.error()));
  }
  for (const std::string& warning : loaded->warnings) {
    log.warning(warning);
  }
  log.info("context of " + std::to_string(loaded->options.max_model_len) + " tokens, " + std::to_string(loaded->options.max_requests) +
           " requests at once, cache for " + std::to_string(loaded->memory.capacity_tokens()) + " tokens, " +
           std::to_string(loaded->memory.total_bytes() >> 20) + " MiB in all" + tables_elsewhere(loaded->memory));
  server::ServedMemory memory = served_memory(*loaded);
  tell_memory(memory, log);
  auto model = std::make_shared<server::ServedModel>(server::ServedModel{.name = name,
                                                                         .device = (*device)->info().description,
                                                                         .context_length = loaded->options.max_model_len,
                                                                         .strict_official = settings.strict_official,
                                                                         .convert = server::convert_options(name),
                                                                         .tokenizer = std::move(loaded->tokenizer),
                                                                         .num_encode_threads = num_encode_threads(),
                                                                         .engine = nullptr,
                                                                         .compiler = nullptr,
                                                                         .constraints = {},
                                                                         .memory = std::move(memory)});
  server::set_images(*model, loaded->config.vision, {loaded->config.image_token_id});
  add_structured_output(*model, flags, std::move(loaded->vocabulary), log);
  const auto owner = std::shared_ptr<OwnedEngine>(new OwnedEngine{std::move(*device), engine::EngineThread(std::move(loaded->engine))});
  model->engine = std::shared_ptr<engine::EngineThread>(owner, &owner->thread);
  return model;
}

}  // namespace deepinfer::apps
