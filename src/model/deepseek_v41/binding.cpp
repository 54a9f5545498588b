#include "model/deepseek_v41/binding.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "model/deepseek_v41/memory_plan.h"

namespace deepinfer::model {

namespace {

/// Looks tensors up by name and makes them readable for the device.
class Binder {
 public:
  Binder(Device& device, const weights::Checkpoint& checkpoint, EngramTables engram_tables, std::vector<Buffer>& copies)
      : device_(device), stream_(device.make_stream()), checkpoint_(checkpoint), engram_tables_(engram_tables), copies_(copies) {
    check(engram_tables != EngramTables::on_disk || device.info().reads_host_memory, "only what reads host memory reads tables in files");
    // Copies lie in large pages, which small models are faster with, and weights of products in the order of the kernels, which every model
    // is faster with. What would take most of the memory stays in the mapped files, as it lies there.
    const bool in_place = device.info().reads_host_memory;
    reads_files_ = in_place && checkpoint.payload_bytes() > device.info().memory_bytes / (2 * kMemoryToRepack);
    reads_product_files_ = in_place && checkpoint.payload_bytes() > device.info().memory_bytes / kMemoryToRepack;
  }

  template <class T>
  const T* tensor(const std::string& name) {
    return static_cast<const T*>(place(name));
  }

  QuantWeight fp8(const std::string& name) { return quantised(name, WeightFormat::fp8); }
  QuantWeight fp4(const std::string& name) { return quantised(name, WeightFormat::fp4); }

  /// A weight of products.
  Bf16Weight product(const std::string& name) {
    const TensorView& view = find(name);
    const bf16* const rows = view.as<bf16>();
    if (reads_product_files_) {
      return {.values = rows, .layout = WeightLayout::rows};
    }
    auto* const to = static_cast<bf16*>(allocate(bf16_weight_bytes(view.shape[0], view.shape[1])));
    if (to == nullptr) {
      return {};
    }
    const auto n = static_cast<std::int32_t>(view.shape[0]);
    const auto k = static_cast<std::int32_t>(view.shape[1]);
    return device_.ops().place_bf16(*stream_, {.n = n, .k = k, .from = rows, .to = to});
  }

  /// Codes or scales of a table of Engram.
  const std::uint8_t* table(const std::string& name) {
    switch (engram_tables_) {
      case EngramTables::in_memory:
        return tensor<std::uint8_t>(name);
      case EngramTables::in_host_memory:
        return static_cast<const std::uint8_t*>(copy_to_host(find(name)));
      case EngramTables::on_disk:
        return find(name).as<std::uint8_t>();
    }
    std::unreachable();
  }

  /// `values` in device memory.
  template <class T>
  const T* array(const std::vector<T>& values) {
    const void* data = copy(values.data(), values.size() * sizeof(T));
    stream_->synchronize();  // `values` may go
    return static_cast<const T*>(data);
  }

  /// Bytes that did not fit; 0 when everything is bound.
  [[nodiscard]] std::size_t missing_bytes() const { return missing_bytes_; }
  /// The same of the host's memory.
  [[nodiscard]] std::size_t missing_host_bytes() const { return missing_host_bytes_; }
  void finish() { stream_->synchronize(); }

 private:
  QuantWeight quantised(const std::string& name, WeightFormat format) {
    const TensorView& codes = find(name + ".weight");
    const TensorView& scales = find(name + ".scale");
    QuantWeight out{.format = format, .codes = codes.as<std::uint8_t>(), .scales = scales.as<std::uint8_t>()};
    if (reads_product_files_) {
      return out;
    }
    auto* const placed_codes = static_cast<std::uint8_t*>(allocate(codes.size_bytes()));
    auto* const placed_scales = static_cast<std::uint8_t*>(allocate(scales.size_bytes()));
    if (placed_codes == nullptr || placed_scales == nullptr) {
      return {.format = format};
    }
    const auto n = static_cast<std::int32_t>(codes.shape[0]);
    const auto k = static_cast<std::int32_t>(codes.shape[1] * (format == WeightFormat::fp4 ? 2 : 1));
    out.layout = device_.ops().place_weight(*stream_, {.n = n, .k = k, .from = out, .codes = placed_codes, .scales = placed_scales});
    out.codes = placed_codes;
    out.scales = placed_scales;
    return out;
  }

  const TensorView& find(const std::string& name) const {
    const TensorView* view = checkpoint_.find(name);
    check(view != nullptr, "a validated checkpoint has every tensor of the inventory");
    return *view;
  }

  const void* place(const std::string& name) {
    const TensorView& view = find(name);
    if (reads_files_) {
      return view.data;  // aligned: the checkpoint sees to it
    }
    return copy(view.data, view.size_bytes());
  }

  const void* copy(const void* data, std::size_t size_bytes) {
    void* const out = allocate(size_bytes);
    if (out != nullptr) {
      stream_->copy(out, data, size_bytes);
    }
    return out;
  }

  const void* copy_to_host(const TensorView& view) {
    void* const out = keep(device_.allocate_host(view.size_bytes()), view.size_bytes(), missing_host_bytes_);
    if (out != nullptr) {
      std::memcpy(out, view.data, view.size_bytes());
    }
    return out;
  }

  void* allocate(std::size_t size_bytes) { return keep(device_.allocate(size_bytes), size_bytes, missing_bytes_); }

  void* keep(Buffer buffer, std::size_t size_bytes, std::size_t& missing_bytes) {
    if (buffer.data() == nullptr) {
      missing_bytes += size_bytes;
      return nullptr;
    }
    copies_.push_back(std::move(buffer));
    return copies_.back().data();
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  const weights::Checkpoint& checkpoint_;
  EngramTables engram_tables_;
  std::vector<Buffer>& copies_;
  std::size_t missing_bytes_ = 0;
  std::size_t missing_host_bytes_ = 0;
  bool reads_files_ = false;
  bool reads_product_files_ = false;
};

MixWeights bind_mix(Binder& bind, const std::string& prefix) {
  return {.fn = bind.tensor<float>(prefix + "_fn"),
          .base = bind.tensor<float>(prefix + "_base"),
          .scale = bind.tensor<float>(prefix + "_scale")};
}

AttentionWeights bind_attention(Binder& bind, const std::string& prefix, const Config& config, std::int32_t layer) {
  AttentionWeights out{.wq_a = bind.fp8(prefix + ".wq_a"),
                       .wq_b = bind.fp8(prefix + ".wq_b"),
                       .wkv = bind.fp8(prefix + ".wkv"),
                       .wo_a = bind.fp8(prefix + ".wo_a"),
                       .wo_b = bind.fp8(prefix + ".wo_b"),
                       .q_norm = bind.tensor<bf16>(prefix + ".q_norm.weight"),
                       .kv_norm = bind.tensor<bf16>(prefix + ".kv_norm.weight"),
                       .sink = bind.tensor<float>(prefix + ".attn_sink"),
                       .compressor = {},
                       .indexer = {}};
  if (config.is_kv_source(layer)) {
    out.compressor = {.wkv = bind.product(prefix + ".compressor.wkv.weight"),
                      .wgate = config.ratio(layer) == 2 ? bind.product(prefix + ".compressor.wgate.weight") : Bf16Weight{},
                      .norm = bind.tensor<bf16>(prefix + ".compressor.norm.weight"),
                      .wk = bind.product(prefix + ".indexer.wk.weight"),
                      .k_norm = bind.tensor<bf16>(prefix + ".indexer.k_norm.weight")};
  }
  if (config.is_index_source(layer)) {
    out.indexer = {.wq_b = bind.fp8(prefix + ".indexer.wq_b"), .weights_proj = bind.product(prefix + ".indexer.weights_proj.weight")};
  }
  return out;
}

FfnWeights bind_ffn(Binder& bind, const std::string& prefix, std::int32_t num_experts) {
  FfnWeights out{.gate = bind.product(prefix + ".gate.weight"),
                 .bias = bind.tensor<float>(prefix + ".gate.bias"),
                 .bias_image = bind.tensor<float>(prefix + ".gate.bias_vl"),
                 .experts = nullptr,
                 .shared = {}};
  std::vector<ExpertWeights> experts;
  for (std::int32_t expert = 0; expert < num_experts; ++expert) {
    const std::string name = prefix + ".experts." + std::to_string(expert);
    experts.push_back({.w1 = bind.fp4(name + ".w1"), .w3 = bind.fp4(name + ".w3"), .w2 = bind.fp4(name + ".w2")});
  }
  out.experts = bind.array(experts);
  const std::string shared = prefix + ".shared_experts";
  out.shared = {.w1 = bind.fp8(shared + ".w1"), .w3 = bind.fp8(shared + ".w3"), .w2 = bind.fp8(shared + ".w2")};
  return out;
}

/// `layer` counts drafter blocks behind the backbone; they are window-only and source nothing.
BlockWeights bind_block(Binder& bind, const std::string& prefix, const Config& config, std::int32_t layer) {
  return {.attn_mix = bind_mix(bind, prefix + ".hc_attn"),
          .ffn_mix = bind_mix(bind, prefix + ".hc_ffn"),
          .attn_norm = bind.tensor<bf16>(prefix + ".attn_norm.weight"),
          .ffn_norm = bind.tensor<bf16>(prefix + ".ffn_norm.weight"),
          .attn = bind_attention(bind, prefix + ".attn", config, layer),
          .ffn = bind_ffn(bind, prefix + ".ffn", config.num_experts(layer))};
}

EngramWeights bind_engram(Binder& bind, const std::string& prefix) {
  return {.codes = bind.table(prefix + ".embed.weight"),
          .scales = bind.table(prefix + ".embed.scale"),
          .wkv = bind.fp8(prefix + ".wkv"),
          .q_weight = bind.tensor<bf16>(prefix + ".q_weight"),
          .k_weight = bind.tensor<bf16>(prefix + ".k_weight")};
}

DrafterWeights bind_drafter(Binder& bind, const Config& config) {
  DrafterWeights out;
  const std::int32_t num_blocks = config.num_nextn_predict_layers;
  if (num_blocks == 0) {
    return out;
  }
  out.main_proj = bind.fp8("mtp.0.main_proj");
  out.main_norm = bind.tensor<bf16>("mtp.0.main_norm.weight");
  for (std::int32_t i = 0; i < num_blocks; ++i) {
    out.blocks.push_back(bind_block(bind, "mtp." + std::to_string(i), config, config.num_hidden_layers + i));
  }
  const std::string last = "mtp." + std::to_string(num_blocks - 1);
  out.norm = bind.tensor<bf16>(last + ".norm.weight");
  out.markov_embed = bind.tensor<bf16>(last + ".markov_head.embed.weight");
  out.markov_head = bind.product(last + ".markov_head.head.weight");
  out.confidence = bind.tensor<bf16>(last + ".confidence_head.proj.weight");
  return out;
}

AffineWeights bind_affine(Binder& bind, const std::string& name) {
  return {.weight = bind.product(name + ".weight"), .bias = bind.tensor<bf16>(name + ".bias")};
}

VisionWeights bind_vision(Binder& bind, const VisionConfig& config) {
  VisionWeights out{.patch_embed = bind_affine(bind, "vision.patch_embed.proj"),
                    .blocks = {},
                    .norm = bind.tensor<bf16>("vision.norm.weight"),
                    .aligner_in = bind_affine(bind, "aligner.w1"),
                    .aligner_out = bind_affine(bind, "aligner.w2"),
                    .start = bind.tensor<bf16>("image_start"),
                    .end = bind.tensor<bf16>("image_end"),
                    .newline = bind.tensor<bf16>("image_newline")};
  for (std::int32_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = "vision.blocks." + std::to_string(i);
    out.blocks.push_back({.norm1 = bind.tensor<bf16>(prefix + ".norm1.weight"),
                          .norm2 = bind.tensor<bf16>(prefix + ".norm2.weight"),
                          .wqkv = bind_affine(bind, prefix + ".attn.wqkv"),
                          .wo = bind_affine(bind, prefix + ".attn.wo"),
                          .w1 = bind.product(prefix + ".mlp.w1.weight"),
                          .w2 = bind.product(prefix + ".mlp.w2.weight")});
  }
  return out;
}

}  // namespace

Result<BoundModel> bind_weights(Device& device, std::shared_ptr<const weights::Checkpoint> checkpoint, const Config& config,
                                EngramTables engram_tables) {
  BoundModel out{.checkpoint = std::move(checkpoint), .copies = {}, .weights = {}};
  Binder bind(device, *out.checkpoint, engram_tables, out.copies);
  out.weights.embed = bind.tensor<bf16>("embed.weight");
  out.weights.head = bind.product("head.weight");
  out.weights.norm = bind.tensor<bf16>("norm.weight");
  for (std::int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    out.weights.layers.push_back(bind_block(bind, "layers." + std::to_string(layer), config, layer));
  }
  for (const std::int32_t layer : config.engram_layer_ids) {
    out.weights.engrams.push_back(bind_engram(bind, "layers." + std::to_string(layer) + ".engram"));
  }
  out.weights.drafter = bind_drafter(bind, config);
  if (config.vision) {
    out.weights.vision = bind_vision(bind, *config.vision);
  }
  bind.finish();
  if (bind.missing_bytes() > 0) {
    return fail(ErrorKind::exhausted, device.info().name + " has no room for the weights: " + std::to_string(bind.missing_bytes()) +
                                          " bytes are missing; use a smaller model or a device with more memory");
  }
  if (bind.missing_host_bytes() > 0) {
    return fail(ErrorKind::exhausted, "the host has no room for the Engram tables: " + std::to_string(bind.missing_host_bytes()) +
                                          " bytes that stay in memory are missing");
  }
  return out;
}

}  // namespace deepinfer::model
