// Reading config.json: every check of docs/spec/model.md section 2.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/config_reader.h"
#include "weights/problems.h"

namespace deepinfer::model {

namespace {

using Bounds = ConfigReader::Bounds;
using NumberBounds = ConfigReader::NumberBounds;

// Upper bounds are far above any real model. They keep products of sizes inside
// 64 bits and work on hostile files bounded.
constexpr Bounds kWidth{1, 1 << 20};
constexpr Bounds kHeadWidth{1, 1 << 14};
constexpr Bounds kHeads{1, 1 << 12};
constexpr Bounds kLayers{1, 512};
constexpr Bounds kExperts{1, 1024};
constexpr Bounds kPositions{1, 1 << 30};
constexpr Bounds kVocabulary{1, 1 << 24};
constexpr NumberBounds kTheta{1, 1e12};
/// Smallest epsilon a float holds without going subnormal.
constexpr double kSmallestEps = 1.2e-38;

/// Quantised groups along an axis: 32 elements share one scale
/// (docs/spec/model.md 4.3, 8).
constexpr std::int32_t kGroup = 32;
constexpr std::string_view kMultipleOfGroup = "must be a multiple of 32";

/// A valid token id of the model.
Bounds token_bounds(const Config& config) { return {0, config.vocab_size - 1}; }

Bounds layer_bounds(const Config& config) { return {0, config.num_hidden_layers - 1}; }

bool is_increasing(const std::vector<std::int32_t>& ids) {
  return std::ranges::adjacent_find(ids, std::ranges::greater_equal{}) == ids.end();
}

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) { return std::ranges::find(ids, id) != ids.end(); }

void read_sizes(ConfigReader& in, Config& out) {
  out.vocab_size = in.count("vocab_size", kVocabulary);
  out.hidden_size = in.count("hidden_size", kWidth);
  in.require(out.hidden_size % kGroup == 0, "hidden_size", kMultipleOfGroup);
  out.num_hidden_layers = in.count("num_hidden_layers", kLayers);
  if (in.has("num_nextn_predict_layers")) {
    out.num_nextn_predict_layers = in.count("num_nextn_predict_layers", {0, 64});
  }
  out.max_position_embeddings = in.count("max_position_embeddings", kPositions);
  out.rms_norm_eps = static_cast<float>(in.number("rms_norm_eps", {kSmallestEps, 1}));
  in.expect("hidden_act", "silu");
  out.swiglu_limit = static_cast<float>(in.number("swiglu_limit", {0, 1e6}));
}

void read_rotary(ConfigReader& in, Config& out, weights::Problems& problems) {
  out.rope_theta = in.number("rope_theta", kTheta);
  out.compress_rope_theta = in.number("compress_rope_theta", kTheta);
  if (in.is_null("rope_scaling")) {
    return;
  }
  in.require(in.has("rope_scaling") && in.find("rope_scaling")->as_object() != nullptr, "rope_scaling", "must be null or an object");
  ConfigReader scaling(in.find("rope_scaling"), "text_config.rope_scaling.", problems);
  const bool is_spelled_otherwise = scaling.has("rope_type") && !scaling.has("type");
  scaling.expect(is_spelled_otherwise ? "rope_type" : "type", "yarn");
  RopeScaling& yarn = out.rope_scaling.emplace();
  yarn.factor = scaling.number("factor", {1, 1e6});
  yarn.beta_fast = scaling.number("beta_fast", {1e-6, 1e6});
  yarn.beta_slow = scaling.number("beta_slow", {1e-6, 1e6});
  yarn.original_max_position_embeddings = scaling.count("original_max_position_embeddings", kPositions);
}

void read_attention(ConfigReader& in, Config& out) {
  out.num_attention_heads = in.count("num_attention_heads", kHeads);
  in.expect("num_key_value_heads", 1);
  out.head_dim = in.count("head_dim", kHeadWidth);
  in.require(out.head_dim % kGroup == 0, "head_dim", kMultipleOfGroup);
  out.qk_rope_head_dim = in.count("qk_rope_head_dim", kHeadWidth);
  in.require(out.qk_rope_head_dim % 2 == 0, "qk_rope_head_dim", "must be even");
  in.require(out.qk_rope_head_dim <= out.head_dim, "qk_rope_head_dim", "must not exceed head_dim", {"head_dim"});
  out.q_lora_rank = in.count("q_lora_rank", kWidth);
  in.require(out.q_lora_rank % kGroup == 0, "q_lora_rank", kMultipleOfGroup);
  out.o_lora_rank = in.count("o_lora_rank", kHeadWidth);
  out.o_groups = in.count("o_groups", kHeads);
  in.require(out.num_attention_heads % out.o_groups == 0, "num_attention_heads", "must be a multiple of o_groups", {"o_groups"});
  in.require(out.o_groups * out.o_lora_rank % kGroup == 0, "o_lora_rank", "times o_groups must be a multiple of 32", {"o_groups"});
  in.expect("attention_bias", false);
  in.expect("attention_dropout", 0.0);
  out.sliding_window = in.count("sliding_window", kWidth);
}

void read_ratios(ConfigReader& in, Config& out) {
  out.compress_ratios = in.counts("compress_ratios", {0, 2});
  const auto num_layers = static_cast<std::size_t>(out.num_hidden_layers);
  in.require(out.compress_ratios.size() == static_cast<std::size_t>(out.num_all_layers()), "compress_ratios",
             "must have one entry for each of the " + std::to_string(out.num_hidden_layers) + " + " +
                 std::to_string(out.num_nextn_predict_layers) + " layers and drafter blocks");
  out.compress_ratios.resize(static_cast<std::size_t>(out.num_all_layers()));
  const auto backbone_end = out.compress_ratios.begin() + static_cast<std::ptrdiff_t>(num_layers);
  in.require(std::all_of(backbone_end, out.compress_ratios.end(), [](std::int32_t ratio) { return ratio == 0; }), "compress_ratios",
             "must be 0 for drafter blocks");
  in.require(std::find(out.compress_ratios.begin(), backbone_end, 1) != backbone_end, "compress_ratios",
             "must have a 1: the first one starts the decoder half");
}

/// Every layer from the first source on has its source's ratio; so the split
/// layer, the first of ratio 1, is a source itself.
void read_sources(ConfigReader& in, Config& out) {
  out.kv_source_layer_ids = in.counts("kv_source_layer_ids", layer_bounds(out));
  out.index_source_layer_ids = in.counts("index_source_layer_ids", layer_bounds(out));
  const std::vector<std::int32_t>& kv = out.kv_source_layer_ids;
  const std::vector<std::int32_t>& index = out.index_source_layer_ids;
  in.require(is_increasing(kv), "kv_source_layer_ids", "must be increasing");
  in.require(is_increasing(index), "index_source_layer_ids", "must be increasing");
  for (const std::int32_t id : kv) {
    in.require(contains(index, id), "kv_source_layer_ids", "layer " + std::to_string(id) + " must also be in index_source_layer_ids",
               {"index_source_layer_ids"});
  }
  if (in.has("index_k_source_layer_ids")) {
    in.require(in.counts("index_k_source_layer_ids", layer_bounds(out)) == kv, "index_k_source_layer_ids",
               "must equal kv_source_layer_ids: index keys come from the "
               "source's compressed rows",
               {"kv_source_layer_ids"});
  }
  std::optional<std::int32_t> source;
  for (std::int32_t layer = 0; layer < out.num_hidden_layers; ++layer) {
    source = contains(kv, layer) ? layer : source;
    const std::int32_t wanted = source ? out.compress_ratios[static_cast<std::size_t>(*source)] : 0;
    in.require(out.compress_ratios[static_cast<std::size_t>(layer)] == wanted && !(source && wanted == 0), "compress_ratios",
               "layer " + std::to_string(layer) +
                   (source ? " must have the ratio of its source " + std::to_string(*source) + ", above 0"
                           : " comes before every kv source and must have 0"),
               {"kv_source_layer_ids"});
    in.require(source || !contains(index, layer), "index_source_layer_ids",
               "layer " + std::to_string(layer) + " comes before every kv source and has no rows to select", {"kv_source_layer_ids"});
  }
}

void read_indexer(ConfigReader& in, Config& out) {
  out.index_n_heads = in.count("index_n_heads", kHeads);
  out.index_head_dim = in.count("index_head_dim", kHeadWidth);
  in.require(out.index_head_dim % kGroup == 0, "index_head_dim", kMultipleOfGroup);
  in.require(out.qk_rope_head_dim <= out.index_head_dim, "qk_rope_head_dim", "must not exceed index_head_dim", {"index_head_dim"});
  out.index_topk = in.count("index_topk", kWidth);
  if (in.is_null("candidate_source_layer_id")) {
    return;
  }
  out.candidate_source_layer_id = in.count("candidate_source_layer_id", layer_bounds(out));
  in.require(out.is_index_source(*out.candidate_source_layer_id), "candidate_source_layer_id",
             "must be null or one of index_source_layer_ids", {"index_source_layer_ids"});
  out.candidate_topk_blocks = in.count("candidate_topk_blocks", kWidth);
  in.require(out.candidate_topk_blocks % 8 == 0, "candidate_topk_blocks", "must be a multiple of 8");
  out.candidate_block_size = in.count("candidate_block_size", {1, 16});
  const std::int64_t num_candidates = static_cast<std::int64_t>(out.candidate_topk_blocks) * out.candidate_block_size;
  in.require(num_candidates >= out.index_topk, "candidate_topk_blocks", "times candidate_block_size must not be below index_topk",
             {"candidate_block_size", "index_topk"});
}

void read_experts(ConfigReader& in, Config& out) {
  out.moe_intermediate_size = in.count("moe_intermediate_size", kWidth);
  in.require(out.moe_intermediate_size % kGroup == 0, "moe_intermediate_size", kMultipleOfGroup);
  out.n_routed_experts = in.count("n_routed_experts", kExperts);
  in.expect("n_shared_experts", 1);
  out.num_experts_per_tok = in.count("num_experts_per_tok", kExperts);
  in.require(out.num_experts_per_tok <= out.n_routed_experts, "num_experts_per_tok", "must not exceed n_routed_experts",
             {"n_routed_experts"});
  in.expect("scoring_func", "sqrtsoftplus");
  in.expect("topk_method", "noaux_tc");
  in.expect("norm_topk_prob", true);
  out.routed_scaling_factor = static_cast<float>(in.number("routed_scaling_factor", {1e-6, 1e6}));
}

void read_hyper_connections(ConfigReader& in, Config& out) {
  out.hc_mult = in.count("hc_mult", {1, 64});
  out.hc_sinkhorn_iters = in.count("hc_sinkhorn_iters", {1, 1000});
  out.hc_eps = static_cast<float>(in.number("hc_eps", {kSmallestEps, 1}));
  if (in.has("hc_shifted")) {
    in.expect("hc_shifted", true);
  }
}

void read_engram(ConfigReader& in, Config& out) {
  out.engram_layer_ids = in.counts("engram_layer_ids", layer_bounds(out));
  in.require(is_increasing(out.engram_layer_ids), "engram_layer_ids", "must be increasing");
  if (out.engram_layer_ids.empty()) {
    return;
  }
  out.engram_max_ngram_size = in.count("engram_max_ngram_size", {2, 8});
  out.engram_vocab_size = in.count("engram_vocab_size", {1, 1 << 27});
  out.engram_n_heads = in.count("engram_n_heads", {1, 64});
  out.engram_head_dim = in.count("engram_head_dim", kHeadWidth);
  in.require(out.engram_head_dim % kGroup == 0, "engram_head_dim", kMultipleOfGroup);
  out.engram_pad_token_id = in.count("engram_pad_token_id", token_bounds(out));
  out.engram_compressed_vocab_size = in.count("engram_compressed_vocab_size", {1, out.vocab_size});
  out.engram_num_embeddings = in.integers("engram_num_embeddings", {1, std::numeric_limits<std::int32_t>::max()});

  constexpr std::size_t kMaxEngramLayers = 64;
  in.require(out.engram_layer_ids.size() <= kMaxEngramLayers, "engram_layer_ids", "must have at most 64 layers");
  if (out.engram_layer_ids.size() > kMaxEngramLayers) {
    return;
  }
  std::vector<std::int64_t> derived;
  for (const std::vector<std::int32_t>& primes : engram_primes(out)) {
    derived.push_back(std::accumulate(primes.begin(), primes.end(), std::int64_t{0}));
  }
  json::Array wanted(derived.begin(), derived.end());
  in.require(out.engram_num_embeddings == derived, "engram_num_embeddings",
             "must be " + json::to_text(std::move(wanted)) +
                 ", the table rows that follow from engram_vocab_size, "
                 "engram_n_heads and engram_max_ngram_size",
             {"engram_layer_ids", "engram_vocab_size", "engram_n_heads", "engram_max_ngram_size"});
}

void read_drafter(ConfigReader& in, Config& out) {
  if (!out.has_drafter()) {
    return;
  }
  out.dspark_block_size = in.count("dspark_block_size", {1, 64});
  out.dspark_noise_token_id = in.count("dspark_noise_token_id", token_bounds(out));
  out.dspark_target_layer_ids = in.counts("dspark_target_layer_ids", layer_bounds(out));
  const std::vector<std::int32_t>& taps = out.dspark_target_layer_ids;
  in.require(!taps.empty() && is_increasing(taps), "dspark_target_layer_ids", "must be increasing and have at least one layer");
  const auto split = std::ranges::find(out.compress_ratios, 1) - out.compress_ratios.begin();
  const auto is_before = [split](std::int32_t layer) { return layer < split; };
  in.require(std::ranges::all_of(taps, is_before) || std::ranges::none_of(taps, is_before), "dspark_target_layer_ids",
             "must all be on one side of the split layer " + std::to_string(split), {"compress_ratios"});
  if (in.has("dspark_target_attn_input")) {
    in.expect("dspark_target_attn_input", true);
  }
  out.dspark_markov_rank = in.count("dspark_markov_rank", kWidth);
  out.dspark_n_routed_experts = in.count("dspark_n_routed_experts", kExperts);
  out.dspark_num_experts_per_tok = in.count("dspark_num_experts_per_tok", kExperts);
  in.require(out.dspark_num_experts_per_tok <= out.dspark_n_routed_experts, "dspark_num_experts_per_tok",
             "must not exceed dspark_n_routed_experts", {"dspark_n_routed_experts"});
}

VisionConfig read_vision(ConfigReader& in) {
  VisionConfig out;
  out.num_hidden_layers = in.count("num_hidden_layers", kLayers);
  out.hidden_size = in.count("hidden_size", kWidth);
  out.num_attention_heads = in.count("num_attention_heads", kHeads);
  in.require(out.hidden_size % (4 * out.num_attention_heads) == 0, "hidden_size",
             "must be a multiple of 4 · num_attention_heads: rows and columns "
             "rotate half of a head each",
             {"num_attention_heads"});
  in.require(out.hidden_size % 16 == 0, "hidden_size", "must be a multiple of 16: norms sum in sixteen lanes");
  in.require(out.hidden_size <= 256 * out.num_attention_heads, "hidden_size",
             "must be at most 256 · num_attention_heads: kernels hold a head of that width", {"num_attention_heads"});
  out.intermediate_size = in.count("intermediate_size", kWidth);
  out.patch_size = in.count("patch_size", {1, 1 << 10});
  out.rope_theta = in.number("rope_theta", kTheta);
  out.downsample_ratio = in.count("downsample_ratio", {1, 64});
  out.max_image_tokens = in.count("max_image_tokens", {4, 1 << 20});
  out.min_pixels = in.count("min_pixels", {0, 1 << 30});
  if (in.has("max_wh_ratio") && !in.is_null("max_wh_ratio")) {
    out.max_wh_ratio = in.number("max_wh_ratio", {1, 1e9});
  }
  return out;
}

void read_top_level(ConfigReader& in, weights::Problems& problems) {
  in.expect("architectures", json::Array{"DeepseekV41ForCausalLM"});
  in.expect("model_type", "deepseek_v41");
  in.expect("dtype", "bfloat16");
  ConfigReader quantization(in.find("quantization_config"), "quantization_config.", problems);
  quantization.expect("quant_method", "fp8");
  quantization.expect("activation_scheme", "dynamic");
  quantization.expect("weight_block_size", json::Array{32, 32});
  quantization.expect("scale_fmt", "ue8m0");
  quantization.expect("expert_dtype", "fp4");
}

void read_token_ids(ConfigReader& in, Config& out) {
  out.bos_token_id = in.count("bos_token_id", token_bounds(out));
  out.eos_token_id = in.count("eos_token_id", token_bounds(out));
  out.pad_token_id = in.count("pad_token_id", token_bounds(out));
  out.image_token_id = in.count("image_token_id", {1, std::max(1, out.vocab_size - 1)});
}

}  // namespace

Result<Config> parse_config(const json::Value& root, std::string_view origin) {
  weights::Problems problems;
  Config out;
  ConfigReader top(&root, "", problems);
  read_top_level(top, problems);
  ConfigReader text(root.find("text_config"), "text_config.", problems);
  read_sizes(text, out);
  read_token_ids(top, out);
  read_attention(text, out);
  read_rotary(text, out, problems);
  read_ratios(text, out);
  read_sources(text, out);
  read_indexer(text, out);
  read_experts(text, out);
  read_hyper_connections(text, out);
  read_engram(text, out);
  read_drafter(text, out);
  for (ConfigReader* in : {&top, &text}) {
    if (in->has("tie_word_embeddings")) {
      in->expect("tie_word_embeddings", false);
    }
  }
  if (text.has("use_fp4_sparse_kv")) {
    out.use_fp4_sparse_kv = text.boolean("use_fp4_sparse_kv");
  }
  if (top.has("vision_config") && !top.is_null("vision_config")) {
    ConfigReader vision(root.find("vision_config"), "vision_config.", problems);
    out.vision = read_vision(vision);
  }
  if (!problems.empty()) {
    return problems.to_failure(ErrorKind::unsupported, origin);
  }
  return out;
}

Result<Config> parse_config_text(std::string_view text, std::string_view origin) {
  const Result<json::Value> root = json::parse(text, {.finite_numbers = true, .unique_keys = true});
  if (!root) {
    return fail(root.error(), origin);
  }
  return parse_config(*root, origin);
}

}  // namespace deepinfer::model
