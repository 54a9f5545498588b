// From a directory to an engine: what a good checkpoint gives, and one sentence for each thing that can be wrong.
#include "engine/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "backends/cpu/cpu_device.h"
#include "base/check.h"
#include "base/json.h"

namespace deepinfer::test {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(DEEPINFER_TEST_DATA) / "tiny";

/// A copy of the tiny checkpoint that a test may damage.
class ScratchCheckpoint {
 public:
  explicit ScratchCheckpoint(const std::string& name) : path_(fs::temp_directory_path() / ("deepinfer_load_test_" + name)) {
    fs::remove_all(path_);
    fs::copy(kTiny, path_);
  }
  ~ScratchCheckpoint() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

  void replace_in(const std::string& file, const std::string& what, const std::string& with) const {
    std::ifstream in(path_ / file);
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const std::size_t place = text.find(what);
    check(place != std::string::npos, "the text to replace is there");
    text.replace(place, what.size(), with);
    std::ofstream(path_ / file) << text;
  }

 private:
  fs::path path_;
};

engine::EngineOptions small() { return {.max_requests = 2, .max_batched_tokens = 32, .max_model_len = 256}; }

Error load_error(const fs::path& directory, const engine::EngineOptions& options = small()) {
  const auto device = cpu::make_device({});
  const auto loaded = engine::load_engine(directory, options, *device);
  return loaded ? Error{.message = "loaded"} : loaded.error();
}

void expect_error(const Error& error, ErrorKind kind, std::string_view part) {
  EXPECT_EQ(error.kind, kind) << error.message;
  EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

TEST(Load, GivesARunningEngineAndItsSizes) {
  const auto device = cpu::make_device({});
  std::vector<engine::LoadPhase> phases;
  auto loaded = engine::load_engine(kTiny, small(), *device, [&](engine::LoadPhase phase) { phases.push_back(phase); });
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_EQ(phases.size(), static_cast<std::size_t>(engine::kNumLoadPhases) + 1);
  EXPECT_EQ(phases.back(), engine::LoadPhase::done);
  EXPECT_TRUE(std::ranges::is_sorted(phases));
  for (const engine::LoadPhase phase : phases) {
    EXPECT_FALSE(engine::describe(phase).empty());
  }
  EXPECT_EQ(loaded->config.vocab_size, 1024);
  EXPECT_EQ(loaded->options.max_model_len, 256);
  EXPECT_FALSE(loaded->cache_groups.empty());
  const engine::EngineStats stats = loaded->engine->stats();
  EXPECT_EQ(stats.num_slots, 2 + 2) << "two requests and two states of prefixes";
  EXPECT_EQ(stats.num_blocks, loaded->memory.sizes.num_blocks - 1);
  EXPECT_GE(stats.num_blocks, 4);

  std::size_t num_tokens = 0;
  const std::vector<TokenId> prompt = loaded->tokenizer.encode("Hello", tokenizer::AddedTokens::recognise);
  const auto id = loaded->engine->submit({.prompt = prompt, .max_tokens = 3, .ignore_eos = true},
                                         [&](engine::Output&& output) { num_tokens += output.tokens.size(); });
  ASSERT_TRUE(id) << id.error().message;
  while (loaded->engine->step()) {
  }
  EXPECT_EQ(num_tokens, 3U);
}

TEST(Load, WithoutALengthTheContextIsTheModels) {
  const auto device = cpu::make_device({});
  const auto loaded = engine::load_engine(kTiny, {.max_requests = 1, .max_batched_tokens = 16}, *device);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->options.max_model_len, loaded->config.max_position_embeddings);
}

TEST(Load, NamesTheDirectoryThatIsNotThere) {
  const Error error = load_error("/nowhere/model");
  expect_error(error, ErrorKind::not_found, "/nowhere/model");
}

TEST(Load, NamesTheTokenizerThatIsNotThere) {
  const ScratchCheckpoint scratch("no_tokenizer");
  fs::remove(scratch.path() / "tokenizer.json");
  expect_error(load_error(scratch.path()), ErrorKind::not_found, "tokenizer.json");
}

TEST(Load, NamesTheArchitectureThatIsUnknown) {
  const ScratchCheckpoint scratch("architecture");
  scratch.replace_in("config.json", "DeepseekV41ForCausalLM", "OtherForCausalLM");
  expect_error(load_error(scratch.path()), ErrorKind::unsupported, "OtherForCausalLM");
}

TEST(Load, RefusesCompressedRowsInAFormatThatIsNotThere) {
  const ScratchCheckpoint scratch("mxfp8_rows");
  scratch.replace_in("config.json", "\"text_config\": {", "\"text_config\": {\"use_fp4_sparse_kv\": false,");
  expect_error(load_error(scratch.path()), ErrorKind::unsupported, "use_fp4_sparse_kv is false");
}

TEST(Load, NamesTheShardThatIsNotThere) {
  const ScratchCheckpoint scratch("no_shard");
  fs::remove(scratch.path() / "model-00002-of-00003.safetensors");
  const Error error = load_error(scratch.path());
  EXPECT_NE(error.message.find("model-00002-of-00003.safetensors"), std::string::npos) << error.message;
}

TEST(Load, NamesTheShardThatIsTruncated) {
  const ScratchCheckpoint scratch("truncated");
  const fs::path shard = scratch.path() / "model-00003-of-00003.safetensors";
  fs::resize_file(shard, fs::file_size(shard) / 2);
  expect_error(load_error(scratch.path()), ErrorKind::corrupt, "model-00003-of-00003.safetensors");
}

/// Where a safetensors file has its first tensor of exponent scales, and the tensor's name.
std::pair<std::string, std::size_t> first_scale(const fs::path& shard) {
  std::ifstream file(shard, std::ios::binary);
  std::uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const auto parsed = json::parse(header);
  for (const auto& [name, tensor] : *parsed->as_object()) {
    const json::Value* dtype = tensor.find("dtype");
    if (dtype != nullptr && *dtype->as_string() == "F8_E8M0") {
      const auto& offsets = *tensor.find("data_offsets")->as_array();
      return {name, sizeof(header_bytes) + header_bytes + *offsets[0].as_number()->as_uint64()};
    }
  }
  check(false, "the shard has a tensor of scales");
  return {};
}

TEST(Load, NamesTheScaleThatIsNoNumber) {
  const ScratchCheckpoint scratch("nan");
  const fs::path shard = scratch.path() / "model-00001-of-00003.safetensors";
  const auto [name, offset] = first_scale(shard);
  std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put('\xFF');
  file.close();
  expect_error(load_error(scratch.path()), ErrorKind::corrupt, name);
}

TEST(Load, RefusesATokenizerOfAnotherModel) {
  const ScratchCheckpoint scratch("tokenizer");
  fs::copy_file(fs::path(DEEPINFER_MODELS) / "nano" / "tokenizer.json", scratch.path() / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  expect_error(load_error(scratch.path()), ErrorKind::corrupt, "engram_compressed_vocab_size");
}

TEST(Load, NamesTheOptionThatMakesNoSense) {
  engine::EngineOptions options = small();
  options.max_requests = 0;
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "max_requests");
  options = small();
  options.max_batched_tokens = 1;
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "max_batched_tokens");
  options = small();
  options.max_model_len = 1'000'000;
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "max_model_len");
  options = small();
  options.max_queue = -1;
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "max_queue is -1");
}

TEST(Load, RefusesDraftsThatTheModelWasNotTrainedFor) {
  engine::EngineOptions options = small();
  options.max_drafts = 6;
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument,
               "max_drafts (--speculative) is 6; it must be at most 5, the block that the drafter was trained for");
  options.max_drafts = 3;
  options.confidence_temperatures = {1.0F, 2.0F};
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "give one for all drafts or 3, one for each");
  options.confidence_temperatures = {0.0F};
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "above 0");
  options.confidence_temperatures = {2.0F};
  EXPECT_EQ(load_error(kTiny, options).message, "loaded");
}

TEST(Load, RefusesAReplayThatKeepsTooLittle) {
  engine::EngineOptions options = small();
  options.replay = engine::Replay::bounded;
  options.replay_keep = 16;
  expect_error(load_error(kTiny, options), ErrorKind::invalid_argument, "replay_keep is 16; it must be at least 22, or 0 for 28");
  options.replay_keep = 17;
  options.speculation = engine::SpeculationMode::off;
  EXPECT_EQ(load_error(kTiny, options).message, "loaded");
}

TEST(Load, KeepsSlotsForPrefixesOnlyWhereTheyAreUsed) {
  const auto num_slots = [](const engine::EngineOptions& options) {
    const auto device = cpu::make_device({});
    return engine::load_engine(kTiny, options, *device)->engine->stats().num_slots;
  };
  engine::EngineOptions options = small();
  EXPECT_EQ(num_slots(options), 4);
  options.num_prefix_states = 7;
  EXPECT_EQ(num_slots(options), 9);
  options.replay = engine::Replay::bounded;
  EXPECT_EQ(num_slots(options), 2);
  options.replay = engine::Replay::exact;
  options.prefix_cache = false;
  EXPECT_EQ(num_slots(options), 2);
}

TEST(Load, SaysHowMuchCacheMemoryIsMissing) {
  engine::EngineOptions options = small();
  options.kv_memory_bytes = 1000;
  expect_error(load_error(kTiny, options), ErrorKind::exhausted, "there are only 1000");
}

}  // namespace
}  // namespace deepinfer::test
