// Attention of one layer (docs/spec/model.md 5.4): compressed rows and index keys of the kv sources, index lists, the core, the rings.
#include "model/deepseek_v41/forward.h"

namespace deepinfer::model {

void ForwardPass::write_global(std::int32_t layer) {
  const CompressorWeights& weights = block(layer).attn.compressor;
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

void ForwardPass::attention(std::int32_t layer) {
  const AttentionWeights& weights = block(layer).attn;
  const std::int32_t heads = config_.num_attention_heads;
  const std::int32_t d = config_.head_dim;
  context_.beside.wait_for(stream_);
  window_rows(layer, context_.beside);
  linear(stream_, w_.u_q8, weights.wq_a, config_.q_lora_rank, config_.hidden_size, w_.qa);
  ops_.rms_norm(stream_, {.num_rows = num_rows(),
                          .width = config_.q_lora_rank,
                          .x = w_.qa,
                          .x_stride = 0,
                          .weight = weights.q_norm,
                          .norm_eps = config_.rms_norm_eps,
                          .y = w_.qr,
                          .q8 = w_.qr_q8});
  if (config_.is_index_source(layer)) {
    context_.beside.wait_for(stream_);
    queries(layer, context_.beside);
    select(layer);
  } else {
    queries(layer, stream_);
  }
  stream_.wait_for(context_.beside);
  attend(layer);
  store_ring(layer);
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
  linear(stream_, w_.z_q8, weights.wo_b, config_.hidden_size, z_width, w_.y);
}

void ForwardPass::queries(std::int32_t layer, Stream& stream) {
  const std::int32_t heads = config_.num_attention_heads;
  const std::int32_t d = config_.head_dim;
  linear(stream, w_.qr_q8, block(layer).attn.wq_b, heads * d, config_.q_lora_rank, w_.q);
  ops_.rotate(stream,
              {.num_rows = num_rows(), .heads = heads, .head_dim = d, .rope_dim = config_.qk_rope_head_dim, .rope = rope(layer), .x = w_.q});
}

/// Rows of this step for the window, from the input of the sub-layer.
void ForwardPass::window_rows(std::int32_t layer, Stream& stream) {
  const AttentionWeights& weights = block(layer).attn;
  linear(stream, w_.u_q8, weights.wkv, config_.head_dim, config_.hidden_size, w_.kv);
  ops_.window_rows(stream, {.num_rows = num_rows(),
                             .head_dim = config_.head_dim,
                             .rope_dim = config_.qk_rope_head_dim,
                             .x = w_.kv,
                             .weight = weights.kv_norm,
                             .norm_eps = config_.rms_norm_eps,
                             .rope = rope(layer),
                             .own = w_.own});
}

void ForwardPass::store_ring(std::int32_t layer) {
  ops_.store_ring(stream_, {.chunks = rows_->chunks,
                            .record_bytes = window_record_bytes(config_.head_dim),
                            .ring_rows = context_.caches.ring_rows,
                            .stored_rows = rows_->stored_rows,
                            .own = w_.own,
                            .ring = context_.caches.rings[static_cast<std::size_t>(layer)]});
}

void ForwardPass::select(std::int32_t layer) {
  const IndexerWeights& weights = block(layer).attn.indexer;
  const SourceCache& source = context_.caches.sources.at(config_.kv_source(layer));
  linear(stream_, w_.qr_q8, weights.wq_b, config_.index_n_heads * config_.index_head_dim, config_.q_lora_rank, w_.index_query);
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
  ops_.attend(stream_, {.rows = rows_->rows,
                        .chunks = rows_->chunks,
                        .heads = config_.num_attention_heads,
                        .head_dim = config_.head_dim,
                        .rope_dim = config_.qk_rope_head_dim,
                        .ring_rows = context_.caches.ring_rows,
                        .q = w_.q,
                        .own = w_.own,
                        .ring = context_.caches.rings[static_cast<std::size_t>(layer)],
                        .window_low = rows_->window_low,
                        .window_high = rows_->window_high,
                        // Rows of a draft pass see the drafts before them besides the window.
                        .max_window = layer < config_.num_hidden_layers ? config_.sliding_window : context_.caches.ring_rows,
                        .list = is_compressed ? w_.list : nullptr,
                        .top_k = is_compressed ? config_.index_topk : 0,
                        .ratio = source.ratio,
                        .rows_per_block = source.rows_per_block,
                        .compressed = source.compressed,
                        .sink = block(layer).attn.sink,
                        .rope = rope(layer),
                        .o = nullptr,
                        .q8 = w_.o_q8});
}

}  // namespace deepinfer::model
