// What a request changes about its logits before temperature: the repetition, presence and frequency penalties and the logit bias.
// −infinity stays −infinity, so masks may come before or after. Not here: filters and draws (distribution.h, sampler.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace deepinfer::sampling {

struct LogitBias {
  TokenId token;
  float bias = 0.0F;

  friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

/// In this order: tokens of prompt and reply divide a positive logit by `repetition` and multiply a negative one (Keskar et al. 2019,
/// CTRL, section 4.1); tokens of the reply lose `presence` once and `frequency` for each time they came (the OpenAI API); the bias is
/// added.
struct Adjustments {
  float repetition_penalty = 1.0F;   ///< above 0; 1: none
  float presence_penalty = 0.0F;     ///< finite
  float frequency_penalty = 0.0F;    ///< finite
  std::vector<LogitBias> bias = {};  ///< finite, tokens in the vocabulary

  [[nodiscard]] bool use_history() const { return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F; }
  [[nodiscard]] bool change_logits() const { return use_history() || !bias.empty(); }
};

/// How often each token came, for one request. All memory is taken at the start, but for a prompt with new distinct tokens.
class TokenHistory {
 public:
  TokenHistory() = default;
  /// `max_generated`: tokens that add() will bring at most.
  TokenHistory(std::int32_t vocab_size, std::span<const TokenId> prompt, std::int32_t max_generated);

  void add(TokenId generated);

  struct Seen {
    std::int32_t column = 0;
    std::int32_t num_generated = 0;  ///< 0: in the prompt only
  };
  /// Each distinct token once, in the order of first appearance.
  [[nodiscard]] std::span<const Seen> seen() const { return seen_; }

 private:
  std::int32_t place_of(TokenId token);

  std::vector<std::int32_t> places_;  // [vocab] 1 + place in seen_, 0: not seen
  std::vector<Seen> seen_;
};

/// Adjusts one row in place, [vocab] fp32. `history` is not looked at when no penalty is set.
void adjust(std::span<float> logits, const Adjustments& adjustments, const TokenHistory& history);

}  // namespace deepinfer::sampling
