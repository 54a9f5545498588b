#include "step_cost.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::bench {

namespace {

constexpr double kFp8Bytes = 1.0 + 1.0 / 1024;  // one scale per 32 x 32 block
constexpr double kFp4Bytes = 0.5 + 1.0 / 32;    // one scale per 32 columns
constexpr double kBf16Bytes = 2;
constexpr double kFp32Bytes = 4;

/// Weights of one backbone layer by format, and multiply-adds per row.
void add_layer(const model::Config& c, std::int32_t layer, const StepShape& s, Cost& cost) {
  const double hidden = c.hidden_size;
  const double heads_width = static_cast<double>(c.num_attention_heads) * c.head_dim;
  const double attention = hidden * c.q_lora_rank + c.q_lora_rank * heads_width + hidden * c.head_dim + heads_width * c.o_lora_rank +
                           static_cast<double>(c.o_groups) * c.o_lora_rank * hidden;
  const double expert = 3.0 * hidden * c.moe_intermediate_size;
  const double experts = c.n_routed_experts;
  const double touched = experts * (1 - std::pow(1 - c.num_experts_per_tok / experts, s.rows));
  const double mixing = 2.0 * c.num_mixes() * c.hc_mult * hidden;
  cost.bytes += (attention + expert) * kFp8Bytes + touched * expert * kFp4Bytes + experts * hidden * kBf16Bytes + mixing * kFp32Bytes;
  double multiply_adds = attention + (c.num_experts_per_tok + 1) * expert + experts * hidden + mixing +
                         2.0 * (c.hc_mult + c.hc_mult * (c.hc_mult + 1)) * hidden;

  const double ratio = c.ratio(layer);
  const double visible = ratio > 0 ? s.context / ratio : 0;
  const double keys = std::min<double>(c.sliding_window, s.context) + (ratio > 0 ? std::min<double>(c.index_topk, visible) : 0);
  multiply_adds += 2.0 * heads_width * keys;
  cost.bytes += s.requests * std::min<double>(c.sliding_window, s.context) * c.head_dim * (1 + 1.0 / 32);
  if (ratio > 0) {
    cost.bytes += s.requests * std::min<double>(c.index_topk, visible) * c.head_dim * (0.5 + 1.0 / 16);
  }
  if (c.is_index_source(layer)) {
    const double index_width = static_cast<double>(c.index_n_heads) * c.index_head_dim;
    cost.bytes += c.q_lora_rank * index_width * kFp8Bytes + c.index_n_heads * hidden * kBf16Bytes +
                  s.requests * visible * c.index_head_dim * (0.5 + 1.0 / 32);
    multiply_adds += c.q_lora_rank * index_width + c.index_n_heads * hidden + visible * index_width;
  }
  if (c.is_kv_source(layer)) {
    const double compressor = hidden * c.head_dim * (ratio == 2 ? 2 : 1) + static_cast<double>(c.head_dim) * c.index_head_dim;
    cost.bytes += compressor * kBf16Bytes;
    multiply_adds += compressor;
  }
  cost.flops += 2 * s.rows * multiply_adds;
}

}  // namespace

Cost step_cost(const model::Config& config, const StepShape& shape) {
  Cost cost;
  for (std::int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    add_layer(config, layer, shape, cost);
  }
  const double hidden = config.hidden_size;
  const double lookup = static_cast<double>(config.engram_lookups()) * config.engram_head_dim;
  for (std::size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    const double weights = lookup * (config.hc_mult + 1) * hidden;
    cost.bytes += weights * kFp8Bytes + shape.rows * lookup * (1 + 1.0 / 32);
    cost.flops += 2 * shape.rows * weights;
  }
  const double head = static_cast<double>(config.vocab_size) * hidden;
  cost.bytes += shape.logit_rows > 0 ? head * kBf16Bytes : 0;
  cost.flops += 2 * shape.logit_rows * head;
  return cost;
}

}  // namespace deepinfer::bench
