#include "model/deepseek_v41/probe.h"

#include <algorithm>
#include <cmath>

#include "model/deepseek_v41/cache_reader.h"
#include "ops/ops.h"

namespace deepinfer::model {

namespace {

Score score_of(std::span<const float> logits, TokenId actual) {
  std::size_t best = 0;
  float second = -INFINITY;
  for (std::size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) {
      second = logits[best];
      best = i;
    } else {
      second = std::max(second, logits[i]);
    }
  }
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - logits[best]);
  }
  const double logprob = static_cast<double>(logits[static_cast<std::size_t>(actual.value)]) - logits[best] - std::log(sum);
  return {.arg_max = {static_cast<std::int32_t>(best)}, .margin = logits[best] - second, .logprob = static_cast<float>(logprob)};
}

}  // namespace

Probe::Probe(Device& device, DeepseekV41& model, const CacheSizes& sizes) : device_(device), model_(model), sizes_(sizes) {
  for (std::int32_t block = 1; block < sizes.num_blocks && block <= sizes.max_blocks_per_request; ++block) {
    blocks_.push_back({block});
  }
}

Result<void> Probe::validate(std::span<const TokenId> ids) const {
  if (ids.empty()) {
    return fail(ErrorKind::invalid_argument, "ids must not be empty");
  }
  const std::size_t longest = blocks_.size() * kBlockPositions;
  if (ids.size() > longest) {
    return fail(ErrorKind::invalid_argument,
                "ids has " + std::to_string(ids.size()) + " tokens; the caches of this probe hold " + std::to_string(longest));
  }
  for (const TokenId id : ids) {
    if (id.value < 0 || id.value >= model_.config().vocab_size) {
      return fail(ErrorKind::invalid_argument, "ids holds " + std::to_string(id.value) + "; the vocabulary has " +
                                                   std::to_string(model_.config().vocab_size) + " tokens");
    }
  }
  return {};
}

Chunk Probe::chunk_at(std::span<const TokenId> ids, std::size_t begin, std::size_t count) const {
  const std::size_t reach = std::min<std::size_t>(begin, static_cast<std::size_t>(model_.config().engram_max_ngram_size - 1));
  return {.slot = {1},
          .blocks = std::span(blocks_).first((begin + count + kBlockPositions - 1) / kBlockPositions),
          .first_position = static_cast<std::int32_t>(begin),
          .tokens = ids.subspan(begin, count),
          .previous = ids.subspan(begin - reach, reach),
          .num_logit_rows = 0};
}

Result<ForwardOutput> Probe::forward(std::span<const TokenId> ids, const ForwardOptions& options) {
  if (Result<void> valid = validate(ids); !valid) {
    return std::unexpected(std::move(valid.error()));
  }
  if (options.keep != 0 && options.keep < model_.config().sliding_window) {
    return fail(ErrorKind::invalid_argument, "keep is " + std::to_string(options.keep) + "; it must be 0 (exact) or at least the window, " +
                                                 std::to_string(model_.config().sliding_window));
  }
  const auto length = static_cast<std::int32_t>(ids.size());
  const auto step = static_cast<std::size_t>(options.chunk > 0 ? std::min(options.chunk, sizes_.max_rows) : sizes_.max_rows);
  ForwardOutput out;
  for (std::size_t begin = 0; begin < ids.size(); begin += step) {
    Chunk chunk = chunk_at(ids, begin, std::min(step, ids.size() - begin));
    chunk.keep_from = options.keep == 0 ? 0 : std::max(0, length - options.keep);
    chunk.num_logit_rows = begin + step >= ids.size() ? 1 : 0;
    const std::span<const float> logits = model_.forward({&chunk, 1});
    out.logits.assign(logits.begin(), logits.end());
  }
  out.state_sha256 = CacheReader(device_, model_.config(), model_.caches(), {1}, blocks_).state_sha256(length);
  return out;
}

Result<DraftOutput> Probe::draft(std::span<const TokenId> ids) {
  if (sizes_.max_drafts == 0) {
    return fail(ErrorKind::unsupported, "the model has no drafter");
  }
  Result<ForwardOutput> prompt = forward(ids, {});
  if (!prompt) {
    return std::unexpected(std::move(prompt.error()));
  }
  const auto best = [](std::span<const float> row) {
    return TokenId{static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin())};
  };
  DraftOutput out;
  PickDrafts pick = [&](std::int32_t, std::span<const float> logits, std::span<TokenId> tokens) {
    tokens.front() = best(logits);
    out.tokens.push_back(tokens.front());
  };
  const DraftStart start{.slot = {1}, .position = static_cast<std::int32_t>(ids.size()), .anchor = best(prompt->logits)};
  for (const float logit : model_.draft({&start, 1}, sizes_.max_drafts, pick)) {
    out.confidences.push_back(1.0F / (1.0F + std::exp(-logit)));
  }
  return out;
}

Result<std::vector<Score>> Probe::score(std::span<const TokenId> ids, std::int32_t from) {
  if (Result<void> valid = validate(ids); !valid) {
    return std::unexpected(std::move(valid.error()));
  }
  if (from < 1 || from > static_cast<std::int32_t>(ids.size())) {
    return fail(ErrorKind::invalid_argument,
                "from is " + std::to_string(from) + "; it must lie in [1, " + std::to_string(ids.size()) + "]");
  }
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  const auto first = static_cast<std::size_t>(from) - 1;  // the row that predicts position `from`
  const auto step = static_cast<std::size_t>(std::min(sizes_.max_rows, sizes_.max_logit_rows));
  std::vector<Score> out;
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += step) {
    const std::size_t count = std::min(step, ids.size() - 1 - begin);
    Chunk chunk = chunk_at(ids, begin, count);
    const std::size_t wanted = begin + count > first ? std::min(count, begin + count - first) : 0;
    chunk.num_logit_rows = static_cast<std::int32_t>(wanted);
    const std::span<const float> logits = model_.forward({&chunk, 1});
    for (std::size_t i = 0; i < wanted; ++i) {
      out.push_back(score_of(logits.subspan(i * vocab, vocab), ids[begin + count - wanted + i + 1]));
    }
  }
  return out;
}

Result<std::vector<LayerValues>> Probe::layers(std::span<const TokenId> ids, std::span<const LayerValues> inputs) {
  if (Result<void> valid = validate(ids); !valid) {
    return std::unexpected(std::move(valid.error()));
  }
  const auto num_layers = static_cast<std::size_t>(model_.config().num_hidden_layers);
  const std::size_t coefficients = ids.size() * static_cast<std::size_t>(model_.config().hc_mult);
  if (ids.size() > static_cast<std::size_t>(sizes_.max_rows)) {
    return fail(ErrorKind::invalid_argument,
                "ids has " + std::to_string(ids.size()) + " tokens; one step takes " + std::to_string(sizes_.max_rows));
  }
  if (inputs.size() + 1 < num_layers) {
    return fail(ErrorKind::invalid_argument,
                "inputs holds " + std::to_string(inputs.size()) + " layers; " + std::to_string(num_layers - 1) + " are needed");
  }
  for (const LayerValues& input : inputs) {
    if (input.pre.size() != coefficients || input.streams.size() != coefficients * static_cast<std::size_t>(model_.config().hidden_size)) {
      return fail(ErrorKind::invalid_argument, "inputs do not have one row per token: streams [T, S, D] and pre [T, S] are expected");
    }
  }
  std::vector<LayerValues> out;
  model_.set_layer_hook([&](const LayerOutput& layer) {
    out.push_back({.streams = {layer.streams.begin(), layer.streams.end()}, .pre = {layer.pre.begin(), layer.pre.end()}});
    const auto index = static_cast<std::size_t>(layer.layer);
    if (index < inputs.size()) {
      std::ranges::copy(inputs[index].streams, layer.streams.begin());
      std::ranges::copy(inputs[index].pre, layer.pre.begin());
    }
  });
  const Chunk chunk = chunk_at(ids, 0, ids.size());
  (void)model_.forward({&chunk, 1});
  model_.set_layer_hook({});
  return out;
}

}  // namespace deepinfer::model
