// The numbers of a DeepSeek-V4.1 model, read from config.json and checked (docs/spec/model.md section 2), and what follows from them:
// the role of every layer (section 3) and the derived Engram table sizes (5.6.2). Fields carry the names of the JSON keys.
// Layers are counted from 0; the drafter blocks follow the backbone: drafter block i is layer num_hidden_layers + i.
// Not here: tensors (inventory.h), bytes (memory_plan.h), Engram multipliers and rows (engram_hash.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer::model {

/// YaRN (docs/spec/model.md 4.6): positions are stretched by `factor` beyond the original length.
struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  std::int32_t original_max_position_embeddings = 0;
};

struct VisionConfig {
  std::int32_t num_hidden_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_attention_heads = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t patch_size = 0;  ///< pixels per side
  double rope_theta = 0;
  std::int32_t downsample_ratio = 0;  ///< patches per side of one language token
  std::int32_t max_image_tokens = 0;
  std::int32_t min_pixels = 0;
  std::optional<double> max_wh_ratio;  ///< nullopt: no limit

  [[nodiscard]] std::int32_t head_dim() const { return hidden_size / num_attention_heads; }
  /// Values of one flattened RGB patch.
  [[nodiscard]] std::int32_t patch_values() const { return 3 * patch_size * patch_size; }
  /// Language tokens of the picture itself that an image can have at most: one row of them, beside a line break and the two ends.
  [[nodiscard]] std::int32_t max_cells() const { return max_image_tokens - 3; }
  [[nodiscard]] std::int32_t max_patches() const { return max_cells() * downsample_ratio * downsample_ratio; }
};

struct Config {
  std::int32_t bos_token_id = 0;
  std::int32_t eos_token_id = 0;
  std::int32_t pad_token_id = 0;
  std::int32_t image_token_id = 0;  ///< the caller checks that the tokenizer agrees

  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_hidden_layers = 0;         ///< backbone
  std::int32_t num_nextn_predict_layers = 0;  ///< drafter blocks; 0: no drafter
  std::int32_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  float swiglu_limit = 0;  ///< 0: no clamp

  std::int32_t num_attention_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t qk_rope_head_dim = 0;  ///< the last elements of a head rotate
  std::int32_t q_lora_rank = 0;
  std::int32_t o_lora_rank = 0;  ///< per output group
  std::int32_t o_groups = 0;
  std::int32_t sliding_window = 0;          ///< positions a query sees in its own layer, itself included
  double rope_theta = 0;                    ///< layers of ratio 0 and drafter
  double compress_rope_theta = 0;           ///< layers of ratio > 0
  std::optional<RopeScaling> rope_scaling;  ///< only layers of ratio > 0; nullopt: plain rotary there too

  std::vector<std::int32_t> compress_ratios;         ///< [num_hidden_layers + num_nextn_predict_layers], each 0, 1 or 2
  std::vector<std::int32_t> kv_source_layer_ids;     ///< increasing; these also write index keys
  std::vector<std::int32_t> index_source_layer_ids;  ///< increasing; contains kv_source_layer_ids
  std::int32_t index_n_heads = 0;
  std::int32_t index_head_dim = 0;
  std::int32_t index_topk = 0;
  std::optional<std::int32_t> candidate_source_layer_id;  ///< nullopt: no candidate restriction
  std::int32_t candidate_topk_blocks = 0;
  std::int32_t candidate_block_size = 0;  ///< compressed rows per candidate block
  bool use_fp4_sparse_kv = true;          ///< false: compressed rows are stored as MXFP8

  std::int32_t moe_intermediate_size = 0;  ///< inner width of every routed and shared expert
  std::int32_t n_routed_experts = 0;       ///< backbone; see num_experts()
  std::int32_t num_experts_per_tok = 0;    ///< backbone; see experts_per_token()
  float routed_scaling_factor = 0;

  std::int32_t hc_mult = 0;  ///< residual streams
  std::int32_t hc_sinkhorn_iters = 0;
  float hc_eps = 0;

  std::vector<std::int32_t> engram_layer_ids;       ///< increasing; empty: no Engram
  std::vector<std::int64_t> engram_num_embeddings;  ///< table rows per Engram layer, equal to the sums of engram_primes()
  std::int32_t engram_max_ngram_size = 0;
  std::int32_t engram_vocab_size = 0;  ///< where the prime search starts
  std::int32_t engram_n_heads = 0;
  std::int32_t engram_head_dim = 0;
  std::int32_t engram_pad_token_id = 0;
  std::int32_t engram_compressed_vocab_size = 0;  ///< the caller checks that the tokenizer's class map has as many classes

  std::int32_t dspark_block_size = 0;  ///< drafts per pass
  std::int32_t dspark_noise_token_id = 0;
  std::vector<std::int32_t> dspark_target_layer_ids;  ///< increasing; the inputs of these layers feed the drafter
  std::int32_t dspark_markov_rank = 0;
  std::int32_t dspark_n_routed_experts = 0;
  std::int32_t dspark_num_experts_per_tok = 0;

  std::optional<VisionConfig> vision;

  [[nodiscard]] bool has_drafter() const { return num_nextn_predict_layers > 0; }
  [[nodiscard]] std::int32_t num_taps() const { return static_cast<std::int32_t>(dspark_target_layer_ids.size()); }
  /// Backbone layers and drafter blocks.
  [[nodiscard]] std::int32_t num_all_layers() const { return num_hidden_layers + num_nextn_predict_layers; }
  /// Layers that keep a window ring; the drafter's do when there are drafts.
  [[nodiscard]] std::int32_t num_rings(std::int32_t max_drafts) const { return max_drafts > 0 ? num_all_layers() : num_hidden_layers; }
  [[nodiscard]] bool is_drafter(std::int32_t layer) const { return layer >= num_hidden_layers; }

  /// Tokens per compressed row: 0 (window only), 1 or 2.
  [[nodiscard]] std::int32_t ratio(std::int32_t layer) const;
  /// First layer of ratio 1: the decoder half starts here.
  [[nodiscard]] std::int32_t split_layer() const;
  [[nodiscard]] bool is_kv_source(std::int32_t layer) const;
  [[nodiscard]] bool is_index_source(std::int32_t layer) const;
  [[nodiscard]] bool is_candidate_source(std::int32_t layer) const;
  /// The layer whose compressed rows and index keys `layer` reads; its ratio must be > 0.
  [[nodiscard]] std::int32_t kv_source(std::int32_t layer) const;
  /// The layer whose index list `layer` uses; its ratio must be > 0.
  [[nodiscard]] std::int32_t index_source(std::int32_t layer) const;
  /// An index source that scores only rows inside the candidate blocks ("re-index" in docs/spec/model.md section 3).
  [[nodiscard]] bool uses_candidates(std::int32_t layer) const;
  /// Place of `layer` in engram_layer_ids or in dspark_target_layer_ids; nullopt when it is not there.
  [[nodiscard]] std::optional<std::int32_t> engram_place(std::int32_t layer) const;
  [[nodiscard]] std::optional<std::int32_t> tap_place(std::int32_t layer) const;
  /// Routed experts of a layer or drafter block, and how many of them a token visits.
  [[nodiscard]] std::int32_t num_experts(std::int32_t layer) const;
  [[nodiscard]] std::int32_t experts_per_token(std::int32_t layer) const;

  /// Table rows looked up per token and Engram layer: (max n - 1) * heads.
  [[nodiscard]] std::int32_t engram_lookups() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  /// Rows of the mixing matrices, (2 + S) * S: pre, post and the S x S matrix.
  [[nodiscard]] std::int32_t num_mixes() const { return (2 + hc_mult) * hc_mult; }
  /// Bounded replay (10.2) drops rows from the split layer on, so no Engram layer may follow it.
  [[nodiscard]] bool allows_bounded_replay() const;
};

/// Reads and checks DIRECTORY/config.json. One error lists every problem, each with its key, value and what is accepted.
/// Errors: not_found or io (the file), corrupt (no JSON), unsupported (a check of section 2 fails).
[[nodiscard]] Result<Config> load_config(const std::filesystem::path& directory);

/// The same for text and for parsed JSON. `origin` is what messages call the source.
[[nodiscard]] Result<Config> parse_config_text(std::string_view text, std::string_view origin);
[[nodiscard]] Result<Config> parse_config(const json::Value& root, std::string_view origin);

/// Table sizes of every Engram layer: the primes of (layer, n, head), n = 2 first (docs/spec/model.md 5.6.2).
/// Result [engram_layer_ids][engram_lookups()]; a row sums to the number of table rows.
[[nodiscard]] std::vector<std::vector<std::int32_t>> engram_primes(const Config& config);

}  // namespace deepinfer::model
