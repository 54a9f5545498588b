// Sampler: one row to one token by the coupled rule (engine.md §11.1), the rule of every plain step.
// Not here: verification of drafts by the rejection rule (rejection.h).
#pragma once

#include <cstdint>
#include <expected>
#include <span>

#include "base/ids.h"
#include "sampling/distribution.h"
#include "sampling/noise.h"
#include "sampling/params.h"

namespace deepinfer::sampling {

/// Work space for one vocabulary; for one thread.
class Sampler {
 public:
  explicit Sampler(std::int32_t vocab_size) : distribution_(vocab_size) {}

  /// The column with the largest processed log-probability plus noise, the smaller id on ties; greedy: the arg-max.
  /// logits: [vocab] fp32, −infinity where a column is not allowed; they must stay as long as distribution() is asked.
  /// `raw`: see Distribution::read.
  [[nodiscard]] std::expected<TokenId, RowFailure> sample(std::span<const float> logits, const Params& params, RandomKey key,
                                                          std::span<const float> raw = {});

  /// Of the last successful sample().
  [[nodiscard]] Distribution& distribution() { return distribution_; }

 private:
  Distribution distribution_;
  NoiseBound noise_bound_;
};

/// The same for a distribution that was read already: the drafter's proposal and the target's token use the same noise.
[[nodiscard]] TokenId sample_coupled(const Distribution& distribution, RandomKey key, const NoiseBound& bound);

}  // namespace deepinfer::sampling
