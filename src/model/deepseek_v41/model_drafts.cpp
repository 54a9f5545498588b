// A draft pass: the drafter's blocks once, then position by position the Markov head and the choice of a token, the caller's or the device's.
#include <algorithm>

#include "base/check.h"
#include "model/deepseek_v41/model_state.h"

namespace deepinfer::model {
namespace {

/// One chunk per request: the anchor, and noise where the drafts will be.
void make_blocks(std::span<const DraftStart> starts, std::size_t num_drafts, TokenId noise, DraftScratch& scratch) {
  scratch.blocks.assign(starts.size() * num_drafts, noise);
  scratch.chunks.clear();
  scratch.tokens.resize(starts.size() * (1 + num_drafts));
  for (std::size_t r = 0; r < starts.size(); ++r) {
    check(starts[r].position >= 1, "drafts come behind a processed position");
    const std::span<TokenId> block = std::span(scratch.blocks).subspan(r * num_drafts, num_drafts);
    block.front() = starts[r].anchor;
    scratch.chunks.push_back({.slot = starts[r].slot, .blocks = {}, .first_position = starts[r].position, .tokens = block, .previous = {}});
    scratch.tokens[r] = starts[r].anchor.value;
  }
  scratch.picked.resize(starts.size());
  scratch.confidence.resize(starts.size() * num_drafts);
  scratch.markov_confidence.resize(starts.size() * num_drafts);
}

}  // namespace

/// Tables of a draft pass and the anchors, on their way to the device.
void DeepseekV41::State::begin_drafts(std::span<const DraftStart> starts, std::int32_t num_drafts) {
  check(num_drafts >= 1 && num_drafts <= sizes.max_drafts, "the model was created for as many drafts");
  check(!starts.empty() && starts.size() <= static_cast<std::size_t>(sizes.max_chunks), "a draft pass has a request, and no more than a step");
  make_blocks(starts, static_cast<std::size_t>(num_drafts), {config.dspark_noise_token_id}, drafting);
  tables->build_drafts(drafting.chunks, *stream);
  check(tables->host_logit_rows().size() <= static_cast<std::size_t>(sizes.max_logit_rows), "there is room for the logits of all drafts");
  stream->copy(workspace.draft_token, drafting.tokens.data(), starts.size() * sizeof(std::int32_t));
}

/// Adds what the token before says to the logits of draft `index`. Returns them: [requests, vocab] on the device.
float* DeepseekV41::State::add_markov(std::int32_t index, std::int32_t num_requests) {
  const DrafterWeights& weights = bound.weights.drafter;
  float* const logits = workspace.logits + std::int64_t{index} * num_requests * config.vocab_size;
  LinearBf16Params markov{.num_rows = num_requests,
                          .n = config.vocab_size,
                          .k = config.dspark_markov_rank,
                          .x = weights.markov_embed,
                          .row_index = workspace.draft_token + std::int64_t{index} * num_requests,
                          .weight = weights.markov_head,
                          .y_f32 = workspace.markov,
                          .y_bf16 = nullptr};
  device.ops().linear_bf16(*stream, markov);
  markov.n = 1;
  markov.weight = {weights.confidence + config.hidden_size};
  markov.y_f32 = workspace.markov_confidence + std::int64_t{index} * num_requests;
  device.ops().linear_bf16(*stream, markov);
  device.ops().add_rows(*stream, {.num_rows = num_requests, .width = config.vocab_size, .x = workspace.markov, .y = logits});
  return logits;
}

/// Waits for the pass.
std::span<const float> DeepseekV41::State::finish_drafts() {
  const std::span<float> confidences(drafting.confidence);
  stream->copy(confidences.data(), workspace.confidence, confidences.size_bytes());
  stream->copy(drafting.markov_confidence.data(), workspace.markov_confidence, confidences.size_bytes());
  stream->synchronize();
  for (std::size_t i = 0; i < confidences.size(); ++i) {
    confidences[i] += drafting.markov_confidence[i];
  }
  return confidences;
}

std::span<const float> DeepseekV41::draft(std::span<const DraftStart> starts, std::int32_t num_drafts, PickDrafts& pick) {
  State& s = *state_;
  DraftScratch& scratch = s.drafting;
  s.begin_drafts(starts, num_drafts);
  s.recorded.run(s.tables->shape(), *s.stream, [&s] { s.pass().run_drafter(); });
  const std::size_t row_values = starts.size() * static_cast<std::size_t>(s.config.vocab_size);
  const bool on_host = s.device.info().reads_host_memory;
  if (!on_host) {
    scratch.logits.resize(std::max(scratch.logits.size(), row_values));
  }
  for (std::int32_t i = 0; i < num_drafts; ++i) {
    const float* logits = s.add_markov(i, static_cast<std::int32_t>(starts.size()));
    if (!on_host) {
      s.stream->copy(scratch.logits.data(), logits, row_values * sizeof(float));
      logits = scratch.logits.data();
    }
    s.stream->synchronize();
    pick(i, {logits, row_values}, scratch.picked);
    const std::size_t place = static_cast<std::size_t>(i + 1) * starts.size();
    std::ranges::transform(scratch.picked, scratch.tokens.begin() + static_cast<std::ptrdiff_t>(place), &TokenId::value);
    s.stream->copy(s.workspace.draft_token + place, scratch.tokens.data() + place, starts.size() * sizeof(std::int32_t));
  }
  return s.finish_drafts();
}

DrawnDrafts DeepseekV41::draft(std::span<const DraftStart> starts, std::int32_t num_drafts, std::span<const TokenDraw> draws) {
  State& s = *state_;
  check(draws.size() == starts.size(), "every request says how its drafts are drawn");
  s.begin_drafts(starts, num_drafts);
  s.draws.upload_drafts(draws, num_drafts, *s.stream);
  StepShape shape = s.tables->shape();
  shape.draws_drafts = true;
  const auto num_requests = static_cast<std::int32_t>(starts.size());
  s.recorded.run(shape, *s.stream, [&] {
    s.pass().run_drafter();
    for (std::int32_t i = 0; i < num_drafts; ++i) {
      const float* logits = s.add_markov(i, num_requests);
      s.draws.draw_draft(i, num_requests, logits, s.workspace.draft_token + std::int64_t{i + 1} * num_requests, s.device.ops(), *s.stream);
    }
  });
  const std::span<std::int32_t> tokens = std::span(s.drafting.tokens).subspan(starts.size());
  s.stream->copy(tokens.data(), s.workspace.draft_token + num_requests, tokens.size_bytes());
  const std::span<const float> confidences = s.finish_drafts();
  return {.tokens = tokens, .confidences = confidences};
}

}  // namespace deepinfer::model
