#include "apps/model_probe.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "apps/loading.h"
#include "apps/probe_request.h"
#include "apps/tensor_file.h"
#include "model/deepseek_v41/inventory.h"
#include "model/deepseek_v41/memory_plan.h"
#include "recipe/base64.h"
#include "tokenizer/engram_vocabulary.h"
#include "weights/checkpoint.h"

namespace deepinfer::apps {
namespace {

constexpr std::size_t kTopLogits = 20;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Largest logits first, the smaller id on ties.
json::Array top_logits(const std::vector<float>& logits) {
  std::vector<std::size_t> ids(logits.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i;
  }
  const std::size_t count = std::min(kTopLogits, ids.size());
  std::ranges::partial_sort(ids, ids.begin() + static_cast<std::ptrdiff_t>(count),
                            [&logits](std::size_t a, std::size_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
  json::Array out;
  for (std::size_t i = 0; i < count; ++i) {
    out.emplace_back(json::Array{static_cast<std::uint64_t>(ids[i]), static_cast<double>(logits[ids[i]])});
  }
  return out;
}

/// Keep of a request with "replay": "bounded"; 0 for an exact one.
Result<std::int32_t> replay_keep(const json::Value& request) {
  const Result<std::string> replay = text_member(request, "replay", "exact");
  if (!replay) {
    return std::unexpected(replay.error());
  }
  if (*replay == "exact") {
    return 0;
  }
  if (*replay != "bounded") {
    return fail(ErrorKind::invalid_argument, "'replay' must be \"exact\" or \"bounded\"");
  }
  const Result<std::int64_t> keep = integer_member(request, "keep", 0);
  if (keep && *keep <= 0) {
    return fail(ErrorKind::invalid_argument, "'keep' must be a positive number of tokens for a bounded replay");
  }
  return keep ? Result<std::int32_t>(static_cast<std::int32_t>(*keep)) : std::unexpected(keep.error());
}

Result<void> refuse_images(const json::Value& request) {
  const json::Value* const images = request.find("images");
  const json::Array* const list = images == nullptr ? nullptr : images->as_array();
  if (list != nullptr && !list->empty()) {
    return fail(ErrorKind::unsupported, "this model takes no images");
  }
  return {};
}

std::string_view finish_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::stop:
    case engine::FinishReason::stop_string:
      return "stop";
    case engine::FinishReason::length:
      return "length";
    case engine::FinishReason::cancelled:
      return "cancelled";
    case engine::FinishReason::timed_out:
      return "timed_out";
    case engine::FinishReason::failed:
      return "failed";
  }
  return "";
}

/// Copies one tensor of the file into `values` when it has the expected form.
template <class T>
Result<void> take_values(const std::vector<FileTensor>& tensors, const weights::TensorDescription& expected, std::vector<T>& values) {
  const FileTensor* const found = find_tensor(tensors, expected.name);
  if (found == nullptr) {
    return fail(ErrorKind::invalid_argument, "the inputs hold no tensor " + expected.name);
  }
  if (found->description.form() != expected.form()) {
    return fail(ErrorKind::invalid_argument, expected.name + " is " + found->description.form() + ", expected " + expected.form());
  }
  values.resize(found->bytes.size() / sizeof(T));
  std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelProbe>> ModelProbe::open(const ModelFlags& flags) {
  auto directory = find_model(flags.model);
  if (!directory) {
    return std::unexpected(std::move(directory.error()));
  }
  auto config = model::load_config(*directory);
  if (!config) {
    return std::unexpected(std::move(config.error()));
  }
  auto device = open_device(flags);
  if (!device) {
    return std::unexpected(std::move(device.error()));
  }
  return std::unique_ptr<ModelProbe>(new ModelProbe(std::move(*directory), flags, std::move(*config), std::move(*device)));
}

ModelProbe::ModelProbe(std::filesystem::path directory, ModelFlags flags, model::Config config, std::unique_ptr<Device> device)
    : directory_(std::move(directory)), flags_(std::move(flags)), config_(std::move(config)), device_(std::move(device)) {}

std::string ModelProbe::answer(std::string_view line) {
  const Result<json::Value> request = json::parse(line);
  const Answer result = request ? dispatch(*request) : Answer(std::unexpected(request.error()));
  return json::to_text(result ? *result : error_answer(result.error()));
}

ModelProbe::Answer ModelProbe::dispatch(const json::Value& request) {
  const Result<std::string> op = text_member(request, "op", "");
  if (!op) {
    return std::unexpected(op.error());
  }
  if (*op == "forward") {
    return forward(request);
  }
  if (*op == "score") {
    return score(request);
  }
  if (*op == "layers") {
    return layers(request);
  }
  if (*op == "generate") {
    return generate(request);
  }
  if (*op == "stats") {
    return stats();
  }
  if (*op == "draft") {
    return draft(request);
  }
  return fail(ErrorKind::invalid_argument, "'op' must be forward, generate, score, layers, draft or stats");
}

Result<model::Probe*> ModelProbe::direct() {
  if (direct_) {
    return &*direct_;
  }
  const auto plan = model::plan_memory(
      config_, {.max_requests = 1,
                .max_batched_tokens = flags_.max_batched_tokens,
                .max_model_len = flags_.max_model_len,
                .max_drafts = config_.has_drafter() ? std::min(config_.dspark_block_size, flags_.max_batched_tokens - 1) : 0});
  if (!plan) {
    return std::unexpected(plan.error());
  }
  auto checkpoint = weights::Checkpoint::open(directory_);
  if (!checkpoint) {
    return std::unexpected(std::move(checkpoint.error()));
  }
  const model::CheckpointFindings findings = model::validate_checkpoint(config_, **checkpoint);
  if (!findings.problems.empty()) {
    return findings.problems.to_failure(ErrorKind::corrupt, "the checkpoint " + directory_.string());
  }
  const auto tokenizer = tokenizer::Tokenizer::load(directory_ / "tokenizer.json");
  if (!tokenizer) {
    return std::unexpected(tokenizer.error());
  }
  std::vector<std::int32_t> classes = tokenizer::compress_vocabulary(*tokenizer).class_of;
  classes.resize(static_cast<std::size_t>(config_.vocab_size));
  model::CacheSizes sizes = plan->sizes;
  sizes.max_logit_rows = sizes.max_rows;  // score() wants the logits of every row
  auto model = model::DeepseekV41::create(*device_, std::move(*checkpoint), config_, std::move(classes), sizes,
                                          engram_tables(flags_, config_, sizes, device_->info()));
  if (!model) {
    return std::unexpected(std::move(model.error()));
  }
  model_ = std::move(*model);
  return &direct_.emplace(*device_, *model_, sizes);
}

Result<engine::LoadedEngine*> ModelProbe::engine() {
  if (!engine_) {
    auto loaded = engine::load_engine(directory_, engine_options(flags_), *device_);
    if (!loaded) {
      return std::unexpected(std::move(loaded.error()));
    }
    engine_ = std::move(*loaded);
  }
  return &*engine_;
}

ModelProbe::Answer ModelProbe::forward(const json::Value& request) {
  const auto ids = ids_member(request, "ids");
  const auto chunk = integer_member(request, "chunk", 0);
  const auto keep = replay_keep(request);
  const auto no_images = refuse_images(request);
  if (const Error* const error = first_error(ids, chunk, keep, no_images)) {
    return std::unexpected(*error);
  }
  const auto probe = direct();
  if (!probe) {
    return std::unexpected(probe.error());
  }
  const auto output = (*probe)->forward(*ids, {.chunk = static_cast<std::int32_t>(*chunk), .keep = *keep});
  if (!output) {
    return std::unexpected(output.error());
  }
  return json::Object{{"logits", recipe::encode_base64(bytes_of(output->logits))},
                      {"rows", 1},
                      {"top", top_logits(output->logits)},
                      {"state_sha256", output->state_sha256}};
}

ModelProbe::Answer ModelProbe::draft(const json::Value& request) {
  const auto ids = ids_member(request, "ids");
  const auto probe = direct();
  if (const Error* const error = first_error(ids, probe)) {
    return std::unexpected(*error);
  }
  const auto output = (*probe)->draft(*ids);
  if (!output) {
    return std::unexpected(output.error());
  }
  json::Array tokens;
  json::Array confidences;
  for (std::size_t i = 0; i < output->tokens.size(); ++i) {
    tokens.emplace_back(output->tokens[i].value);
    confidences.emplace_back(static_cast<double>(output->confidences[i]));
  }
  return json::Object{{"draft", std::move(tokens)}, {"confidence", std::move(confidences)}};
}

ModelProbe::Answer ModelProbe::score(const json::Value& request) {
  const auto ids = ids_member(request, "ids");
  const auto from = integer_member(request, "from", 1);
  if (const Error* const error = first_error(ids, from)) {
    return std::unexpected(*error);
  }
  const auto probe = direct();
  if (!probe) {
    return std::unexpected(probe.error());
  }
  const auto scores = (*probe)->score(*ids, static_cast<std::int32_t>(*from));
  if (!scores) {
    return std::unexpected(scores.error());
  }
  json::Array arg_max;
  json::Array margin;
  json::Array logprob;
  for (const model::Score& one : *scores) {
    arg_max.emplace_back(one.arg_max.value);
    margin.emplace_back(static_cast<double>(one.margin));
    logprob.emplace_back(static_cast<double>(one.logprob));
  }
  return json::Object{{"argmax", std::move(arg_max)}, {"margin", std::move(margin)}, {"logprob", std::move(logprob)}};
}

ModelProbe::Answer ModelProbe::layers(const json::Value& request) {
  const auto ids = ids_member(request, "ids");
  const auto inputs_file = text_member(request, "inputs", "");
  const auto output_file = text_member(request, "output", "");
  if (const Error* const error = first_error(ids, inputs_file, output_file)) {
    return std::unexpected(*error);
  }
  const auto tensors = read_tensor_file(*inputs_file);
  const auto probe = direct();
  if (const Error* const error = first_error(tensors, probe)) {
    return std::unexpected(*error);
  }
  const auto num_rows = static_cast<std::int64_t>(ids->size());
  const auto form_of = [&](std::int32_t layer, DType dtype) {
    const std::string name = "layers." + std::to_string(layer) + (dtype == DType::bf16 ? ".streams" : ".pre");
    const Shape shape = dtype == DType::bf16 ? Shape{num_rows, config_.hc_mult, config_.hidden_size} : Shape{num_rows, config_.hc_mult};
    return weights::TensorDescription{.name = name, .dtype = dtype, .shape = shape};
  };
  std::vector<model::LayerValues> inputs(static_cast<std::size_t>(config_.num_hidden_layers));
  for (std::int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    model::LayerValues& values = inputs[static_cast<std::size_t>(layer)];
    const auto streams = take_values(*tensors, form_of(layer, DType::bf16), values.streams);
    const auto pre = take_values(*tensors, form_of(layer, DType::f32), values.pre);
    if (const Error* const error = first_error(streams, pre)) {
      return std::unexpected(*error);
    }
  }
  const auto outputs = (*probe)->layers(*ids, inputs);
  if (!outputs) {
    return std::unexpected(outputs.error());
  }
  std::vector<FileTensor> written;
  for (std::size_t layer = 0; layer < outputs->size(); ++layer) {
    const auto index = static_cast<std::int32_t>(layer);
    written.push_back({.description = form_of(index, DType::bf16), .bytes = bytes_of((*outputs)[layer].streams)});
    written.push_back({.description = form_of(index, DType::f32), .bytes = bytes_of((*outputs)[layer].pre)});
  }
  if (const auto done = write_tensor_file(*output_file, written); !done) {
    return std::unexpected(done.error());
  }
  return json::Object{{"layers", static_cast<std::uint64_t>(outputs->size())}, {"output", *output_file}};
}

ModelProbe::Answer ModelProbe::generate(const json::Value& request) {
  const auto wanted = generation_request(request);
  const auto companions = companion_prompts(request);
  const auto loaded = engine();
  if (const Error* const error = first_error(wanted, companions, loaded)) {
    return std::unexpected(*error);
  }
  json::Array ids;
  json::Array accepted;
  std::optional<engine::Finish> finish;
  const auto submitted = (*loaded)->engine->submit(engine::GenerationRequest(*wanted), [&](engine::Output&& output) {
    for (const engine::TokenOutput& token : output.tokens) {
      ids.emplace_back(token.token.value);
    }
    if (!output.tokens.empty()) {
      accepted.emplace_back(static_cast<std::uint64_t>(output.tokens.size()));
    }
    if (output.finish) {
      finish = std::move(output.finish);
    }
  });
  if (!submitted) {
    return std::unexpected(submitted.error());
  }
  for (const std::vector<TokenId>& prompt : *companions) {
    engine::GenerationRequest companion = *wanted;
    companion.prompt = prompt;
    if (const auto taken = (*loaded)->engine->submit(std::move(companion), [](engine::Output&&) {}); !taken) {
      (*loaded)->engine->cancel_all();
      while ((*loaded)->engine->step()) {
      }
      return fail(Error(taken.error()), "batch_with");
    }
  }
  while ((*loaded)->engine->step()) {
  }
  if (finish && finish->reason == engine::FinishReason::failed) {
    return fail(ErrorKind::corrupt, finish->message);
  }
  return json::Object{{"ids", std::move(ids)},
                      {"accepted", std::move(accepted)},
                      {"finish", finish_name(finish ? finish->reason : engine::FinishReason::failed)}};
}

ModelProbe::Answer ModelProbe::stats() {
  const auto loaded = engine();
  if (!loaded) {
    return std::unexpected(loaded.error());
  }
  const engine::EngineStats counters = (*loaded)->engine->stats();
  json::Object groups;
  for (const model::CacheGroup& group : (*loaded)->cache_groups) {
    groups.set(group.name, static_cast<std::uint64_t>(group.bytes_per_unit) * static_cast<std::uint64_t>(group.num_units));
  }
  return json::Object{{"steps", counters.num_steps},
                      {"prefill_tokens", counters.num_prefill_tokens},
                      {"generated_tokens", counters.num_generated_tokens},
                      {"finished", counters.num_finished},
                      {"failed", counters.num_failed},
                      {"preemptions", counters.num_preemptions},
                      {"blocks_used", counters.num_blocks_used},
                      {"slots_used", counters.num_slots_used},
                      {"cache_bytes", std::move(groups)}};
}

}  // namespace deepinfer::apps
