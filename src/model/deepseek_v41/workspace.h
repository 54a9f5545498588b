// Activations of one forward, allocated once for the largest step. Shapes in the comments; R = max_rows.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/deepseek_v41/config.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::model {

/// cos and sin that a kernel writes and others read.
struct RopeBuffer {
  float* cos = nullptr;  // [R, rope_dim / 2]
  float* sin = nullptr;  // [R, rope_dim / 2]
  [[nodiscard]] RopeTable table() const { return {.cos = cos, .sin = sin}; }
};

struct Workspace {
  // Residual streams and the coefficients that the next collapse uses. The second pair receives the kept rows (10.2).
  bf16* h = nullptr;             // [R, S, D]
  bf16* h_kept = nullptr;        // [R, S, D]
  float* pre = nullptr;          // [R, S]
  float* initial_pre = nullptr;  // [R, S] (1, 0, 0, …): what the first layer reads
  float* pre_kept = nullptr;     // [R, S]
  float* pre_attn = nullptr;     // [R, S] of the attention sub-layer, used by the FFN of the same layer
  float* post = nullptr;         // [R, S]
  float* comb = nullptr;         // [R, S, S]

  bf16* image_rows = nullptr;  // [R, D] embeddings of rows inside images; null for a model without vision

  bf16* u = nullptr;  // [R, D] sub-layer input
  Q8Rows u_q8;        // [R, D]
  bf16* y = nullptr;  // [R, D] sub-layer output

  bf16* qa = nullptr;           // [R, rq]
  bf16* qr = nullptr;           // [R, rq]
  Q8Rows qr_q8;                 // [R, rq]
  bf16* q = nullptr;            // [R, H, d]
  bf16* kv = nullptr;           // [R, d]
  std::uint8_t* own = nullptr;  // [R, window_record_bytes]
  Q8Rows o_q8;                  // [R, H d]
  bf16* z = nullptr;            // [R, G ro]
  Q8Rows z_q8;                  // [R, G ro]

  float* value = nullptr;              // [R, d] ratio 2
  float* gate = nullptr;               // [R, d] ratio 2
  bf16* pooled = nullptr;              // [R, d]
  bf16* latent = nullptr;              // [R, d]
  bf16* index_key = nullptr;           // [R, di]
  bf16* index_query = nullptr;         // [R, Hi, di]
  bf16* index_weight = nullptr;        // [R, Hi]
  std::int32_t* list = nullptr;        // [R, K]
  std::int32_t* candidates = nullptr;  // [R, candidate blocks]

  std::int32_t* expert = nullptr;  // [R, k]
  float* expert_weight = nullptr;  // [R, k]

  std::vector<Q8Rows> engram;  // [R, lookups * de] of each Engram layer
  bf16* engram_kv = nullptr;   // [R, S + 1, D]

  // Rotations: base of ratio-0 layers and of compressed layers at the rows' positions; compressed rows at ratio 2.
  RopeBuffer rope_plain, rope_compressed, rope_pairs;
  float* frequency_plain = nullptr;       // [rope_dim / 2]
  float* frequency_compressed = nullptr;  // [rope_dim / 2]

  float* logits = nullptr;  // [max logit rows, V]

  // Only with drafts (section 7); C = max_chunks, N = drafts.
  bf16* taps = nullptr;                 // [R, taps D]
  Q8Rows taps_q8;                       // [R, taps D]
  float* confidence = nullptr;          // [N C] in the order of the logits
  float* markov = nullptr;              // [C, V] bias by the token before
  float* markov_confidence = nullptr;   // [N, C] its part of the confidence
  std::int32_t* draft_token = nullptr;  // [1 + N, C] the anchors, then the drafts

  std::vector<Buffer> buffers;
};

[[nodiscard]] Result<Workspace> make_workspace(Device& device, const Config& config, const CacheSizes& sizes);

}  // namespace deepinfer::model
