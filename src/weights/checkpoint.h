// A checkpoint directory as a read-only set of named tensors: official sharded safetensors, memory-mapped, packed formats kept packed.
// Checks everything that can be wrong with the container before a payload page is touched.
// Not here: which tensors a model needs (model/deepseek_v41/inventory.h), conversion, placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer::weights {

/// One tensor of a checkpoint. The view lives as long as the Checkpoint.
struct StoredTensor {
  std::string name;  ///< without the optional "model." prefix
  TensorView view;
  std::int32_t shard = 0;  ///< index into Checkpoint::shards()
};

struct ShardFile {
  std::string name;            ///< file name inside the directory
  std::size_t size_bytes = 0;  ///< of the file, header included
};

class Checkpoint {
 public:
  /// Opens model.safetensors.index.json and its shards, or a single model.safetensors when there is no index.
  /// One error lists all problems (the first Problems::kMaxListed in words): index that is no JSON, missing or unreadable shard, header
  /// beyond the file or 100 MB, header that is no JSON, unknown dtype, offsets outside the file or overlapping, byte counts that differ
  /// from shape x item size, names twice or both with and without "model.", tensors that are not in the shard the index names.
  /// Payload pages are not read, except for tensors that are not aligned to their item size: those are copied to aligned memory.
  /// A file that another process shortens afterwards ends the process on access, as with every memory map.
  static Result<std::shared_ptr<const Checkpoint>> open(const std::filesystem::path& directory);

  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  ~Checkpoint();

  /// By name without the optional "model." prefix; nullptr when absent.
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  /// All tensors in the order of shards and, inside one, of the file.
  [[nodiscard]] std::span<const StoredTensor> tensors() const { return tensors_; }
  [[nodiscard]] std::span<const ShardFile> shards() const { return shards_; }
  /// Sum over all tensors, headers not counted.
  [[nodiscard]] std::size_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// Oddities that do not prevent loading, one sentence each.
  [[nodiscard]] std::span<const std::string> warnings() const { return warnings_; }

 private:
  friend class CheckpointOpener;
  struct Memory;
  Checkpoint();

  std::filesystem::path directory_;
  std::unique_ptr<Memory> memory_;  ///< maps and aligned copies the views point into
  std::vector<ShardFile> shards_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;  ///< keys and values point into tensors_
  std::vector<std::string> warnings_;
  std::size_t payload_bytes_ = 0;
};

}  // namespace deepinfer::weights
