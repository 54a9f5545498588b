// Flags of every command that loads a model, and the default model that comes with the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace deepinfer::apps {

struct ModelFlags {
  std::filesystem::path model;  ///< empty: the bundled model
  std::string device = "cpu";
  std::int32_t num_threads = 0;  ///< 0: all cores this process may use
  std::string engram_memory = "auto";  ///< or "device" or "host"
  std::int32_t max_requests = 16;
  std::int32_t max_queue = 1024;  ///< requests that wait beside them
  std::int32_t max_batched_tokens = 512;
  std::int32_t max_model_len = 0;   ///< 0: what the model was made for
  std::size_t kv_memory_bytes = 0;  ///< 0: room for max_requests of full length
  std::string replay = "exact";     ///< or "bounded" or "mask"
  std::int32_t replay_keep = 0;     ///< 0: the window and 12 more
  bool prefix_cache = true;
  std::int32_t num_prefix_states = -1;     ///< −1: max_requests
  std::size_t prefix_memory_bytes = 0;     ///< 0: no host tier
  std::filesystem::path prefix_directory;  ///< empty: no disk tier
  std::size_t prefix_disk_bytes = std::size_t{1} << 30;
  std::string speculative = "on";             ///< "on", "off" or the number of drafts
  std::string verification = "confidence";    ///< or "full"
  std::string verification_rule = "coupled";  ///< or "rejection"
  std::vector<float> confidence_temperatures;
  bool fit_confidence = false;
  std::string jump_ahead = "on";
  std::size_t swap_memory_bytes = std::size_t{1} << 30;
  std::int32_t overlap_depth = -1;
  std::string structured_output = "on";
  std::string tool_constraint = "structure";
  std::string log_level = "warning";
};

void add_model_flags(CLI::App& command, ModelFlags& flags);
/// Only --model, --device, --threads and --engram-memory.
void add_device_flags(CLI::App& command, ModelFlags& flags);
/// Only --model.
void add_model_flag(CLI::App& command, std::filesystem::path& model);

/// `given`, or the bundled model when it is empty: models/nano of the installation or of the source tree. Empty when there is none.
[[nodiscard]] std::filesystem::path model_directory(const std::filesystem::path& given);

}  // namespace deepinfer::apps
