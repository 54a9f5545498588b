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
  const std::int32_t split = config_.split_layer();
  embed();
  prepare_rotations();
  for (std::int32_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const BlockWeights& block = context_.weights.layers[static_cast<std::size_t>(layer)];
    if (const auto place = config_.engram_place(layer)) {
      engram(*place);
    }
    sublayer_input(w_.pre, block.attn_norm);
    if (config_.is_kv_source(layer)) {
      write_global(layer);
    }
    if (layer == split) {
      enter_decoder_half();
    }
    mix(block.attn_mix, w_.pre_attn);
    attention(layer);
    expand();

    mix(block.ffn_mix, w_.pre);
    sublayer_input(w_.pre_attn, block.ffn_norm);
    moe(layer);
    expand();
    examine(layer);
  }
  head();
}

void ForwardPass::embed() {
  ops_.embed(stream_, {.num_rows = num_rows(),
                       .streams = config_.hc_mult,
                       .hidden = config_.hidden_size,
                       .token = context_.tables.tokens(),
                       .table = context_.weights.embed,
                       .h = w_.h});
  const auto coefficients = static_cast<std::size_t>(num_rows()) * static_cast<std::size_t>(config_.hc_mult);
  stream_.copy(w_.pre, w_.initial_pre, coefficients * sizeof(float));
}

void ForwardPass::prepare_rotations() {
  const auto fill = [this](std::int32_t count, const std::int32_t* position, const float* frequency, const RopeBuffer& out) {
    ops_.rope_table(stream_, {.num_rows = count,
                              .half_dim = config_.qk_rope_head_dim / 2,
                              .position = position,
                              .frequency = frequency,
                              .cos = out.cos,
                              .sin = out.sin});
  };
  fill(num_rows(), rows_->rows.position, w_.frequency_plain, w_.rope_plain);
  fill(num_rows(), rows_->rows.position, w_.frequency_compressed, w_.rope_compressed);
  const GroupSet& pairs = context_.tables.groups(2);
  fill(pairs.num_groups, pairs.position, w_.frequency_compressed, w_.rope_pairs);
}

RopeTable ForwardPass::rope(std::int32_t layer) const {
  return config_.ratio(layer) == 0 ? w_.rope_plain.table() : w_.rope_compressed.table();
}

void ForwardPass::linear(const Q8Rows& x, const QuantWeight& weight, std::int32_t n, std::int32_t k, bf16* y) {
  ops_.linear_q8(stream_, {.num_rows = num_rows(), .n = n, .k = k, .groups = 1, .x = x, .weight = weight, .y = y});
}

void ForwardPass::engram(std::int32_t place) {
  const EngramWeights& weights = context_.weights.engrams[static_cast<std::size_t>(place)];
  const std::int32_t width = config_.engram_lookups() * config_.engram_head_dim;
  ops_.engram_gather(stream_, {.num_rows = num_rows(),
                               .columns = config_.engram_lookups(),
                               .row_dim = config_.engram_head_dim,
                               .row_id = context_.tables.engram_rows(static_cast<std::size_t>(place)),
                               .codes = weights.codes,
                               .scales = weights.scales,
                               .e = w_.engram});
  linear(w_.engram, weights.wkv, (config_.hc_mult + 1) * config_.hidden_size, width, w_.engram_kv);
  ops_.engram_gate(stream_, {.num_rows = num_rows(),
                             .streams = config_.hc_mult,
                             .hidden = config_.hidden_size,
                             .kv = w_.engram_kv,
                             .q_weight = weights.q_weight,
                             .k_weight = weights.k_weight,
                             .is_image = nullptr,
                             .norm_eps = config_.rms_norm_eps,
                             .h = w_.h});
}

void ForwardPass::sublayer_input(const float* pre, const bf16* norm) {
  ops_.collapse_norm(stream_, {.num_rows = num_rows(),
                               .streams = config_.hc_mult,
                               .hidden = config_.hidden_size,
                               .h = w_.h,
                               .pre = pre,
                               .weight = norm,
                               .norm_eps = config_.rms_norm_eps,
                               .x = nullptr,
                               .y = w_.u,
                               .q8 = w_.u_q8});
}

void ForwardPass::mix(const MixWeights& weights, float* pre) {
  ops_.mix(stream_, {.num_rows = num_rows(),
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
  ops_.expand(stream_, {.num_rows = num_rows(),
                        .streams = config_.hc_mult,
                        .hidden = config_.hidden_size,
                        .y = w_.y,
                        .post = w_.post,
                        .comb = w_.comb,
                        .h = w_.h});
}

void ForwardPass::write_global(std::int32_t layer) {
  const CompressorWeights& weights = context_.weights.layers[static_cast<std::size_t>(layer)].attn.compressor;
  const SourceCache& source = context_.caches.sources.at(layer);
  const GroupSet& groups = context_.tables.groups(source.ratio);
  const std::int32_t d = config_.head_dim;
  LinearBf16Params project{
      .num_rows = num_rows(), .n = d, .k = config_.hidden_size, .x = w_.u, .row_index = nullptr, .weight = weights.wkv};
  if (source.ratio == 2) {
    project.y_f32 = w_.value;
    ops_.linear_bf16(stream_, project);
    project.weight = weights.wgate;
    project.y_f32 = w_.gate;
    ops_.linear_bf16(stream_, project);
    ops_.compress_pairs(stream_, {.rows = rows_->rows,
                                  .chunks = rows_->chunks,
                                  .head_dim = d,
                                  .tail_rows = context_.caches.tail_rows,
                                  .num_groups = groups.num_groups,
                                  .group_row = groups.row,
                                  .value = w_.value,
                                  .gate = w_.gate,
                                  .tail = source.tail,
                                  .pooled = w_.pooled});
  } else {
    project.y_bf16 = w_.pooled;
    ops_.linear_bf16(stream_, project);
  }
  ops_.rms_norm(stream_, {.num_rows = groups.num_groups,
                          .width = d,
                          .x = w_.pooled,
                          .x_stride = 0,
                          .weight = weights.norm,
                          .norm_eps = config_.rms_norm_eps,
                          .y = w_.latent,
                          .q8 = {}});
  const RopeTable rope = source.ratio == 2 ? w_.rope_pairs.table() : w_.rope_compressed.table();
  ops_.linear_bf16(stream_, {.num_rows = groups.num_groups,
                             .n = config_.index_head_dim,
                             .k = d,
                             .x = w_.latent,
                             .row_index = nullptr,
                             .weight = weights.wk,
                             .y_f32 = nullptr,
                             .y_bf16 = w_.index_key});
  ops_.store_index_keys(stream_, {.num_rows = groups.num_groups,
                                  .index_dim = config_.index_head_dim,
                                  .rope_dim = config_.qk_rope_head_dim,
                                  .rows_per_block = source.rows_per_block,
                                  .x = w_.index_key,
                                  .weight = weights.k_norm,
                                  .norm_eps = config_.rms_norm_eps,
                                  .rope = rope,
                                  .row_place = groups.place,
                                  .keys = source.index_keys});
  ops_.store_compressed(stream_, {.num_rows = groups.num_groups,
                                  .head_dim = d,
                                  .rope_dim = config_.qk_rope_head_dim,
                                  .x = w_.latent,
                                  .rope = rope,
                                  .row_place = groups.place,
                                  .compressed = source.compressed});
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
  ops_.rope_table(stream_, {.num_rows = num_rows(),
                            .half_dim = config_.qk_rope_head_dim / 2,
                            .position = rows_->rows.position,
                            .frequency = w_.frequency_compressed,
                            .cos = w_.rope_compressed.cos,
                            .sin = w_.rope_compressed.sin});
  sublayer_input(w_.pre, context_.weights.layers[static_cast<std::size_t>(config_.split_layer())].attn_norm);
}

void ForwardPass::attention(std::int32_t layer) {
  const AttentionWeights& weights = context_.weights.layers[static_cast<std::size_t>(layer)].attn;
  const std::int32_t heads = config_.num_attention_heads;
  const std::int32_t d = config_.head_dim;
  linear(w_.u_q8, weights.wq_a, config_.q_lora_rank, config_.hidden_size, w_.qa);
  ops_.rms_norm(stream_, {.num_rows = num_rows(),
                          .width = config_.q_lora_rank,
                          .x = w_.qa,
                          .x_stride = 0,
                          .weight = weights.q_norm,
                          .norm_eps = config_.rms_norm_eps,
                          .y = w_.qr,
                          .q8 = w_.qr_q8});
  linear(w_.qr_q8, weights.wq_b, heads * d, config_.q_lora_rank, w_.q);
  ops_.rotate(
      stream_,
      {.num_rows = num_rows(), .heads = heads, .head_dim = d, .rope_dim = config_.qk_rope_head_dim, .rope = rope(layer), .x = w_.q});
  linear(w_.u_q8, weights.wkv, d, config_.hidden_size, w_.kv);
  ops_.window_rows(stream_, {.num_rows = num_rows(),
                             .head_dim = d,
                             .rope_dim = config_.qk_rope_head_dim,
                             .x = w_.kv,
                             .weight = weights.kv_norm,
                             .norm_eps = config_.rms_norm_eps,
                             .rope = rope(layer),
                             .own = w_.own});
  if (config_.is_index_source(layer)) {
    select(layer);
  }
  attend(layer);
  const std::int32_t group_width = heads / config_.o_groups * d;
  ops_.linear_q8(stream_, {.num_rows = num_rows(),
                           .n = config_.o_lora_rank,
                           .k = group_width,
                           .groups = config_.o_groups,
                           .x = w_.o_q8,
                           .weight = weights.wo_a,
                           .y = w_.z});
  const std::int32_t z_width = config_.o_groups * config_.o_lora_rank;
  ops_.quantise(stream_, {.num_rows = num_rows(), .width = z_width, .x = w_.z, .q8 = w_.z_q8});
  linear(w_.z_q8, weights.wo_b, config_.hidden_size, z_width, w_.y);
}

void ForwardPass::select(std::int32_t layer) {
  const IndexerWeights& weights = context_.weights.layers[static_cast<std::size_t>(layer)].attn.indexer;
  const SourceCache& source = context_.caches.sources.at(config_.kv_source(layer));
  linear(w_.qr_q8, weights.wq_b, config_.index_n_heads * config_.index_head_dim, config_.q_lora_rank, w_.index_query);
  ops_.linear_bf16(stream_, {.num_rows = num_rows(),
                             .n = config_.index_n_heads,
                             .k = config_.hidden_size,
                             .x = w_.u,
                             .row_index = nullptr,
                             .weight = weights.weights_proj,
                             .y_f32 = nullptr,
                             .y_bf16 = w_.index_weight});
  CandidateMode mode = CandidateMode::none;
  if (config_.is_candidate_source(layer)) {
    mode = CandidateMode::produce;
  } else if (config_.uses_candidates(layer)) {
    mode = CandidateMode::restrict;
  }
  ops_.index_select(stream_, {.rows = rows_->rows,
                              .chunks = rows_->chunks,
                              .heads = config_.index_n_heads,
                              .index_dim = config_.index_head_dim,
                              .rope_dim = config_.qk_rope_head_dim,
                              .ratio = source.ratio,
                              .rows_per_block = source.rows_per_block,
                              .top_k = config_.index_topk,
                              .q = w_.index_query,
                              .head_weight = w_.index_weight,
                              .rope = rope(layer),
                              .keys = source.index_keys,
                              .list = w_.list,
                              .candidate_mode = mode,
                              .candidate_block_size = config_.candidate_block_size,
                              .candidate_top_blocks = config_.candidate_topk_blocks,
                              .candidates = w_.candidates});
}

void ForwardPass::attend(std::int32_t layer) {
  const bool is_compressed = config_.ratio(layer) > 0;
  const SourceCache source = is_compressed ? context_.caches.sources.at(config_.kv_source(layer)) : SourceCache{};
  std::uint8_t* ring = context_.caches.rings[static_cast<std::size_t>(layer)];
  ops_.attend(stream_, {.rows = rows_->rows,
                        .chunks = rows_->chunks,
                        .heads = config_.num_attention_heads,
                        .head_dim = config_.head_dim,
                        .rope_dim = config_.qk_rope_head_dim,
                        .ring_rows = context_.caches.ring_rows,
                        .q = w_.q,
                        .own = w_.own,
                        .ring = ring,
                        .window_low = rows_->window_low,
                        .window_high = rows_->window_high,
                        .list = is_compressed ? w_.list : nullptr,
                        .top_k = is_compressed ? config_.index_topk : 0,
                        .ratio = source.ratio,
                        .rows_per_block = source.rows_per_block,
                        .compressed = source.compressed,
                        .sink = context_.weights.layers[static_cast<std::size_t>(layer)].attn.sink,
                        .rope = rope(layer),
                        .o = nullptr,
                        .q8 = w_.o_q8});
  ops_.store_ring(stream_, {.chunks = rows_->chunks,
                            .record_bytes = window_record_bytes(config_.head_dim),
                            .ring_rows = context_.caches.ring_rows,
                            .stored_rows = rows_->stored_rows,
                            .own = w_.own,
                            .ring = ring});
}

void ForwardPass::moe(std::int32_t layer) {
  const FfnWeights& weights = context_.weights.layers[static_cast<std::size_t>(layer)].ffn;
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
                       .is_image = nullptr,
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
                     .experts = weights.experts.data(),
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
