// The numbers of a DeepSeek-V4.1 model, read from config.json and checked (docs/model.md section 2), and what follows from them:
// the role of every layer (section 3) and the derived Engram table sizes (5.6.2).
// Layers are counted from 0; the drafter blocks follow the backbone: drafter block i is layer num_layers + i.
// Not here: tensors (inventory.h), bytes (memory_plan.h), hash multipliers and the class map (they need the tokenizer).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/result.h"

namespace deepinfer::model {

/// Rotary positions stretched by `factor` beyond `original_positions` (docs/model.md 4.6).
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  std::int32_t original_positions = 0;
};

/// Routed experts of one layer.
struct ExpertCounts {
  std::int32_t num_experts = 0;
  std::int32_t per_token = 0;
};

struct VisionConfig {
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_heads = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t patch_size = 0;  ///< pixels per side
  double rope_theta = 0;
  std::int32_t downsample_ratio = 0;  ///< patches per side of one language token
  std::int32_t max_image_tokens = 0;
  std::int32_t min_pixels = 0;
  std::optional<double> max_wh_ratio;  ///< nullopt: no limit

  [[nodiscard]] std::int32_t head_dim() const { return hidden_size / num_heads; }
  /// Values of one flattened RGB patch.
  [[nodiscard]] std::int32_t patch_values() const { return 3 * patch_size * patch_size; }
};

struct Config {
  TokenId bos_token;
  TokenId eos_token;
  TokenId pad_token;
  TokenId image_token;  ///< the caller checks that the tokenizer agrees

  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_layers = 0;          ///< backbone
  std::int32_t num_drafter_blocks = 0;  ///< DSpark; 0: no drafter
  std::int32_t max_positions = 0;
  float norm_eps = 0;
  float swiglu_limit = 0;  ///< 0: no clamp

  std::int32_t num_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t rope_dim = 0;  ///< the last rope_dim elements of a head rotate
  std::int32_t q_rank = 0;
  std::int32_t o_rank = 0;  ///< per output group
  std::int32_t num_output_groups = 0;
  std::int32_t window = 0;          ///< positions a query sees in its own layer, itself included
  double rope_theta = 0;            ///< ratio-0 layers and drafter
  double compress_rope_theta = 0;   ///< layers with ratio > 0
  std::optional<YarnScaling> yarn;  ///< only layers with ratio > 0; nullopt: plain rotary there too

  std::vector<std::int32_t> compress_ratios;      ///< [num_layers + num_drafter_blocks], each 0, 1 or 2
  std::vector<std::int32_t> kv_source_layers;     ///< increasing; these also write index keys
  std::vector<std::int32_t> index_source_layers;  ///< increasing; contains kv_source_layers
  std::int32_t index_num_heads = 0;
  std::int32_t index_head_dim = 0;
  std::int32_t index_topk = 0;
  std::optional<std::int32_t> candidate_source_layer;  ///< nullopt: no candidate restriction
  std::int32_t candidate_topk_blocks = 0;
  std::int32_t candidate_block_size = 0;  ///< compressed rows per candidate block
  bool fp4_compressed_rows = true;        ///< false: compressed rows are stored as MXFP8

  std::int32_t expert_size = 0;  ///< inner width of every routed and shared expert
  std::int32_t num_experts = 0;
  std::int32_t experts_per_token = 0;
  float routed_scaling_factor = 0;

  std::int32_t num_streams = 0;  ///< hyper-connections
  std::int32_t sinkhorn_iterations = 0;
  float hc_eps = 0;

  std::vector<std::int32_t> engram_layers;      ///< increasing; empty: no Engram
  std::vector<std::int64_t> engram_table_rows;  ///< per Engram layer
  std::int32_t engram_max_ngram = 0;
  std::int32_t engram_vocab_size = 0;  ///< where the prime search starts
  std::int32_t engram_num_heads = 0;
  std::int32_t engram_head_dim = 0;
  TokenId engram_pad_token;
  std::int32_t engram_num_classes = 0;  ///< the caller checks that the tokenizer's class map has as many

  std::int32_t draft_length = 0;  ///< tokens per drafter pass
  TokenId draft_noise_token;
  std::vector<std::int32_t> tap_layers;  ///< increasing; their inputs feed the drafter
  std::int32_t markov_rank = 0;
  std::int32_t drafter_num_experts = 0;
  std::int32_t drafter_experts_per_token = 0;

  std::optional<VisionConfig> vision;

  [[nodiscard]] bool has_drafter() const { return num_drafter_blocks > 0; }
  /// Backbone layers and drafter blocks.
  [[nodiscard]] std::int32_t num_all_layers() const { return num_layers + num_drafter_blocks; }

  /// Tokens per compressed row: 0 (window only), 1 or 2.
  [[nodiscard]] std::int32_t ratio(std::int32_t layer) const;
  /// First layer with ratio 1: the decoder half starts here.
  [[nodiscard]] std::int32_t split_layer() const;
  [[nodiscard]] bool is_kv_source(std::int32_t layer) const;
  [[nodiscard]] bool is_index_source(std::int32_t layer) const;
  [[nodiscard]] bool is_candidate_source(std::int32_t layer) const;
  /// Layer whose compressed rows and index keys `layer` reads; `layer` must have ratio > 0.
  [[nodiscard]] std::int32_t kv_source(std::int32_t layer) const;
  /// Layer whose index list `layer` uses; `layer` must have ratio > 0.
  [[nodiscard]] std::int32_t index_source(std::int32_t layer) const;
  /// An index source that scores only rows inside the candidate blocks.
  [[nodiscard]] bool uses_candidates(std::int32_t layer) const;
  /// Place of `layer` in engram_layers, or of a tap in tap_layers; nullopt when it is none.
  [[nodiscard]] std::optional<std::int32_t> engram_place(std::int32_t layer) const;
  [[nodiscard]] std::optional<std::int32_t> tap_place(std::int32_t layer) const;
  [[nodiscard]] ExpertCounts experts(std::int32_t layer) const;

  /// Table rows looked up per token and Engram layer: (max_ngram - 1) * heads.
  [[nodiscard]] std::int32_t engram_lookups() const { return (engram_max_ngram - 1) * engram_num_heads; }
  /// Width of the concatenated lookups of one token.
  [[nodiscard]] std::int32_t engram_width() const { return engram_lookups() * engram_head_dim; }
  /// Rows of the mixing matrices, (2 + S) * S: pre, post and the S x S matrix.
  [[nodiscard]] std::int32_t num_mixes() const { return (2 + num_streams) * num_streams; }
  /// Bounded replay (10.2) needs every Engram layer before the split layer.
  [[nodiscard]] bool allows_bounded_replay() const;
};

/// Reads and checks DIRECTORY/config.json. One error lists every problem, each with its key, value and what is accepted.
/// Errors: not_found/io (no file), corrupt (no JSON), unsupported (any check of section 2 fails).
[[nodiscard]] Result<Config> load_config(const std::filesystem::path& directory);

/// The same for text and for parsed JSON. `origin` is what messages call the source.
[[nodiscard]] Result<Config> parse_config(std::string_view text, std::string_view origin);
[[nodiscard]] Result<Config> parse_config(const json::Value& root, std::string_view origin);

/// Table sizes of every Engram layer: the primes of (layer, n, head), n-grams of 2 first (docs/model.md 5.6.2).
/// Result [engram_layers][lookups]; the sum of a row is the number of table rows.
[[nodiscard]] std::vector<std::vector<std::int32_t>> engram_primes(const Config& config);

}  // namespace deepinfer::model
