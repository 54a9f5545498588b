// Test doors of the model: whole prompts without an engine, teacher-forced scores, single layers with exact inputs.
// Values only; the line protocol (docs/spec/cli.md, `model probe`) is spoken in apps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/deepseek_v41/model.h"
#include "ops/device.h"

namespace deepinfer::model {

struct ForwardOptions {
  std::int32_t chunk = 0;  ///< tokens per forward; 0: as many as a step takes
  std::int32_t keep = 0;   ///< decoder-side bounded replay: rows kept behind the split layer; 0: exact
};

struct ForwardOutput {
  std::vector<float> logits;  ///< [vocab] of the last position
  std::string state_sha256;   ///< over everything a later token can read (CacheReader::state_sha256)
};

/// One predicted position.
struct Score {
  TokenId arg_max;
  float margin = 0;   ///< best minus second-best logit
  float logprob = 0;  ///< natural logarithm of the probability of the token that stands there
};

/// Proposals behind a prompt and its most likely next token.
struct DraftOutput {
  std::vector<TokenId> tokens;     ///< draft i stands at position ids.size() + 1 + i
  std::vector<float> confidences;  ///< estimated probability that the draft is accepted, those before it being so
};

/// Output of one layer: streams [rows, S, D], coefficients of the next collapse [rows, S].
struct LayerValues {
  std::vector<bf16> streams;
  std::vector<float> pre;
};

/// Uses slot 1 and blocks 1, 2, … of a model that no engine drives.
class Probe {
 public:
  Probe(Device& device, DeepseekV41& model, const CacheSizes& sizes);

  /// Errors: invalid_argument for ids outside the vocabulary, an empty prompt, one longer than the caches, keep below the window.
  [[nodiscard]] Result<ForwardOutput> forward(std::span<const TokenId> ids, const ForwardOptions& options);
  /// Greedy drafts; as many as the model was created for. Errors: those of forward; unsupported without drafts.
  [[nodiscard]] Result<DraftOutput> draft(std::span<const TokenId> ids);
  /// Scores of positions from … end, each predicted from the ids before it; from >= 1.
  [[nodiscard]] Result<std::vector<Score>> score(std::span<const TokenId> ids, std::int32_t from);
  /// Layer i runs on inputs[i - 1] instead of the output of layer i - 1 (layer 0 on the embeddings); results are the layers' own.
  [[nodiscard]] Result<std::vector<LayerValues>> layers(std::span<const TokenId> ids, std::span<const LayerValues> inputs);

 private:
  [[nodiscard]] Result<void> validate(std::span<const TokenId> ids) const;
  [[nodiscard]] Chunk chunk_at(std::span<const TokenId> ids, std::size_t begin, std::size_t count) const;

  Device& device_;
  DeepseekV41& model_;
  CacheSizes sizes_;
  std::vector<BlockId> blocks_;
};

}  // namespace deepinfer::model
