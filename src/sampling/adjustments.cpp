#include "sampling/adjustments.h"

#include <algorithm>

namespace deepinfer::sampling {

TokenHistory::TokenHistory(std::int32_t vocab_size, std::span<const TokenId> prompt, std::int32_t max_generated)
    : places_(static_cast<std::size_t>(vocab_size), 0) {
  for (const TokenId token : prompt) {
    place_of(token);
  }
  const auto room = static_cast<std::int64_t>(seen_.size()) + max_generated;
  seen_.reserve(static_cast<std::size_t>(std::min<std::int64_t>(room, vocab_size)));
}

std::int32_t TokenHistory::place_of(TokenId token) {
  std::int32_t& place = places_[static_cast<std::size_t>(token.value)];
  if (place == 0) {
    seen_.push_back({.column = token.value, .num_generated = 0});
    place = static_cast<std::int32_t>(seen_.size());
  }
  return place - 1;
}

void TokenHistory::add(TokenId generated) { ++seen_[static_cast<std::size_t>(place_of(generated))].num_generated; }

void adjust(std::span<float> logits, const Adjustments& adjustments, const TokenHistory& history) {
  if (adjustments.use_history()) {
    for (const TokenHistory::Seen& seen : history.seen()) {
      float& logit = logits[static_cast<std::size_t>(seen.column)];
      logit = logit > 0.0F ? logit / adjustments.repetition_penalty : logit * adjustments.repetition_penalty;
      if (seen.num_generated > 0) {
        logit -= adjustments.presence_penalty + adjustments.frequency_penalty * static_cast<float>(seen.num_generated);
      }
    }
  }
  for (const LogitBias& entry : adjustments.bias) {
    logits[static_cast<std::size_t>(entry.token.value)] += entry.bias;
  }
}

}  // namespace deepinfer::sampling
