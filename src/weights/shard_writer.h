// Writes sharded safetensors: decides which tensor goes into which file, then streams the bytes with bounded memory.
// Not here: what the bytes are (random_values.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/tensor_description.h"

namespace deepinfer::weights {

/// One file of a checkpoint to be written.
struct ShardPlan {
  std::string file;                        ///< "model-00001-of-00048.safetensors"
  std::vector<TensorDescription> tensors;  ///< in file order: larger items first, so that every tensor is aligned
  std::size_t size_bytes = 0;              ///< of the file, header included
};

/// Deals `tensors` in their order to files of about `shard_bytes` of data; a larger tensor gets more than that.
/// A scale stays in the file of its weight.
[[nodiscard]] std::vector<ShardPlan> plan_shards(std::span<const TensorDescription> tensors, std::size_t shard_bytes);

/// The text of model.safetensors.index.json.
[[nodiscard]] std::string compose_index(std::span<const ShardPlan> shards);

/// Writes one shard: all payload bytes in file order by write(), then finish(). Until then the file carries the ending ".part".
class ShardWriter {
 public:
  /// Creates the file with its header. Errors: io.
  static Result<ShardWriter> create(const std::filesystem::path& directory, const ShardPlan& plan);

  /// Errors: io (for example a full disk).
  Result<void> write(std::span<const std::byte> bytes);
  /// Closes the file and gives it its name; all promised bytes must have been written. Errors: io.
  Result<void> finish();

 private:
  ShardWriter(std::filesystem::path path, std::size_t size_bytes) : path_(std::move(path)), missing_bytes_(size_bytes) {}

  std::filesystem::path path_;
  std::ofstream file_;
  std::size_t missing_bytes_ = 0;
};

/// Creates or replaces a small file. Errors: io.
Result<void> write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace deepinfer::weights
