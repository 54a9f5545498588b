#include "model/deepseek_v41/workspace.h"

#include <algorithm>
#include <utility>

#include "model/deepseek_v41/device_memory.h"
#include "model/deepseek_v41/rope_frequencies.h"

namespace deepinfer::model {

namespace {

Q8Rows take_q8(DeviceMemory& memory, std::size_t rows, std::int32_t width) {
  const auto elements = rows * static_cast<std::size_t>(width);
  return {.codes = memory.take<std::uint8_t>(elements), .scales = memory.take<std::uint8_t>(elements / kQ8Group)};
}

float* take_constant(DeviceMemory& memory, Stream& stream, const std::vector<float>& values) {
  float* out = memory.take<float>(values.size());
  if (out != nullptr) {
    stream.copy(out, values.data(), values.size() * sizeof(float));
    stream.synchronize();
  }
  return out;
}

/// Allocates the parts of attention and compression.
void take_attention(Workspace& out, DeviceMemory& memory, const Config& c, std::size_t rows) {
  const auto take = [&memory, rows](std::int32_t width) { return memory.take<bf16>(rows * static_cast<std::size_t>(width)); };
  const std::size_t d_rows = rows * static_cast<std::size_t>(c.head_dim);
  out.qa = take(c.q_lora_rank);
  out.qr = take(c.q_lora_rank);
  out.qr_q8 = take_q8(memory, rows, c.q_lora_rank);
  out.q = take(c.num_attention_heads * c.head_dim);
  out.kv = take(c.head_dim);
  out.own = memory.take<std::uint8_t>(rows * static_cast<std::size_t>(window_record_bytes(c.head_dim)));
  out.o_q8 = take_q8(memory, rows, c.num_attention_heads * c.head_dim);
  out.z = take(c.o_groups * c.o_lora_rank);
  out.z_q8 = take_q8(memory, rows, c.o_groups * c.o_lora_rank);
  out.value = memory.take<float>(d_rows);
  out.gate = memory.take<float>(d_rows);
  out.pooled = take(c.head_dim);
  out.latent = take(c.head_dim);
  out.index_key = take(c.index_head_dim);
  out.index_query = take(c.index_n_heads * c.index_head_dim);
  out.index_weight = take(c.index_n_heads);
  out.list = memory.take<std::int32_t>(rows * static_cast<std::size_t>(c.index_topk));
  out.candidates = memory.take<std::int32_t>(c.candidate_source_layer_id ? rows * static_cast<std::size_t>(c.candidate_topk_blocks) : 0);
}

}  // namespace

Result<Workspace> make_workspace(Device& device, const Config& c, const CacheSizes& sizes) {
  Workspace out;
  DeviceMemory memory(device);
  const auto rows = static_cast<std::size_t>(sizes.max_rows);
  const auto streams = static_cast<std::size_t>(c.hc_mult);
  const auto hidden = static_cast<std::size_t>(c.hidden_size);
  out.h = memory.take<bf16>(rows * streams * hidden);
  out.h_kept = memory.take<bf16>(rows * streams * hidden);
  out.pre = memory.take<float>(rows * streams);
  out.pre_kept = memory.take<float>(rows * streams);
  out.pre_attn = memory.take<float>(rows * streams);
  out.post = memory.take<float>(rows * streams);
  out.comb = memory.take<float>(rows * streams * streams);
  out.image_rows = memory.take<bf16>(c.vision ? rows * hidden : 0);
  out.u = memory.take<bf16>(rows * hidden);
  out.u_q8 = take_q8(memory, rows, c.hidden_size);
  out.y = memory.take<bf16>(rows * hidden);
  take_attention(out, memory, c, rows);

  const auto top_k = static_cast<std::size_t>(std::max(c.num_experts_per_tok, c.dspark_num_experts_per_tok));
  out.expert = memory.take<std::int32_t>(rows * top_k);
  out.expert_weight = memory.take<float>(rows * top_k);
  if (!c.engram_layer_ids.empty()) {
    for (std::size_t i = 0; i < c.engram_layer_ids.size(); ++i) {
      out.engram.push_back(take_q8(memory, rows, c.engram_lookups() * c.engram_head_dim));
    }
    out.engram_kv = memory.take<bf16>(rows * (streams + 1) * hidden);
  }
  const std::size_t angles = rows * static_cast<std::size_t>(c.qk_rope_head_dim / 2);
  for (RopeBuffer* rope : {&out.rope_plain, &out.rope_compressed, &out.rope_pairs}) {
    *rope = {.cos = memory.take<float>(angles), .sin = memory.take<float>(angles)};
  }
  const std::unique_ptr<Stream> stream = device.make_stream();
  out.frequency_plain = take_constant(memory, *stream, plain_frequencies(c));
  out.frequency_compressed = take_constant(memory, *stream, compressed_frequencies(c));
  std::vector<float> one_hot(rows * streams, 0.0F);
  for (std::size_t row = 0; row < rows; ++row) {
    one_hot[row * streams] = 1.0F;
  }
  out.initial_pre = take_constant(memory, *stream, one_hot);
  out.logits = memory.take<float>(static_cast<std::size_t>(sizes.max_logit_rows) * static_cast<std::size_t>(c.vocab_size));

  if (sizes.max_drafts > 0) {
    const auto chunks = static_cast<std::size_t>(sizes.max_chunks);
    const auto drafts = static_cast<std::size_t>(sizes.max_drafts);
    out.taps = memory.take<bf16>(rows * static_cast<std::size_t>(c.num_taps() * c.hidden_size));
    out.taps_q8 = take_q8(memory, rows, c.num_taps() * c.hidden_size);
    out.confidence = memory.take<float>(chunks * drafts);
    out.markov = memory.take<float>(chunks * static_cast<std::size_t>(c.vocab_size));
    out.markov_confidence = memory.take<float>(chunks * drafts);
    out.draft_token = memory.take<std::int32_t>(chunks * (1 + drafts));
  }

  Result<std::vector<Buffer>> buffers = std::move(memory).finish("activations");
  if (!buffers) {
    return std::unexpected(std::move(buffers.error()));
  }
  out.buffers = std::move(*buffers);
  return out;
}

}  // namespace deepinfer::model
