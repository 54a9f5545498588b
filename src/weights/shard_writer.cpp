#include "weights/shard_writer.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "weights/safetensors.h"

namespace deepinfer::weights {

namespace {

std::filesystem::path part_path(std::filesystem::path path) { return path += ".part"; }

std::unexpected<Error> not_written(const std::filesystem::path& path) {
  return fail(ErrorKind::io, path.string() + " cannot be written: is the disk full or the directory read-only?");
}

std::string shard_name(std::size_t number, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

}  // namespace

std::vector<ShardPlan> plan_shards(std::span<const TensorDescription> tensors, std::size_t shard_bytes) {
  std::vector<ShardPlan> out;
  std::size_t filled = shard_bytes;  // the first tensor opens the first shard
  for (const TensorDescription& tensor : tensors) {
    if (filled >= shard_bytes && !(tensor.name.ends_with(".scale") && !out.empty())) {
      out.emplace_back();
      filled = 0;
    }
    out.back().tensors.push_back(tensor);
    filled += tensor.size_bytes();
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    ShardPlan& shard = out[i];
    shard.file = shard_name(i + 1, out.size());
    std::ranges::stable_sort(shard.tensors, std::ranges::greater{}, [](const TensorDescription& tensor) { return size_of(tensor.dtype); });
    shard.size_bytes = compose_header(shard.tensors).size();
    for (const TensorDescription& tensor : shard.tensors) {
      shard.size_bytes += tensor.size_bytes();
    }
  }
  return out;
}

std::string compose_index(std::span<const ShardPlan> shards) {
  json::Object weight_map;
  std::uint64_t total = 0;
  for (const ShardPlan& shard : shards) {
    for (const TensorDescription& tensor : shard.tensors) {
      weight_map.append(tensor.name, shard.file);
      total += tensor.size_bytes();
    }
  }
  return json::to_text(json::Object{{"metadata", json::Object{{"total_size", total}}}, {"weight_map", std::move(weight_map)}}) + "\n";
}

Result<ShardWriter> ShardWriter::create(const std::filesystem::path& directory, const ShardPlan& plan) {
  const std::string header = compose_header(plan.tensors);
  ShardWriter out(directory / plan.file, plan.size_bytes);
  out.file_.open(part_path(out.path_), std::ios::binary | std::ios::trunc);
  if (!out.file_) {
    return not_written(out.path_);
  }
  if (const Result<void> written = out.write(std::as_bytes(std::span(header))); !written) {
    return std::unexpected(written.error());
  }
  return out;
}

Result<void> ShardWriter::write(std::span<const std::byte> bytes) {
  check(bytes.size() <= missing_bytes_, "a shard gets as many bytes as its header promises");
  missing_bytes_ -= bytes.size();
  if (!file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) {
    return not_written(path_);
  }
  return {};
}

Result<void> ShardWriter::finish() {
  check(missing_bytes_ == 0, "a shard gets as many bytes as its header promises");
  file_.close();
  std::error_code error;
  if (file_) {
    std::filesystem::rename(part_path(path_), path_, error);
  }
  return file_ && !error ? Result<void>{} : Result<void>(not_written(path_));
}

Result<void> write_text_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? Result<void>{} : Result<void>(not_written(path));
}

}  // namespace deepinfer::weights
