// A draft pass: the drafter's blocks once, then position by position the Markov head and the caller's choice.
#include <algorithm>

#include "base/check.h"
#include "model/deepseek_v41/model_state.h"

namespace deepinfer::model {
namespace {

/// One chunk per request: the anchor, and noise where the drafts will be.
void make_blocks(std::span<const DraftStart> starts, std::size_t num_drafts, TokenId noise, DraftScratch& scratch) {
  scratch.blocks.assign(starts.size() * num_drafts, noise);
  scratch.chunks.clear();
  scratch.previous.clear();
  for (std::size_t r = 0; r < starts.size(); ++r) {
    check(starts[r].position >= 1, "drafts come behind a processed position");
    const std::span<TokenId> block = std::span(scratch.blocks).subspan(r * num_drafts, num_drafts);
    block.front() = starts[r].anchor;
    scratch.chunks.push_back({.slot = starts[r].slot, .blocks = {}, .first_position = starts[r].position, .tokens = block, .previous = {}});
    scratch.previous.push_back(starts[r].anchor.value);
  }
  scratch.drafts.resize(starts.size());
  scratch.confidence.resize(starts.size() * num_drafts);
  scratch.markov_confidence.resize(starts.size());
}

}  // namespace

std::span<const float> DeepseekV41::draft(std::span<const DraftStart> starts, std::int32_t num_drafts, PickDrafts& pick) {
  State& s = *state_;
  DraftScratch& scratch = s.drafting;
  check(num_drafts >= 1 && num_drafts <= s.sizes.max_drafts, "the model was created for as many drafts");
  check(!starts.empty() && starts.size() <= static_cast<std::size_t>(s.sizes.max_chunks), "a draft pass has a request, and no more than a step");
  make_blocks(starts, static_cast<std::size_t>(num_drafts), {s.config.dspark_noise_token_id}, scratch);
  s.tables->build_drafts(scratch.chunks, *s.stream);
  check(s.tables->host_logit_rows().size() <= static_cast<std::size_t>(s.sizes.max_logit_rows), "there is room for the logits of all drafts");
  s.recorded.run(s.tables->shape(), *s.stream, [&s] { s.pass().run_drafter(); });

  const DrafterWeights& weights = s.bound.weights.drafter;
  const auto num_requests = static_cast<std::int32_t>(starts.size());
  const std::size_t row_values = starts.size() * static_cast<std::size_t>(s.config.vocab_size);
  const bool on_host = s.device.info().reads_host_memory;
  if (!on_host) {
    s.host_logits.resize(std::max(s.host_logits.size(), row_values));
  }
  LinearBf16Params markov{.num_rows = num_requests,
                          .n = s.config.vocab_size,
                          .k = s.config.dspark_markov_rank,
                          .x = weights.markov_embed,
                          .row_index = s.workspace.draft_token,
                          .weight = weights.markov_head,
                          .y_f32 = s.workspace.markov,
                          .y_bf16 = nullptr};
  LinearBf16Params confidence = markov;
  confidence.n = 1;
  confidence.weight = weights.confidence + s.config.hidden_size;
  confidence.y_f32 = s.workspace.markov_confidence;
  const std::span<float> confidences(scratch.confidence);
  s.stream->copy(confidences.data(), s.workspace.confidence, confidences.size_bytes());
  for (std::int32_t i = 0; i < num_drafts; ++i) {
    float* logits = s.workspace.logits + static_cast<std::size_t>(i) * row_values;
    s.stream->copy(s.workspace.draft_token, scratch.previous.data(), scratch.previous.size() * sizeof(std::int32_t));
    s.device.ops().linear_bf16(*s.stream, markov);
    s.device.ops().linear_bf16(*s.stream, confidence);
    s.device.ops().add_rows(*s.stream, {.num_rows = num_requests, .width = s.config.vocab_size, .x = s.workspace.markov, .y = logits});
    if (!on_host) {
      s.stream->copy(s.host_logits.data(), logits, row_values * sizeof(float));
    }
    s.stream->copy(scratch.markov_confidence.data(), s.workspace.markov_confidence, starts.size() * sizeof(float));
    s.stream->synchronize();
    pick(i, {on_host ? logits : s.host_logits.data(), row_values}, scratch.drafts);
    for (std::size_t r = 0; r < starts.size(); ++r) {
      confidences[static_cast<std::size_t>(i) * starts.size() + r] += scratch.markov_confidence[r];
      scratch.previous[r] = scratch.drafts[r].value;
    }
  }
  return confidences;
}

}  // namespace deepinfer::model
