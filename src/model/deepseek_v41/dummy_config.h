// Makes the configuration of a smaller or changed model out of an existing config.json, for made-up checkpoints.
// Values that follow from others (Engram table rows, token ids inside the vocabulary, layer roles) are adapted and reported.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace deepinfer::model {

/// "n_routed_experts" "16", "vision_config" "null", "text_config.index_topk" "64": a key without a dot is looked for in text_config,
/// then at the top level; the value is JSON.
struct ConfigOverride {
  std::string key;
  std::string value;
};

struct AdaptedConfig {
  json::Value root;
  std::vector<std::string> notes;  ///< what was adapted beyond the overrides, one sentence each
};

/// Applies the overrides, then adapts what follows from them:
/// - num_hidden_layers smaller than before: layers without a role (no source, Engram, tap; ratio > 0) are taken out of the largest groups
///   and all layer ids renumbered; the error says how many layers have a role when that is not enough.
/// - num_nextn_predict_layers: the drafter entries of compress_ratios.
/// - vocab_size: special token ids beyond it move to its end, and the Engram classes are at most as many.
/// - experts per token are at most the experts; Engram table rows are derived anew.
/// An overridden key itself is never adapted. Errors: invalid_argument (unknown key, no JSON, impossible number of layers).
[[nodiscard]] Result<AdaptedConfig> adapt_config(json::Value root, const std::vector<ConfigOverride>& overrides);

}  // namespace deepinfer::model
