#include "model/deepseek_v41/memory_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "model/deepseek_v41/token_draws.h"
#include "model/deepseek_v41/vision.h"
#include "ops/ops.h"
#include "tensor/formats.h"

namespace deepinfer::model {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Q8 codes and scales of one row.
std::size_t q8_bytes(std::int64_t width) { return size(width + width / kQ8Group); }

/// Activations of one row, in the order of workspace.h.
std::size_t row_bytes(const Config& c) {
  constexpr std::size_t kFloat = sizeof(float);
  constexpr std::size_t kHalf = sizeof(bf16);
  constexpr std::size_t kIndex = sizeof(std::int32_t);
  const std::int64_t streams = c.hc_mult;
  const std::int64_t hidden = c.hidden_size;
  const std::int64_t heads = std::int64_t{c.num_attention_heads} * c.head_dim;
  const std::int64_t inner = std::int64_t{c.o_groups} * c.o_lora_rank;
  const std::int64_t index_heads = std::int64_t{c.index_n_heads} * c.index_head_dim;
  const std::int64_t engram = std::int64_t{c.engram_lookups()} * c.engram_head_dim;

  const std::size_t streams_bytes = 2 * kHalf * size(streams * hidden) + kFloat * size(5 * streams + streams * streams);
  const std::size_t sublayer_bytes = (c.vision ? 3 : 2) * kHalf * size(hidden) + q8_bytes(hidden);
  const std::size_t attention_bytes = 2 * kHalf * size(c.q_lora_rank) + q8_bytes(c.q_lora_rank) + kHalf * size(heads + c.head_dim) +
                                      size(window_record_bytes(c.head_dim)) + q8_bytes(heads) + kHalf * size(inner) + q8_bytes(inner);
  const std::size_t compressor_bytes = (2 * kFloat + 2 * kHalf) * size(c.head_dim);
  const std::size_t indexer_bytes =
      kHalf * size(c.index_head_dim + index_heads + c.index_n_heads) + kIndex * size(std::int64_t{c.index_topk} + c.candidate_topk_blocks);
  const std::size_t expert_bytes = (kIndex + kFloat) * size(std::max(c.num_experts_per_tok, c.dspark_num_experts_per_tok));
  const std::size_t engram_bytes =
      c.engram_layer_ids.empty() ? 0 : c.engram_layer_ids.size() * q8_bytes(engram) + kHalf * size((streams + 1) * hidden);
  const std::size_t rotary_bytes = 3 * kFloat * size(c.qk_rope_head_dim);
  return streams_bytes + sublayer_bytes + attention_bytes + compressor_bytes + indexer_bytes + expert_bytes + engram_bytes + rotary_bytes;
}

/// Items of rank `rank.rank` when `count` are dealt evenly, the remainder to the first ranks.
std::int64_t share(std::int64_t count, Rank rank) { return count / rank.num_ranks + (rank.rank < count % rank.num_ranks ? 1 : 0); }

void scale_experts(PartSize& part, std::int32_t num_experts, Rank rank) {
  if (num_experts > 0) {
    const std::size_t mine = size(share(num_experts, rank));
    const auto of_mine = [&](std::size_t all) { return all / size(num_experts) * mine; };
    part = {.num_tensors = of_mine(part.num_tensors), .bytes = of_mine(part.bytes), .placed_bytes = of_mine(part.placed_bytes)};
  }
}

/// The first limit that makes no sense, as a sentence; empty when all do.
std::string bad_limit(const Config& config, const MemoryLimits& limits) {
  const auto must = [](const char* name, std::int64_t value, const std::string& rule) {
    return std::string(name) + " is " + std::to_string(value) + ", it must be " + rule;
  };
  if (limits.max_requests < 1) {
    return must("max_requests", limits.max_requests, "at least 1");
  }
  if (limits.num_prefix_states < 0) {
    return must("num_prefix_states", limits.num_prefix_states, "at least 0");
  }
  if (limits.max_drafts < 0 || limits.max_drafts > config.dspark_block_size) {
    return must("max_drafts", limits.max_drafts, "in 0 … " + std::to_string(config.dspark_block_size) + ", the trained block");
  }
  const std::int64_t rows_of_a_step = std::int64_t{limits.max_requests} * (1 + limits.max_drafts);
  if (limits.max_batched_tokens < rows_of_a_step) {
    return must("max_batched_tokens", limits.max_batched_tokens,
                "at least max_requests times (1 + max_drafts), " + std::to_string(rows_of_a_step));
  }
  if (limits.max_model_len < 0 || limits.max_model_len > config.max_position_embeddings) {
    return must("max_model_len", limits.max_model_len, "in 1 … " + std::to_string(config.max_position_embeddings));
  }
  if (limits.rank.num_ranks < 1 || limits.rank.rank < 0 || limits.rank.rank >= limits.rank.num_ranks) {
    return must("rank", limits.rank.rank, "below the number of ranks, " + std::to_string(limits.rank.num_ranks));
  }
  return {};
}

/// Bytes for blocks; exhausted when what comes first does not even fit.
Result<std::size_t> block_budget(const MemoryPlan& plan, const MemoryLimits& limits) {
  if (limits.memory_bytes == 0) {
    const std::size_t blocks = size(limits.max_requests) * size(plan.sizes.max_blocks_per_request) + 1;
    return limits.kv_memory_bytes != 0 ? limits.kv_memory_bytes : blocks * plan.cache.per_block();
  }
  const std::size_t fixed = plan.weight_bytes + plan.slot_bytes + plan.workspace_bytes;
  if (fixed > limits.memory_bytes || limits.kv_memory_bytes > limits.memory_bytes - fixed) {
    return fail(ErrorKind::exhausted, "weights (" + std::to_string(plan.weight_bytes) + " bytes), states of requests (" +
                                          std::to_string(plan.slot_bytes) + "), activations (" + std::to_string(plan.workspace_bytes) +
                                          ") and blocks (" + std::to_string(limits.kv_memory_bytes) + ") need more than the " +
                                          std::to_string(limits.memory_bytes) +
                                          " bytes of memory: lower max_requests or max_batched_tokens, or use more devices");
  }
  return limits.kv_memory_bytes != 0 ? limits.kv_memory_bytes : limits.memory_bytes - fixed;
}

}  // namespace

std::size_t CacheBytes::per_token() const { return per_block() / size(kBlockPositions); }

CacheBytes cache_bytes(const Config& config, std::int32_t max_drafts) {
  CacheBytes out;
  for (const std::int32_t layer : config.kv_source_layer_ids) {
    const std::size_t rows = size(kBlockPositions / config.ratio(layer));
    // MXFP8 rows have the form of window rows.
    const std::int32_t record = config.use_fp4_sparse_kv ? compressed_record_bytes(config.head_dim) : window_record_bytes(config.head_dim);
    out.compressed_rows += rows * size(record);
    out.index_keys += rows * size(index_key_bytes(config.index_head_dim));
    if (config.ratio(layer) > 1) {
      // Ring of r + B - 1 rows with B = drafts + 1; a row is score and value, fp32 (9.2).
      out.compressor_tail = size(config.ratio(layer) + max_drafts) * 2 * size(config.head_dim) * sizeof(float);
      out.compressor_tails += out.compressor_tail;
    }
  }
  out.window_ring = size(config.sliding_window + max_drafts + 1) * size(window_record_bytes(config.head_dim));
  out.window_rings = out.window_ring * size(config.num_rings(max_drafts));
  return out;
}

std::size_t workspace_bytes(const Config& config, const CacheSizes& sizes) {
  const std::size_t logit_row_bytes = size(config.vocab_size) * sizeof(float) + token_draw_bytes(config.vocab_size);
  std::size_t out = size(sizes.max_rows) * row_bytes(config) + size(sizes.max_logit_rows) * logit_row_bytes + vision_bytes(config);
  if (sizes.max_drafts > 0) {
    const std::int64_t taps = std::int64_t{config.num_taps()} * config.hidden_size;
    out += size(sizes.max_rows) * (sizeof(bf16) * size(taps) + q8_bytes(taps));
    out += size(sizes.max_chunks) * sizeof(float) * size(std::int64_t{config.vocab_size} + 3 * sizes.max_drafts + 1);
  }
  return out;
}

InventorySizes rank_sizes(const Config& config, Rank rank) {
  InventorySizes out = inventory_sizes(expected_tensors(config));
  const auto part = [&out](WeightPart which) -> PartSize& { return out.parts[static_cast<std::size_t>(which)]; };
  scale_experts(part(WeightPart::routed_experts), config.n_routed_experts, rank);
  scale_experts(part(WeightPart::drafter_experts), config.dspark_n_routed_experts, rank);
  std::size_t table_bytes = 0;
  for (const std::int64_t rows : config.engram_num_embeddings) {
    table_bytes += size(share(rows, rank)) * q8_bytes(config.engram_head_dim);
  }
  part(WeightPart::engram_tables).bytes = table_bytes;
  return out;
}

std::int64_t MemoryPlan::capacity_tokens() const { return std::int64_t{sizes.num_blocks - 1} * kBlockPositions; }

Result<MemoryPlan> plan_memory(const Config& config, const MemoryLimits& limits) {
  if (const std::string sentence = bad_limit(config, limits); !sentence.empty()) {
    return fail(ErrorKind::invalid_argument, sentence);
  }
  const std::int32_t max_model_len = limits.max_model_len == 0 ? config.max_position_embeddings : limits.max_model_len;
  MemoryPlan out;
  out.weights = rank_sizes(config, limits.rank);
  out.cache = cache_bytes(config, limits.max_drafts);
  out.sizes = {.num_blocks = 0,
               .num_slots = limits.max_requests + limits.num_prefix_states + 1,  // slot 0 is padding
               .max_rows = limits.max_batched_tokens,
               .max_chunks = limits.max_requests,
               .max_logit_rows = limits.max_requests * (1 + limits.max_drafts),
               .max_blocks_per_request = (max_model_len - 1) / kBlockPositions + 1,
               .max_drafts = limits.max_drafts};
  const std::size_t table_bytes = out.weights[WeightPart::engram_tables].bytes;
  out.engram_tables = limits.engram_tables;
  out.repacked_bytes = out.weights.total().placed_bytes;
  out.weight_bytes = out.weights.total().bytes - (limits.engram_tables == EngramTables::in_memory ? 0 : table_bytes);
  out.host_bytes = limits.engram_tables == EngramTables::in_host_memory ? table_bytes : 0;
  if (limits.host_memory_bytes != 0 && out.host_bytes > limits.host_memory_bytes) {
    return fail(ErrorKind::exhausted, "the Engram tables (" + std::to_string(out.host_bytes) + " bytes) need more than the " +
                                          std::to_string(limits.host_memory_bytes) +
                                          " bytes that are free in host memory: free some, or use more machines");
  }
  out.slot_bytes = size(out.sizes.num_slots) * out.cache.per_slot();
  out.workspace_bytes = workspace_bytes(config, out.sizes);

  const Result<std::size_t> budget = block_budget(out, limits);
  if (!budget) {
    return std::unexpected(budget.error());
  }
  const std::size_t most = size(std::numeric_limits<std::int32_t>::max());
  out.sizes.num_blocks = static_cast<std::int32_t>(std::min(*budget / out.cache.per_block(), most));
  out.block_bytes = size(out.sizes.num_blocks) * out.cache.per_block();
  if (out.sizes.num_blocks - 1 < out.sizes.max_blocks_per_request) {
    const std::size_t needed = size(out.sizes.max_blocks_per_request + 1) * out.cache.per_block();
    return fail(ErrorKind::exhausted, "a request of " + std::to_string(max_model_len) + " tokens needs " + std::to_string(needed) +
                                          " bytes of blocks, but there are only " + std::to_string(*budget) +
                                          ": give the cache more memory or lower max_model_len to " +
                                          std::to_string(std::max<std::int64_t>(0, out.capacity_tokens())));
  }
  return out;
}

}  // namespace deepinfer::model
