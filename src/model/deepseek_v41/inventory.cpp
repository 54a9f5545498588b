#include "model/deepseek_v41/inventory.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tensor/formats.h"

namespace deepinfer::model {

namespace {

std::int64_t blocks_of(std::int64_t elements) { return (elements + kWeightBlock - 1) / kWeightBlock; }

/// Appends tensors under a prefix and into a part.
class Inventory {
 public:
  explicit Inventory(const Config& config) : c_(config) {}

  std::vector<ExpectedTensor> build() && {
    top_level();
    for (std::int32_t layer = 0; layer < c_.num_hidden_layers; ++layer) {
      const std::string prefix = "layers." + std::to_string(layer);
      block(prefix, layer, WeightPart::backbone, WeightPart::routed_experts);
      if (const auto place = c_.engram_place(layer)) {
        engram(prefix + ".engram", c_.engram_num_embeddings[static_cast<std::size_t>(*place)]);
      }
    }
    if (c_.has_drafter()) {
      drafter();
    }
    if (c_.vision) {
      vision(*c_.vision);
    }
    return std::move(out_);
  }

 private:
  void add(std::string name, DType dtype, Shape shape) {
    out_.push_back({.tensor = {.name = std::move(name), .dtype = dtype, .shape = shape}, .part = part_});
  }
  void bf16(std::string name, Shape shape) { add(std::move(name), DType::bf16, shape); }
  /// A matrix of products.
  void bf16_product(std::string name, Shape shape) {
    bf16(std::move(name), shape);
    out_.back().is_bf16_product = true;
  }
  void f32(std::string name, Shape shape) { add(std::move(name), DType::f32, shape); }

  /// FP8 matrix [rows, columns] with one scale per 32 x 32 block.
  void f8(const std::string& name, std::int64_t rows, std::int64_t columns) {
    add(name + ".weight", DType::f8_e4m3, {rows, columns});
    add(name + ".scale", DType::f8_e8m0, {blocks_of(rows), blocks_of(columns)});
  }
  /// FP4 matrix [rows, columns], two codes per byte, with one scale per row and 32 columns.
  void fp4(const std::string& name, std::int64_t rows, std::int64_t columns) {
    add(name + ".weight", DType::i8, {rows, columns / 2});
    add(name + ".scale", DType::f8_e8m0, {rows, columns / kWeightBlock});
  }

  void top_level() {
    part_ = WeightPart::embedding_and_head;
    bf16("embed.weight", {c_.vocab_size, c_.hidden_size});
    bf16_product("head.weight", {c_.vocab_size, c_.hidden_size});
    bf16("norm.weight", {c_.hidden_size});
  }

  void block(const std::string& prefix, std::int32_t layer, WeightPart rest, WeightPart experts) {
    part_ = rest;
    attention(prefix + ".attn", layer);
    bf16(prefix + ".attn_norm.weight", {c_.hidden_size});
    bf16(prefix + ".ffn_norm.weight", {c_.hidden_size});
    for (const char* side : {".hc_attn", ".hc_ffn"}) {
      f32(prefix + side + "_fn", {c_.num_mixes(), std::int64_t{c_.hc_mult} * c_.hidden_size});
      f32(prefix + side + "_base", {c_.num_mixes()});
      f32(prefix + side + "_scale", {3});
    }
    moe(prefix + ".ffn", c_.num_experts(layer), experts);
  }

  void attention(const std::string& prefix, std::int32_t layer) {
    const std::int64_t width = std::int64_t{c_.num_attention_heads} * c_.head_dim;
    const std::int64_t inner = std::int64_t{c_.o_groups} * c_.o_lora_rank;
    f8(prefix + ".wq_a", c_.q_lora_rank, c_.hidden_size);
    bf16(prefix + ".q_norm.weight", {c_.q_lora_rank});
    f8(prefix + ".wq_b", width, c_.q_lora_rank);
    f8(prefix + ".wkv", c_.head_dim, c_.hidden_size);
    bf16(prefix + ".kv_norm.weight", {c_.head_dim});
    f32(prefix + ".attn_sink", {c_.num_attention_heads});
    f8(prefix + ".wo_a", inner, width / c_.o_groups);
    f8(prefix + ".wo_b", c_.hidden_size, inner);
    if (c_.is_kv_source(layer)) {
      compressor(prefix, c_.ratio(layer));
    }
    if (c_.is_index_source(layer)) {
      f8(prefix + ".indexer.wq_b", std::int64_t{c_.index_n_heads} * c_.index_head_dim, c_.q_lora_rank);
      bf16_product(prefix + ".indexer.weights_proj.weight", {c_.index_n_heads, c_.hidden_size});
    }
  }

  void compressor(const std::string& prefix, std::int32_t ratio) {
    bf16_product(prefix + ".compressor.wkv.weight", {c_.head_dim, c_.hidden_size});
    if (ratio > 1) {
      bf16_product(prefix + ".compressor.wgate.weight", {c_.head_dim, c_.hidden_size});
    }
    bf16(prefix + ".compressor.norm.weight", {c_.head_dim});
    bf16_product(prefix + ".indexer.wk.weight", {c_.index_head_dim, c_.head_dim});
    bf16(prefix + ".indexer.k_norm.weight", {c_.index_head_dim});
  }

  void moe(const std::string& prefix, std::int32_t num_experts, WeightPart experts) {
    const std::int32_t inner = c_.moe_intermediate_size;
    bf16_product(prefix + ".gate.weight", {num_experts, c_.hidden_size});
    f32(prefix + ".gate.bias", {num_experts});
    f32(prefix + ".gate.bias_vl", {num_experts});
    f8(prefix + ".shared_experts.w1", inner, c_.hidden_size);
    f8(prefix + ".shared_experts.w2", c_.hidden_size, inner);
    f8(prefix + ".shared_experts.w3", inner, c_.hidden_size);
    const WeightPart rest = std::exchange(part_, experts);
    for (std::int32_t expert = 0; expert < num_experts; ++expert) {
      const std::string name = prefix + ".experts." + std::to_string(expert);
      fp4(name + ".w1", inner, c_.hidden_size);
      fp4(name + ".w2", c_.hidden_size, inner);
      fp4(name + ".w3", inner, c_.hidden_size);
    }
    part_ = rest;
  }

  void engram(const std::string& prefix, std::int64_t rows) {
    part_ = WeightPart::engram_tables;
    add(prefix + ".embed.weight", DType::f8_e4m3, {rows, c_.engram_head_dim});
    add(prefix + ".embed.scale", DType::f8_e8m0, {rows, c_.engram_head_dim / kWeightBlock});
    part_ = WeightPart::engram_projections;
    f8(prefix + ".wkv", (std::int64_t{c_.hc_mult} + 1) * c_.hidden_size, std::int64_t{c_.engram_lookups()} * c_.engram_head_dim);
    bf16(prefix + ".q_weight", {c_.hc_mult, c_.hidden_size});
    bf16(prefix + ".k_weight", {c_.hc_mult, c_.hidden_size});
  }

  void drafter() {
    part_ = WeightPart::drafter_rest;
    f8("mtp.0.main_proj", c_.hidden_size, static_cast<std::int64_t>(c_.dspark_target_layer_ids.size()) * c_.hidden_size);
    bf16("mtp.0.main_norm.weight", {c_.hidden_size});
    for (std::int32_t i = 0; i < c_.num_nextn_predict_layers; ++i) {
      block("mtp." + std::to_string(i), c_.num_hidden_layers + i, WeightPart::drafter_rest, WeightPart::drafter_experts);
    }
    const std::string last = "mtp." + std::to_string(c_.num_nextn_predict_layers - 1);
    bf16(last + ".norm.weight", {c_.hidden_size});
    bf16(last + ".markov_head.embed.weight", {c_.vocab_size, c_.dspark_markov_rank});
    bf16_product(last + ".markov_head.head.weight", {c_.vocab_size, c_.dspark_markov_rank});
    bf16(last + ".confidence_head.proj.weight", {1, std::int64_t{c_.hidden_size} + c_.dspark_markov_rank});
  }

  void affine(const std::string& name, std::int64_t rows, std::int64_t columns) {
    bf16_product(name + ".weight", {rows, columns});
    bf16(name + ".bias", {rows});
  }

  void vision(const VisionConfig& v) {
    part_ = WeightPart::vision;
    const std::int64_t width = v.hidden_size;
    affine("vision.patch_embed.proj", width, v.patch_values());
    for (std::int32_t i = 0; i < v.num_hidden_layers; ++i) {
      const std::string prefix = "vision.blocks." + std::to_string(i);
      bf16(prefix + ".norm1.weight", {width});
      bf16(prefix + ".norm2.weight", {width});
      affine(prefix + ".attn.wqkv", 3 * width, width);
      affine(prefix + ".attn.wo", width, width);
      bf16_product(prefix + ".mlp.w1.weight", {2 * std::int64_t{v.intermediate_size}, width});
      bf16_product(prefix + ".mlp.w2.weight", {width, v.intermediate_size});
    }
    bf16("vision.norm.weight", {width});
    affine("aligner.w1", c_.hidden_size, std::int64_t{v.downsample_ratio} * v.downsample_ratio * width);
    affine("aligner.w2", c_.hidden_size, c_.hidden_size);
    for (const char* name : {"image_start", "image_end", "image_newline"}) {
      bf16(name, {c_.hidden_size});
    }
  }

  const Config& c_;
  WeightPart part_ = WeightPart::backbone;
  std::vector<ExpectedTensor> out_;
};

/// Norms of hyper-connection inputs: the model has none, their weights belong into fn.
bool is_unfolded_norm(std::string_view name) {
  constexpr std::array<std::string_view, 3> kNorms = {"hc_attn_norm", "hc_ffn_norm", "hc_head_norm"};
  return std::ranges::any_of(kNorms, [name](std::string_view norm) { return name.find(norm) != std::string_view::npos; });
}

std::string expected_text(const weights::TensorDescription& tensor, const TensorView* found) {
  if (found == nullptr) {
    return tensor.name + " is missing, expected " + tensor.form() + ": fetch the checkpoint again or correct config.json";
  }
  const weights::TensorDescription other{.name = {}, .dtype = found->dtype, .shape = found->shape};
  return tensor.name + " is " + other.form() + ", expected " + tensor.form() + ": config.json and checkpoint do not belong together";
}

}  // namespace

std::string_view name_of(WeightPart part) {
  constexpr std::array<std::string_view, kNumWeightParts> kNames = {"routed experts",
                                                                    "backbone without experts, embedding, head",
                                                                    "embedding, final norm, head",
                                                                    "Engram tables and scales",
                                                                    "Engram projections and weights",
                                                                    "drafter experts",
                                                                    "drafter without experts",
                                                                    "vision and aligner"};
  return kNames[static_cast<std::size_t>(part)];
}

std::vector<ExpectedTensor> expected_tensors(const Config& config) { return Inventory(config).build(); }

PartSize InventorySizes::total() const {
  PartSize out;
  for (const PartSize& part : parts) {
    out.num_tensors += part.num_tensors;
    out.bytes += part.bytes;
    out.placed_bytes += part.placed_bytes;
  }
  return out;
}

InventorySizes inventory_sizes(const std::vector<ExpectedTensor>& tensors) {
  InventorySizes out{};
  for (const ExpectedTensor& expected : tensors) {
    PartSize& part = out.parts[static_cast<std::size_t>(expected.part)];
    ++part.num_tensors;
    part.bytes += expected.tensor.size_bytes();
    const DType dtype = expected.tensor.dtype;
    const bool is_quantised = dtype == DType::f8_e4m3 || dtype == DType::i8 || dtype == DType::f8_e8m0;
    const bool is_placed = expected.is_bf16_product || (is_quantised && expected.part != WeightPart::engram_tables);
    part.placed_bytes += is_placed ? expected.tensor.size_bytes() : 0;
  }
  return out;
}

CheckpointFindings validate_checkpoint(const Config& config, const weights::Checkpoint& checkpoint) {
  CheckpointFindings out;
  std::unordered_set<const TensorView*> known;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const TensorView* found = checkpoint.find(expected.tensor.name);
    if (found == nullptr || found->dtype != expected.tensor.dtype || found->shape != expected.tensor.shape) {
      out.problems.add(expected_text(expected.tensor, found));
    }
    known.insert(found);
  }
  std::size_t num_unknown = 0;
  std::string example;
  for (const weights::StoredTensor& stored : checkpoint.tensors()) {
    if (is_unfolded_norm(stored.name)) {
      out.problems.add(stored.name + " is not part of this model: fold it into the hyper-connection's fn and remove it");
    } else if (!known.contains(&stored.view)) {
      example = num_unknown == 0 ? stored.name : example;
      ++num_unknown;
    }
  }
  if (num_unknown > 0) {
    out.warnings.push_back("unknown tensors are ignored: " + std::to_string(num_unknown) + ", the first is " + example);
  }
  return out;
}

}  // namespace deepinfer::model
