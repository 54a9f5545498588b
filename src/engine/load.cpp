// Cheap checks first: configuration, options and memory arithmetic, tokenizer, tensors, values; only then the model is made.
#include "engine/load.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/sha256.h"
#include "engine/load_plan.h"
#include "grammar/jump_ahead.h"
#include "grammar/vocabulary.h"
#include "model/deepseek_v41/inventory.h"
#include "ops/ops.h"
#include "tokenizer/engram_vocabulary.h"
#include "weights/checkpoint.h"
#include "weights/value_check.h"

namespace deepinfer::engine {
namespace {

/// The Engram class of every id of the model's vocabulary, and that tokenizer and configuration belong together. A tokenizer may have
/// more ids than the model (the span tokens of images): their classes come last and are not the model's.
Result<std::vector<std::int32_t>> engram_classes(const tokenizer::Tokenizer& tokenizer, const model::Config& config) {
  if (tokenizer.vocab_size() < config.vocab_size) {
    return fail(ErrorKind::corrupt, "tokenizer.json ends at id " + std::to_string(tokenizer.vocab_size() - 1) +
                                        ", but vocab_size in config.json is " + std::to_string(config.vocab_size) +
                                        "; they belong to different models");
  }
  std::vector<std::int32_t> class_of = tokenizer::compress_vocabulary(tokenizer).class_of;
  class_of.resize(static_cast<std::size_t>(config.vocab_size));
  const std::int32_t num_classes = *std::ranges::max_element(class_of) + 1;
  if (!config.engram_layer_ids.empty() && num_classes != config.engram_compressed_vocab_size) {
    return fail(ErrorKind::corrupt, "tokenizer.json has " + std::to_string(num_classes) +
                                        " Engram classes, but engram_compressed_vocab_size in config.json is " +
                                        std::to_string(config.engram_compressed_vocab_size) + "; they belong to different models");
  }
  return class_of;
}

/// Drafts per request and step: what is asked for, or as many as the model was trained for and a step has rows for.
Result<std::int32_t> num_drafts(const EngineOptions& options, const model::Config& config) {
  const bool can_draft = config.has_drafter() && config.dspark_target_layer_ids.front() >= config.split_layer();
  if (options.speculation == SpeculationMode::off || options.max_drafts == 0 || (options.max_drafts == -1 && !can_draft)) {
    return 0;
  }
  if (options.max_drafts == -1) {
    return std::clamp(options.max_batched_tokens / std::max(options.max_requests, 1) - 1, 0, config.dspark_block_size);
  }
  if (!can_draft) {
    return fail(ErrorKind::unsupported,
                "this model cannot draft (it has no drafter, or one that looks at layers before the split layer); switch "
                "speculation off");
  }
  if (options.max_drafts < 0 || options.max_drafts > config.dspark_block_size) {
    return fail(ErrorKind::invalid_argument, "max_drafts (--speculative) is " + std::to_string(options.max_drafts) +
                                                 "; it must be at most " + std::to_string(config.dspark_block_size) +
                                                 ", the block that the drafter was trained for");
  }
  return options.max_drafts;
}

struct OpenCheckpoint {
  std::shared_ptr<const weights::Checkpoint> checkpoint;
  std::vector<std::string> warnings;
};

/// What the files of a checkpoint directory say, checked against each other and against the options.
struct Files {
  model::Config config;
  model::MemoryPlan plan;
  tokenizer::Tokenizer tokenizer;
  std::vector<std::int32_t> engram_class;
  OpenCheckpoint checkpoint;
};

/// Values are read when the checkpoint is small (weights::should_check_values).
Result<void> check_values(const weights::Checkpoint& checkpoint) {
  if (!weights::should_check_values(checkpoint)) {
    return {};
  }
  const weights::Problems problems = weights::validate_values(checkpoint);
  if (!problems.empty()) {
    return problems.to_failure(ErrorKind::corrupt, "the checkpoint " + checkpoint.directory().string());
  }
  return {};
}

/// Opens the tensors and compares them with what the configuration promises.
Result<OpenCheckpoint> read_checkpoint(const std::filesystem::path& directory, const model::Config& config, const LoadProgress& begin) {
  begin(LoadPhase::checkpoint);
  auto checkpoint = weights::Checkpoint::open(directory);
  if (!checkpoint) {
    return std::unexpected(std::move(checkpoint.error()));
  }
  model::CheckpointFindings findings = model::validate_checkpoint(config, **checkpoint);
  if (!findings.problems.empty()) {
    return findings.problems.to_failure(ErrorKind::corrupt, "the checkpoint " + directory.string());
  }
  begin(LoadPhase::values);
  if (auto values = check_values(**checkpoint); !values) {
    return std::unexpected(std::move(values.error()));
  }
  OpenCheckpoint out{.checkpoint = std::move(*checkpoint), .warnings = std::move(findings.warnings)};
  const auto of_container = out.checkpoint->warnings();
  out.warnings.insert(out.warnings.begin(), of_container.begin(), of_container.end());
  return out;
}

Result<void> check_options(const EngineOptions& options) {
  if (options.max_queue < 0) {
    return fail(ErrorKind::invalid_argument, "max_queue is " + std::to_string(options.max_queue) + "; it must be at least 0");
  }
  if (options.overlap_depth < 0 || options.overlap_depth > 1) {
    return fail(ErrorKind::invalid_argument, "overlap_depth is " + std::to_string(options.overlap_depth) + "; it must be 0 or 1");
  }
  if (std::ranges::any_of(options.confidence_temperatures, [](float t) { return !(t > 0 && std::isfinite(t)); })) {
    return fail(ErrorKind::invalid_argument, "confidence_temperatures must be numbers above 0");
  }
  return {};
}

Result<void> check_replay(const EngineOptions& options, const model::Config& config) {
  if (options.replay == Replay::exact) {
    return {};
  }
  if (!config.allows_bounded_replay()) {
    return fail(ErrorKind::unsupported, "bounded replay needs every Engram layer before the split layer " +
                                            std::to_string(config.split_layer()) + "; this model has one behind it: use exact replay");
  }
  const std::int32_t least = config.sliding_window + options.max_drafts + 1;  // a window and the deepest rollback
  if (options.replay_keep != 0 && options.replay_keep < least) {
    return fail(ErrorKind::invalid_argument, "replay_keep is " + std::to_string(options.replay_keep) + "; it must be at least " +
                                                 std::to_string(least) + ", or 0 for " +
                                                 std::to_string(config.sliding_window + kDefaultKeepBeyondWindow));
  }
  return {};
}

/// Completes `options` with what follows from the model.
Result<Files> read_files(const std::filesystem::path& directory, EngineOptions& options, const DeviceInfo& device,
                         const LoadProgress& begin) {
  begin(LoadPhase::config);
  if (auto checked = check_options(options); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  auto config = model::load_config(directory);
  if (!config) {
    return std::unexpected(std::move(config.error()));
  }
  auto drafts = num_drafts(options, *config);
  if (!drafts) {
    return std::unexpected(std::move(drafts.error()));
  }
  options.max_drafts = *drafts;
  const std::size_t num_temperatures = options.confidence_temperatures.size();
  if (num_temperatures > 1 && *drafts > 0 && num_temperatures != static_cast<std::size_t>(*drafts)) {
    return fail(ErrorKind::invalid_argument, "confidence_temperatures are " + std::to_string(num_temperatures) +
                                                 " numbers; give one for all drafts or " + std::to_string(*drafts) + ", one for each");
  }
  options.max_model_len = options.max_model_len == 0 ? config->max_position_embeddings : options.max_model_len;
  if (auto checked = check_replay(options, *config); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  auto plan = plan_memory(options, *config, device);
  if (!plan) {
    return std::unexpected(std::move(plan.error()));
  }
  begin(LoadPhase::tokenizer);
  auto tokenizer = tokenizer::Tokenizer::load(directory / "tokenizer.json");
  if (!tokenizer) {
    return std::unexpected(std::move(tokenizer.error()));
  }
  auto classes = engram_classes(*tokenizer, *config);
  if (!classes) {
    return std::unexpected(std::move(classes.error()));
  }
  auto checkpoint = read_checkpoint(directory, *config, begin);
  if (!checkpoint) {
    return std::unexpected(std::move(checkpoint.error()));
  }
  return Files{.config = std::move(*config),
               .plan = *plan,
               .tokenizer = std::move(*tokenizer),
               .engram_class = std::move(*classes),
               .checkpoint = std::move(*checkpoint)};
}

/// A name for everything that the bytes of a cached prefix depend on: the files of the model, the device and how prompts are computed.
std::string owner_of_prefixes(const std::filesystem::path& directory, const EngineOptions& options, const DeviceInfo& device) {
  std::string text = "format 1\n" + device.description + "\n" + (options.replay == Replay::exact ? "exact" : "bounded") + " " +
                     std::to_string(options.replay_keep) + "\n" + std::to_string(options.max_drafts) + " drafts\n";
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(directory, ignored)) {
    const auto time = file.last_write_time(ignored).time_since_epoch().count();
    files.push_back(file.path().filename().string() + " " + std::to_string(file.file_size(ignored)) + " " + std::to_string(time) + "\n");
  }
  std::ranges::sort(files);
  for (const std::string& file : files) {
    text += file;
  }
  return sha256(std::as_bytes(std::span(text))).substr(0, 32);
}

Result<std::optional<PrefixStore>> open_store(const std::filesystem::path& directory, const EngineOptions& options,
                                              const DeviceInfo& device) {
  if (!options.prefix_cache || (options.prefix_memory_bytes == 0 && options.prefix_directory.empty())) {
    return std::nullopt;
  }
  if (options.prefix_directory.empty()) {
    return PrefixStore(options.prefix_memory_bytes);
  }
  auto disk = DiskTier::open(options.prefix_directory, owner_of_prefixes(directory, options, device), options.prefix_disk_bytes);
  if (!disk) {
    return std::unexpected(std::move(disk.error()));
  }
  return PrefixStore(options.prefix_memory_bytes, std::move(*disk));
}

CacheCalls cache_calls(const std::shared_ptr<model::DeepseekV41>& model) {
  return {.block_bytes = model->block_bytes(),
          .state_bytes = model->state_bytes(),
          .read_block = [model](BlockId block, std::span<std::byte> to) { return model->read_block(block, to); },
          .write_block = [model](BlockId block, std::span<const std::byte> from) { model->write_block(block, from); },
          .read_state = [model](SlotId slot, std::span<std::byte> to) { return model->read_state(slot, to); },
          .write_state = [model](SlotId slot, std::span<const std::byte> from) { model->write_state(slot, from); }};
}

std::unique_ptr<PrefixTiers> make_tiers(const std::shared_ptr<model::DeepseekV41>& model, PrefixStore&& store, Replay replay) {
  return std::make_unique<PrefixTiers>(cache_calls(model), std::move(store), PrefixTiers::Policy{.needs_states = replay == Replay::exact});
}

std::unique_ptr<Engine> make_engine(std::shared_ptr<model::DeepseekV41> model, const tokenizer::Tokenizer& tokenizer,
                                    std::optional<PrefixStore>&& store, const LoadedEngine& loaded, std::unique_ptr<const Clock> clock) {
  const model::Config& config = model->config();
  const model::CacheSizes& sizes = loaded.memory.sizes;
  EngineParts parts{.model = {.launch = [model](std::span<const model::Chunk> chunks) { model->launch(chunks); },
                              .draw = [model](std::span<const model::RowDraw> rows) { model->draw(rows); },
                              .wait = [model] { return model->wait(); },
                              .fault = [model] { return model->fault(); },
                              .copy_state = [model](SlotId from, SlotId to) { model->copy_state(from, to); },
                              .copy_block = [model](BlockId from, BlockId to) { model->copy_block(from, to); },
                              .draft = [model](std::span<const model::DraftStart> starts, std::int32_t num_drafts,
                                               model::PickDrafts& pick) { return model->draft(starts, num_drafts, pick); },
                              .draft_drawn = [model](std::span<const model::DraftStart> starts, std::int32_t num_drafts,
                                                     std::span<const TokenDraw> draws) { return model->draft(starts, num_drafts, draws); },
                              .images = {.begin = [model](const model::ImagePixels& image) { model->begin_image(image); },
                                         .advance = [model] { return model->advance_image(); }}},
                    .token_bytes = [tokenizer](TokenId id) { return tokenizer.bytes(id); },
                    .vocab_size = config.vocab_size,
                    .eos = {config.eos_token_id},
                    .num_previous_tokens = model->num_previous_tokens(),
                    .geometry = {.positions_per_block = kBlockPositions, .num_blocks = sizes.num_blocks, .num_slots = sizes.num_slots},
                    .vocabulary = loaded.vocabulary,
                    .forced_tokens = [tokenizer, vocabulary = loaded.vocabulary](
                                         std::string_view text) { return grammar::forced_ids(tokenizer, *vocabulary, text); },
                    .tiers = store ? make_tiers(model, std::move(*store), loaded.options.replay) : nullptr,
                    .swap = cache_calls(model),
                    .vision = config.vision,
                    .window = config.sliding_window};
  if (clock) {
    parts.clock = std::move(clock);
  }
  return std::make_unique<Engine>(std::move(parts), loaded.options);
}

/// An image is computed in one step; a step may be too short for the largest that the model sees.
void warn_of_large_images(LoadedEngine& loaded) {
  const std::int32_t most = scheduler::max_whole_span(
      {.max_requests = loaded.options.max_requests, .max_batched_tokens = loaded.options.max_batched_tokens, .reuse = {}});
  if (loaded.config.vision && loaded.config.vision->max_image_tokens > most) {
    const std::int32_t needed = loaded.config.vision->max_image_tokens + loaded.options.max_requests - 1;
    loaded.warnings.push_back("images of more than " + std::to_string(most) + " tokens are refused, the model takes " +
                              std::to_string(loaded.config.vision->max_image_tokens) +
                              ": an image is computed in one step; --max-batched-tokens " + std::to_string(needed) + " has room for all");
  }
}

}  // namespace

std::string_view describe(LoadPhase phase) {
  switch (phase) {
    case LoadPhase::config:
      return "reading the configuration";
    case LoadPhase::tokenizer:
      return "reading the tokenizer";
    case LoadPhase::checkpoint:
      return "opening the checkpoint";
    case LoadPhase::values:
      return "checking the weights";
    case LoadPhase::model:
      return "placing the model";
    case LoadPhase::done:
      return "loaded";
  }
  std::unreachable();
}

Result<LoadedEngine> load_engine(const std::filesystem::path& directory, const EngineOptions& options, Device& device,
                                 const LoadProgress& progress, std::unique_ptr<const Clock> clock) {
  const LoadProgress begin = progress ? progress : [](LoadPhase) {};
  EngineOptions used = options;
  if (used.overlap_depth < 0) {
    used.overlap_depth = device.info().reads_host_memory ? 0 : 1;
  }
  auto files = read_files(directory, used, device.info(), begin);
  if (!files) {
    return std::unexpected(std::move(files.error()));
  }
  auto store = open_store(directory, used, device.info());
  if (!store) {
    return std::unexpected(std::move(store.error()));
  }
  begin(LoadPhase::model);
  auto model = model::DeepseekV41::create(device, std::move(files->checkpoint.checkpoint), files->config, std::move(files->engram_class),
                                          files->plan.sizes, files->plan.engram_tables);
  if (!model) {
    return std::unexpected(std::move(model.error()));
  }
  LoadedEngine out{.engine = nullptr,
                   .tokenizer = files->tokenizer,
                   .vocabulary = {},
                   .config = std::move(files->config),
                   .options = used,
                   .memory = files->plan,
                   .cache_groups = (*model)->cache_groups(),
                   .warnings = std::move(files->checkpoint.warnings)};
  warn_of_large_images(out);
  out.vocabulary = std::make_shared<const grammar::Vocabulary>(grammar::make_vocabulary(out.tokenizer, out.config.vocab_size));
  out.engine = make_engine(std::move(*model), out.tokenizer, std::move(*store), out, std::move(clock));
  begin(LoadPhase::done);
  return out;
}

}  // namespace deepinfer::engine
