// The order of the layers, hyper-connections, Engram, experts and the head. Attention is in forward_attention.cpp.
#include "model/deepseek_v41/forward.h"

#include <utility>
#include <vector>

namespace deepinfer::model {

ForwardPass::ForwardPass(const ForwardContext& context)
    : context_(context),
      ops_(context.ops),
      stream_(context.stream),
      config_(context.config),
      w_(context.workspace),
      rows_(&context.tables.all()) {}

void ForwardPass::run() {
  if (!config_.engram_layer_ids.empty()) {
    context_.fetches.wait_for(stream_);
    fetch_engram(0);
  }
  embed();
  prepare_rotations();
  for (std::int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    if (const auto place = config_.engram_place(layer)) {
      engram(*place);
    }
    run_layer(layer);
    examine(layer);
  }
  head();
  store_draft_context();
}

void ForwardPass::run_layer(std::int32_t layer) {
  const BlockWeights& weights = block(layer);
  sublayer_input(w_.pre, weights.attn_norm);
  if (config_.is_kv_source(layer)) {
    write_global(layer);
  }
  if (layer == config_.split_layer()) {
    enter_decoder_half();
  }
  if (const auto place = config_.tap_place(layer); place && w_.taps != nullptr) {
    tap(*place);
  }
  mix(weights.attn_mix, w_.pre_attn);
  attention(layer);
  expand();

  mix(weights.ffn_mix, w_.pre);
  sublayer_input(w_.pre_attn, weights.ffn_norm);
  moe(layer);
  expand();
}

const BlockWeights& ForwardPass::block(std::int32_t layer) const {
  return config_.is_drafter(layer) ? context_.weights.drafter.blocks[static_cast<std::size_t>(layer - config_.num_hidden_layers)]
                                   : context_.weights.layers[static_cast<std::size_t>(layer)];
}

void ForwardPass::embed() {
  ops_.embed(stream_, {.num_rows = num_rows(),
                       .streams = config_.hc_mult,
                       .hidden = config_.hidden_size,
                       .token = context_.tables.tokens(),
                       .table = context_.weights.embed,
                       .is_image = rows_->is_image,
                       .image_rows = w_.image_rows,
                       .h = w_.h});
  const auto coefficients = static_cast<std::size_t>(num_rows()) * static_cast<std::size_t>(config_.hc_mult);
  stream_.copy(w_.pre, w_.initial_pre, coefficients * sizeof(float));
}

void ForwardPass::fill_rotations(std::int32_t count, const std::int32_t* position, const float* frequency, const RopeBuffer& out) {
  ops_.rope_table(stream_, {.num_rows = count,
                            .half_dim = config_.qk_rope_head_dim / 2,
                            .position = position,
                            .frequency = frequency,
                            .cos = out.cos,
                            .sin = out.sin});
}

void ForwardPass::prepare_rotations() {
  fill_rotations(num_rows(), rows_->rows.position, w_.frequency_plain, w_.rope_plain);
  fill_rotations(num_rows(), rows_->rows.position, w_.frequency_compressed, w_.rope_compressed);
  const GroupSet& pairs = context_.tables.groups(2);
  fill_rotations(pairs.num_groups, pairs.position, w_.frequency_compressed, w_.rope_pairs);
}

RopeTable ForwardPass::rope(std::int32_t layer) const {
  return config_.ratio(layer) == 0 ? w_.rope_plain.table() : w_.rope_compressed.table();
}

void ForwardPass::linear(Stream& stream, const Q8Rows& x, const QuantWeight& weight, std::int32_t n, std::int32_t k, bf16* y) {
  ops_.linear_q8(stream, {.num_rows = num_rows(), .n = n, .k = k, .groups = 1, .x = x, .weight = weight, .y = y});
}

/// Rows depend on tokens only, so they are on their way while other layers run.
void ForwardPass::fetch_engram(std::int32_t place) {
  const auto index = static_cast<std::size_t>(place);
  const EngramWeights& weights = context_.weights.engrams[index];
  ops_.engram_gather(context_.fetches, {.num_rows = context_.tables.all().rows.num_rows,
                                        .columns = config_.engram_lookups(),
                                        .row_dim = config_.engram_head_dim,
                                        .row_id = context_.tables.engram_rows(index),
                                        .codes = weights.codes,
                                        .scales = weights.scales,
                                        .e = w_.engram[index]});
}

void ForwardPass::engram(std::int32_t place) {
  const EngramWeights& weights = context_.weights.engrams[static_cast<std::size_t>(place)];
  const std::int32_t width = config_.engram_lookups() * config_.engram_head_dim;
  stream_.wait_for(context_.fetches);
  if (static_cast<std::size_t>(place) + 1 < context_.weights.engrams.size()) {
    fetch_engram(place + 1);  // follows this layer's rows at once: this layer need not wait for it
  }
  linear(stream_, w_.engram[static_cast<std::size_t>(place)], weights.wkv, (config_.hc_mult + 1) * config_.hidden_size, width, w_.engram_kv);
  ops_.engram_gate(stream_, {.num_rows = num_rows(),
                             .streams = config_.hc_mult,
                             .hidden = config_.hidden_size,
                             .kv = w_.engram_kv,
                             .q_weight = weights.q_weight,
                             .k_weight = weights.k_weight,
                             .is_image = rows_->is_image,
                             .norm_eps = config_.rms_norm_eps,
                             .h = w_.h});
}

void ForwardPass::sublayer_input(const float* pre, const bf16* norm, bf16* x) {
  ops_.collapse_norm(stream_, {.num_rows = num_rows(),
                               .streams = config_.hc_mult,
                               .hidden = config_.hidden_size,
                               .h = w_.h,
                               .pre = pre,
                               .weight = norm,
                               .norm_eps = config_.rms_norm_eps,
                               .x = x,
                               .y = w_.u,
                               .q8 = w_.u_q8});
}

void ForwardPass::mix(const MixWeights& weights, float* pre) {
  context_.mixes.wait_for(stream_);
  ops_.mix(context_.mixes, {.num_rows = num_rows(),
                     .streams = config_.hc_mult,
                     .hidden = config_.hidden_size,
                     .h = w_.h,
                     .fn = weights.fn,
                     .base = weights.base,
                     .scale = weights.scale,
                     .sinkhorn_iterations = config_.hc_sinkhorn_iters,
                     .mix_eps = config_.hc_eps,
                     .norm_eps = config_.rms_norm_eps,
                     .pre = pre,
                     .post = w_.post,
                     .comb = w_.comb});
}

void ForwardPass::expand() {
  stream_.wait_for(context_.mixes);
  ops_.expand(stream_, {.num_rows = num_rows(),
                        .streams = config_.hc_mult,
                        .hidden = config_.hidden_size,
                        .y = w_.y,
                        .post = w_.post,
                        .comb = w_.comb,
                        .h = w_.h});
}

/// From the split layer on windows start at the rectangle of bounded replay, and only the kept rows go on. Streams and coefficients
/// move together; what was derived from them is made anew.
void ForwardPass::enter_decoder_half() {
  rows_ = &context_.tables.kept();
  if (!context_.tables.drops_rows()) {
    return;
  }
  const std::size_t stream_values = static_cast<std::size_t>(config_.hc_mult) * static_cast<std::size_t>(config_.hidden_size);
  const auto coefficients = static_cast<std::size_t>(config_.hc_mult);
  std::size_t row = 0;
  for (const KeptRange& range : context_.tables.kept_ranges()) {
    const auto first = static_cast<std::size_t>(range.first);
    const auto count = static_cast<std::size_t>(range.count);
    stream_.copy(w_.h_kept + row * stream_values, w_.h + first * stream_values, count * stream_values * sizeof(bf16));
    stream_.copy(w_.pre_kept + row * coefficients, w_.pre + first * coefficients, count * coefficients * sizeof(float));
    row += count;
  }
  std::swap(w_.h, w_.h_kept);
  std::swap(w_.pre, w_.pre_kept);
  fill_rotations(num_rows(), rows_->rows.position, w_.frequency_plain, w_.rope_plain);  // the drafter's
  fill_rotations(num_rows(), rows_->rows.position, w_.frequency_compressed, w_.rope_compressed);
  sublayer_input(w_.pre, context_.weights.layers[static_cast<std::size_t>(config_.split_layer())].attn_norm);
}

void ForwardPass::moe(std::int32_t layer) {
  const FfnWeights& weights = block(layer).ffn;
  const std::int32_t num_experts = config_.num_experts(layer);
  const std::int32_t top_k = config_.experts_per_token(layer);
  ops_.route(stream_, {.num_rows = num_rows(),
                       .hidden = config_.hidden_size,
                       .num_experts = num_experts,
                       .top_k = top_k,
                       .u = w_.u,
                       .weight = weights.gate,
                       .bias = weights.bias,
                       .bias_image = weights.bias_image,
                       .is_image = rows_->is_image,
                       .routed_scaling = config_.routed_scaling_factor,
                       .expert = w_.expert,
                       .expert_weight = w_.expert_weight});
  ops_.moe(stream_, {.num_rows = num_rows(),
                     .hidden = config_.hidden_size,
                     .intermediate = config_.moe_intermediate_size,
                     .num_experts = num_experts,
                     .top_k = top_k,
                     .x = w_.u_q8,
                     .expert = w_.expert,
                     .expert_weight = w_.expert_weight,
                     .experts = weights.experts,
                     .shared = weights.shared,
                     .swiglu_limit = config_.swiglu_limit,
                     .y = w_.y});
}

void ForwardPass::examine(std::int32_t layer) {
  if (!context_.hook) {
    return;
  }
  const auto coefficients = static_cast<std::size_t>(num_rows()) * static_cast<std::size_t>(config_.hc_mult);
  std::vector<bf16> streams(coefficients * static_cast<std::size_t>(config_.hidden_size));
  std::vector<float> pre(coefficients);
  stream_.copy(streams.data(), w_.h, streams.size() * sizeof(bf16));
  stream_.copy(pre.data(), w_.pre, pre.size() * sizeof(float));
  stream_.synchronize();
  context_.hook({.layer = layer, .streams = streams, .pre = pre});
  stream_.copy(w_.h, streams.data(), streams.size() * sizeof(bf16));
  stream_.copy(w_.pre, pre.data(), pre.size() * sizeof(float));
  stream_.synchronize();
}

void ForwardPass::head() {
  const auto count = static_cast<std::int32_t>(context_.tables.host_logit_rows().size());
  if (count == 0) {
    return;
  }
  sublayer_input(w_.pre, context_.weights.norm);
  ops_.linear_bf16(stream_, {.num_rows = count,
                             .n = config_.vocab_size,
                             .k = config_.hidden_size,
                             .x = w_.u,
                             .row_index = context_.tables.logit_rows(),
                             .weight = context_.weights.head,
                             .y_f32 = w_.logits,
                             .y_bf16 = nullptr});
}

}  // namespace deepinfer::model
