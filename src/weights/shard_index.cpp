#include "weights/shard_index.h"

#include <algorithm>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "weights/mapped_file.h"
#include "weights/safetensors.h"

namespace deepinfer::weights {

namespace {

/// A plain file name: nothing that could lead out of the checkpoint's directory.
bool is_file_name(std::string_view name) {
  const auto is_forbidden = [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; };
  return !name.empty() && name != "." && name != ".." && std::ranges::none_of(name, is_forbidden);
}

void read_weight_map(const json::Object& weight_map, ShardIndex& out, Problems& problems) {
  std::set<std::string, std::less<>> names;
  for (const auto& [tensor, shard] : weight_map) {
    const std::string* file = shard.as_string();
    if (file != nullptr && is_file_name(*file)) {
      names.insert(*file);
    } else {
      problems.add(std::string(kIndexFile) + ": the shard of " + quote(tensor) + " is " + quote(json::to_text(shard)) +
                   ", which is not the name of a file in this directory");
    }
  }
  out.shards.assign(names.begin(), names.end());
  for (const auto& [tensor, shard] : weight_map) {
    const std::string* file = shard.as_string();
    const auto at = file == nullptr ? names.end() : names.find(*file);
    if (at == names.end()) {
      continue;
    }
    const auto place = static_cast<std::size_t>(std::ranges::lower_bound(out.shards, *file) - out.shards.begin());
    if (!out.shard_of.try_emplace(std::string(without_prefix(tensor)), place).second) {
      problems.add(std::string(kIndexFile) + ": " + quote(without_prefix(tensor)) +
                   " is listed both with and without \"model.\": keep one");
    }
  }
}

}  // namespace

std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

ShardIndex read_shard_index(const std::filesystem::path& directory, Problems& problems) {
  ShardIndex out;
  std::error_code error;
  const bool has_index = std::filesystem::exists(directory / kIndexFile, error);
  if (!has_index && std::filesystem::exists(directory / kSingleFile, error)) {
    out.shards.emplace_back(kSingleFile);
    return out;
  }
  out.lists_tensors = true;
  const Result<MappedFile> file = MappedFile::open(directory / kIndexFile);
  if (!file) {
    problems.add(file.error().message + ": a checkpoint directory has it, or a single " + std::string(kSingleFile));
    return out;
  }
  const std::span<const std::byte> bytes = file->bytes();
  constexpr std::int32_t kMaxDepth = 8;  // weight_map needs two levels; metadata is free
  const Result<json::Value> root =
      json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, {.max_depth = kMaxDepth, .unique_keys = true});
  if (!root) {
    problems.add(std::string(kIndexFile) + ": " + quote(root.error().message));
    return out;
  }
  const json::Value* weight_map = root->find("weight_map");
  if (weight_map == nullptr || weight_map->as_object() == nullptr) {
    problems.add(std::string(kIndexFile) + ": has no object weight_map that maps tensor names to shards");
    return out;
  }
  read_weight_map(*weight_map->as_object(), out, problems);
  return out;
}

}  // namespace deepinfer::weights
