// Weights of the model as device pointers, layer by layer. Names and formats: docs/spec/model.md section 8.
// The checkpoint was validated before (inventory.h); a tensor that is missing here is a broken invariant.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"
#include "ops/ops.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"

namespace deepinfer::model {

/// Mixing coefficients of one sub-layer. fn [(2 + S) S, S D], base [(2 + S) S], scale [3], fp32.
struct MixWeights {
  const float* fn = nullptr;
  const float* base = nullptr;
  const float* scale = nullptr;
};

/// Present at kv sources. wgate only at ratio 2.
struct CompressorWeights {
  Bf16Weight wkv;                // [d, D]
  Bf16Weight wgate;              // [d, D]
  const bf16* norm = nullptr;    // [d]
  Bf16Weight wk;                 // [di, d] index key projection
  const bf16* k_norm = nullptr;  // [di]
};

/// Present at index sources.
struct IndexerWeights {
  QuantWeight wq_b;         // [Hi di, rq]
  Bf16Weight weights_proj;  // [Hi, D]
};

struct AttentionWeights {
  QuantWeight wq_a, wq_b, wkv, wo_a, wo_b;
  const bf16* q_norm = nullptr;
  const bf16* kv_norm = nullptr;
  const float* sink = nullptr;
  CompressorWeights compressor;
  IndexerWeights indexer;
};

struct FfnWeights {
  Bf16Weight gate;  // [E, D]
  const float* bias = nullptr;
  const float* bias_image = nullptr;
  const ExpertWeights* experts = nullptr;  // [E]
  ExpertWeights shared;
};

struct EngramWeights {
  const std::uint8_t* codes = nullptr;   // [rows, de]
  const std::uint8_t* scales = nullptr;  // [rows, de / 32]
  QuantWeight wkv;                       // [(S + 1) D, columns de]
  const bf16* q_weight = nullptr;        // [S, D]
  const bf16* k_weight = nullptr;        // [S, D]
};

/// One backbone layer or drafter block.
struct BlockWeights {
  MixWeights attn_mix, ffn_mix;
  const bf16* attn_norm = nullptr;
  const bf16* ffn_norm = nullptr;
  AttentionWeights attn;
  FfnWeights ffn;
};

struct DrafterWeights {
  QuantWeight main_proj;  // [D, taps D]
  const bf16* main_norm = nullptr;
  std::vector<BlockWeights> blocks;
  const bf16* norm = nullptr;
  const bf16* markov_embed = nullptr;  // [V, rank]
  Bf16Weight markov_head;              // [V, rank]
  const bf16* confidence = nullptr;    // [1, D + rank]
};

/// y = weight x + bias.
struct AffineWeights {
  Bf16Weight weight;
  const bf16* bias = nullptr;
};

/// W: width of the tower, I: inner width of its MLP.
struct VisionBlockWeights {
  const bf16* norm1 = nullptr;  // [W]
  const bf16* norm2 = nullptr;  // [W]
  AffineWeights wqkv;           // [3 W, W]
  AffineWeights wo;             // [W, W]
  Bf16Weight w1;                // [2 I, W] gate, then up
  Bf16Weight w2;                // [W, I]
};

struct VisionWeights {
  AffineWeights patch_embed;  // [W, 3 patch_size^2]
  std::vector<VisionBlockWeights> blocks;
  const bf16* norm = nullptr;             // [W]
  AffineWeights aligner_in, aligner_out;  // [D, W ratio^2], [D, D]
  const bf16* start = nullptr;            // [D]
  const bf16* end = nullptr;              // [D]
  const bf16* newline = nullptr;          // [D]
};

struct ModelWeights {
  const bf16* embed = nullptr;  // [V, D]
  Bf16Weight head;              // [V, D]
  const bf16* norm = nullptr;   // [D]
  std::vector<BlockWeights> layers;
  std::vector<EngramWeights> engrams;  // in the order of engram_layers
  DrafterWeights drafter;              // blocks empty when the model has none
  VisionWeights vision;                // blocks empty when the model has none
};

/// The bound weights and whatever keeps their memory alive.
struct BoundModel {
  std::shared_ptr<const weights::Checkpoint> checkpoint;
  std::vector<Buffer> copies;  ///< tensors that are not read where the files are mapped
  ModelWeights weights;
};

/// Binds every tensor. A device that reads host memory gets pointers into the mapping, any other device copies. Tables of Engram go straight
/// from the mapping to where they are wanted; on_disk is for devices that read host memory.
/// Errors: exhausted when the device or the host has no room.
[[nodiscard]] Result<BoundModel> bind_weights(Device& device, std::shared_ptr<const weights::Checkpoint> checkpoint, const Config& config,
                                              EngramTables engram_tables);

}  // namespace deepinfer::model
