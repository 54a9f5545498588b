#include "model/deepseek_v41/dummy.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "model/deepseek_v41/inspect.h"
#include "model/deepseek_v41/memory_plan.h"
#include "model/deepseek_v41/report_text.h"
#include "weights/random_values.h"
#include "weights/shard_index.h"

namespace deepinfer::model {

namespace {

using weights::TensorDescription;
using weights::ValueTable;

/// Bytes that a thread generates at once; with the number of threads they bound the memory of a write.
constexpr std::size_t kChunkBytes = std::size_t{1} << 18;
constexpr std::size_t kMostThreads = 16;  // more than disks keep up with
constexpr std::string_view kConfigFile = "config.json";
constexpr std::string_view kTokenizerFile = "tokenizer.json";

/// Magnitudes of a tensor's decoded values.
struct Magnitude {
  float mean = 0;
  float deviation = 1;
};

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [name](std::string_view ending) { return name.ends_with(ending); });
}

/// By the role that the name tells. Matrices have 1 / sqrt(columns), so that outputs have the magnitude of inputs; what is added to the
/// residual streams is a quarter of that, so that 40 layers stay finite and none drowns the others.
Magnitude magnitude_of(std::string_view name, const Shape& shape, std::int64_t columns) {
  const float unit = 1 / std::sqrt(static_cast<float>(columns));
  if (ends_with_any(name, {"norm.weight", "norm1.weight", "norm2.weight", ".q_weight", ".k_weight"})) {
    return {.mean = 1, .deviation = 0.2F};
  }
  if (ends_with_any(name, {".hc_attn_scale", ".hc_ffn_scale"})) {
    return {.mean = 0.5F, .deviation = 0.1F};
  }
  if (ends_with_any(name, {".hc_attn_base", ".hc_ffn_base"})) {
    return {.mean = 0, .deviation = 0.5F};
  }
  if (ends_with_any(name, {".bias", ".bias_vl"})) {
    return {.mean = 0, .deviation = 0.1F};
  }
  if (name.ends_with("embed.weight") || shape.rank() == 1) {  // embeddings, sinks, image rows
    return {};
  }
  if (name == "head.weight") {
    return {.mean = 0, .deviation = 2.5F * unit};
  }
  if (ends_with_any(name, {".wo_b.weight", ".wo.weight", ".w2.weight", "engram.wkv.weight"})) {
    return {.mean = 0, .deviation = 0.25F * unit};
  }
  return {.mean = 0, .deviation = unit};
}

/// Exponent of the scale that brings codes of deviation in [64, 128) to `deviation`: the outermost slice, 2.9 deviations, stays below 448.
std::int32_t fp8_exponent(float deviation) { return std::ilogb(deviation) - 6; }

std::int32_t fp4_exponent(float deviation) {
  return static_cast<std::int32_t>(std::lround(std::log2(deviation / weights::kAnyFp4CodeDeviation)));
}

/// The values of one tensor. A scale has the exponent that the codes of its weight leave open.
ValueTable values_of(const TensorDescription& tensor, const TensorDescription* scaled_weight) {
  const TensorDescription& weight = scaled_weight == nullptr ? tensor : *scaled_weight;
  const std::size_t rank = weight.shape.rank();
  const std::int64_t columns = weight.shape[rank - 1] * (weight.dtype == DType::i8 ? 2 : 1);
  const Magnitude magnitude = magnitude_of(weight.name, weight.shape, columns);
  if (scaled_weight != nullptr) {
    return ValueTable::scales(weight.dtype == DType::i8 ? fp4_exponent(magnitude.deviation) : fp8_exponent(magnitude.deviation));
  }
  if (tensor.dtype == DType::i8) {
    return ValueTable::fp4_pairs();
  }
  const float scale = tensor.dtype == DType::f8_e4m3 ? std::ldexp(1.0F, fp8_exponent(magnitude.deviation)) : 1.0F;
  return ValueTable::normal(tensor.dtype, magnitude.mean / scale, magnitude.deviation / scale);
}

Result<std::string> read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::error_code error;
  if (!file || !std::filesystem::is_regular_file(path, error)) {
    return fail(ErrorKind::not_found, path.string() + " cannot be read");
  }
  return text;
}

Result<void> check_directory(const std::filesystem::path& directory, std::size_t needed_bytes) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error) {
    return fail(ErrorKind::io, directory.string() + " cannot be created: " + error.message());
  }
  for (const std::string_view file : {kConfigFile, weights::kIndexFile, weights::kSingleFile}) {
    if (std::filesystem::exists(directory / file, error)) {
      return fail(ErrorKind::invalid_argument, directory.string() + " already holds " + std::string(file) + ": give an empty directory");
    }
  }
  if (space.available < needed_bytes) {
    return fail(ErrorKind::exhausted, "the checkpoint needs " + short_bytes(needed_bytes) + ", but " + directory.string() + " has only " +
                                          short_bytes(space.available) + " left: take fewer layers or experts, or another disk");
  }
  return {};
}

Result<void> copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& directory) {
  if (from.empty()) {
    return {};
  }
  const Result<std::string> text = read_text(from);
  return text ? weights::write_text_file(directory / kTokenizerFile, *text) : Result<void>(std::unexpected(text.error()));
}

std::size_t num_threads() { return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostThreads); }

/// Values from `first` on, of items of `item_bytes`, to `out`; a thread a chunk. A value depends on its place only.
void fill_chunks(const ValueTable& values, std::uint64_t key, std::size_t first, std::size_t item_bytes, std::span<std::byte> out) {
  const auto fill = [&](std::size_t at) { values.fill(key, first + at / item_bytes, out.subspan(at, std::min(kChunkBytes, out.size() - at))); };
  std::vector<std::jthread> others;
  for (std::size_t at = kChunkBytes; at < out.size(); at += kChunkBytes) {
    others.emplace_back(fill, at);
  }
  fill(0);
}

/// Streams shard after shard through one piece of memory.
class DummyWriter {
 public:
  DummyWriter(const DummyPlan& plan, const std::function<void(const DummyProgress&)>& report)
      : plan_(plan), report_(report), chunk_(num_threads() * kChunkBytes), progress_{.total_bytes = plan.total_bytes()} {}

  Result<void> write_shard(const std::filesystem::path& directory, const weights::ShardPlan& shard) {
    Result<weights::ShardWriter> writer = weights::ShardWriter::create(directory, shard);
    if (!writer) {
      return std::unexpected(writer.error());
    }
    progress_.file = shard.file;
    const TensorDescription* previous = nullptr;
    for (const TensorDescription& tensor : shard.tensors) {
      // A scale follows its weight: in the inventory, in the file (both have items of one byte) and across shards.
      const ValueTable values = values_of(tensor, tensor.dtype == DType::f8_e8m0 ? previous : nullptr);
      if (Result<void> written = write_tensor(*writer, tensor, values); !written) {
        return written;
      }
      previous = &tensor;
    }
    return writer->finish();
  }

 private:
  Result<void> write_tensor(weights::ShardWriter& writer, const TensorDescription& tensor, const ValueTable& values) {
    const std::uint64_t key = weights::random_key(plan_.seed, tensor.name);
    const std::size_t size_bytes = tensor.size_bytes();
    for (std::size_t at = 0; at < size_bytes; at += chunk_.size()) {
      const std::span<std::byte> part = std::span(chunk_).first(std::min(chunk_.size(), size_bytes - at));
      fill_chunks(values, key, at / size_of(tensor.dtype), size_of(tensor.dtype), part);
      if (Result<void> written = writer.write(part); !written) {
        return written;
      }
      count(part.size());
    }
    return {};
  }

  /// Reports when as much was written as is generated at once, and at the end.
  void count(std::size_t bytes) {
    progress_.written_bytes += bytes;
    unreported_bytes_ += bytes;
    if (report_ && (unreported_bytes_ >= chunk_.size() || progress_.written_bytes == progress_.total_bytes)) {
      unreported_bytes_ = 0;
      report_(progress_);
    }
  }

  const DummyPlan& plan_;
  const std::function<void(const DummyProgress&)>& report_;
  std::vector<std::byte> chunk_;
  DummyProgress progress_;
  std::size_t unreported_bytes_ = 0;
};

}  // namespace

std::size_t DummyPlan::total_bytes() const { return sizes.total().bytes; }

Result<DummyPlan> plan_dummy(const DummyOptions& options) {
  const Result<std::string> text = read_text(options.config_file);
  if (!text) {
    return std::unexpected(text.error());
  }
  Result<json::Value> root = json::parse(*text, {.finite_numbers = true, .unique_keys = true});
  if (!root) {
    return fail(root.error(), options.config_file.string());
  }
  Result<AdaptedConfig> adapted = adapt_config(std::move(*root), options.overrides);
  if (!adapted) {
    return std::unexpected(adapted.error());
  }
  Result<Config> config = parse_config(adapted->root, "the configuration");
  if (!config) {
    return std::unexpected(config.error());
  }
  const std::vector<ExpectedTensor> expected = expected_tensors(*config);
  std::vector<TensorDescription> tensors;
  std::ranges::transform(expected, std::back_inserter(tensors), &ExpectedTensor::tensor);
  return DummyPlan{.config_text = json::to_text(adapted->root) + "\n",
                   .config = std::move(*config),
                   .sizes = inventory_sizes(expected),
                   .shards = weights::plan_shards(tensors, options.shard_bytes),
                   .notes = std::move(adapted->notes),
                   .seed = options.seed,
                   .tokenizer_file = options.tokenizer_file};
}

std::string describe_dummy(const DummyPlan& plan) {
  std::string out = "configuration\n" + describe_config(plan.config);
  for (const std::string& note : plan.notes) {
    out += "  adapted: " + note + "\n";
  }
  out += "\nweights\n" + describe_sizes(plan.sizes);
  out += "\nshards\n  " + std::to_string(plan.shards.size()) + " files, seed " + std::to_string(plan.seed) + "\n";
  out += "\ncaches with " + std::to_string(plan.config.dspark_block_size) + " drafts\n" +
         describe_caches(cache_bytes(plan.config, plan.config.dspark_block_size));
  return out;
}

Result<void> write_dummy(const DummyPlan& plan, const std::filesystem::path& directory,
                         const std::function<void(const DummyProgress&)>& report) {
  if (Result<void> usable = check_directory(directory, plan.total_bytes()); !usable) {
    return usable;
  }
  if (Result<void> copied = copy_tokenizer(plan.tokenizer_file, directory); !copied) {
    return copied;
  }
  DummyWriter writer(plan, report);
  for (const weights::ShardPlan& shard : plan.shards) {
    if (Result<void> written = writer.write_shard(directory, shard); !written) {
      return written;
    }
  }
  if (Result<void> written = weights::write_text_file(directory / kConfigFile, plan.config_text); !written) {
    return written;
  }
  return weights::write_text_file(directory / weights::kIndexFile, weights::compose_index(plan.shards));
}

}  // namespace deepinfer::model
