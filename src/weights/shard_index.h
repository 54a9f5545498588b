// model.safetensors.index.json: which shard holds which tensor. Not here: whether the shards agree (checkpoint.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weights/problems.h"

namespace deepinfer::weights {

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFile = "model.safetensors";

/// "model.layers.0.x" and "layers.0.x" name the same tensor.
[[nodiscard]] std::string_view without_prefix(std::string_view name);

struct ShardIndex {
  std::vector<std::string> shards;                           ///< file names in increasing order, each once
  std::map<std::string, std::size_t, std::less<>> shard_of;  ///< tensor name without prefix → index into shards
  bool lists_tensors = false;                                ///< false: a single file without an index
};

/// Reads the index, or stands in for it when the directory has only model.safetensors.
/// Problems: no index, no JSON, no weight_map, shard names that leave the directory, names twice with and without "model.".
[[nodiscard]] ShardIndex read_shard_index(const std::filesystem::path& directory, Problems& problems);

}  // namespace deepinfer::weights
