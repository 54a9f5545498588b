// Checkpoints with random weights in the official names and formats, for tests of loading, memory and speed at any size.
// The numbers are made up, but of sensible magnitude: norms near 1, matrices that keep the scale of their input, small sub-layer outputs.
// Not a trained model: what it says has no meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/dummy_config.h"
#include "model/deepseek_v41/inventory.h"
#include "weights/shard_writer.h"

namespace deepinfer::model {

struct DummyOptions {
  std::filesystem::path config_file;  ///< a config.json, for example models/configs/deepseek-v4.1-flash.json
  std::vector<ConfigOverride> overrides = {};
  std::uint64_t seed = 0;
  std::size_t shard_bytes = std::size_t{10} << 30;
  /// Copied as tokenizer.json; empty: none. Its Engram classes must be as many as engram_compressed_vocab_size says.
  std::filesystem::path tokenizer_file = {};
};

/// Everything that will be written, decided before the first byte.
struct DummyPlan {
  std::string config_text;
  Config config;
  InventorySizes sizes;
  std::vector<weights::ShardPlan> shards;
  std::vector<std::string> notes;  ///< values adapted to the overrides
  std::uint64_t seed = 0;
  std::filesystem::path tokenizer_file = {};

  [[nodiscard]] std::size_t total_bytes() const;
};

/// Errors: not_found (no config_file), corrupt (no JSON), invalid_argument (overrides), unsupported (the checks of parse_config).
[[nodiscard]] Result<DummyPlan> plan_dummy(const DummyOptions& options);

/// Configuration, sizes by part, shards and cache sizes as text; `make-dummy --describe` prints it.
[[nodiscard]] std::string describe_dummy(const DummyPlan& plan);

struct DummyProgress {
  std::size_t written_bytes = 0;
  std::size_t total_bytes = 0;
  std::string_view file = {};  ///< the shard in work
};

/// Writes the checkpoint into `directory`, which is created and must not hold one yet. Memory use is a few megabytes whatever the size;
/// `report` (may be empty) is called every few megabytes. The index comes last, so an interrupted write is no checkpoint.
/// The same plan gives the same bytes. Errors: invalid_argument (directory in use), exhausted (disk too small), io.
[[nodiscard]] Result<void> write_dummy(const DummyPlan& plan, const std::filesystem::path& directory,
                                       const std::function<void(const DummyProgress&)>& report);

}  // namespace deepinfer::model
