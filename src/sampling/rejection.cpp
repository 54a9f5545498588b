// Weights are counted in units of 2⁻³¹, so a draw is exact integer arithmetic whatever adds them up.
#include "sampling/rejection.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "sampling/exponential.h"
#include "sampling/philox.h"
#include "sampling/prefix.h"

namespace deepinfer::sampling {
namespace {

constexpr std::uint64_t kDraftSeedOffset = 1'000'000'007;  // §10: drafts have their own numbers
constexpr float kDraftPenalty = 5e-5F;                     // §11: shrinks the draft, so that a residual always exists
constexpr float kRemoved = -std::numeric_limits<float>::infinity();

/// 2048 from 8192 columns on, else the next power of two (§10.1).
std::size_t num_lanes(std::size_t num_columns) { return num_columns >= 8192 ? 2048 : std::bit_ceil(num_columns); }

float exp_rounded(float log_prob) { return static_cast<float>(exp_nonpositive(std::min(static_cast<double>(log_prob), 0.0))); }

}  // namespace

WordStream::WordStream(RandomKey key, Purpose purpose)
    : seed_(key.seed), sequence_(3 * static_cast<std::uint64_t>(key.position) + static_cast<std::uint64_t>(purpose)) {}

std::uint32_t WordStream::next() {
  if (used_ == words_.size()) {
    words_ = philox4x32(seed_, counter_++, sequence_);
    used_ = 0;
  }
  return words_[used_++];
}

RejectionRule::RejectionRule(std::int32_t vocab_size)
    : weights_(static_cast<std::size_t>(vocab_size)),
      units_(static_cast<std::size_t>(vocab_size)),
      lane_sums_(num_lanes(static_cast<std::size_t>(vocab_size))) {}

/// Fills units_ and returns their sum.
std::uint64_t RejectionRule::count(std::span<const float> weights) {
  check(weights.size() == units_.size(), "a row has one weight per vocabulary entry");
  std::ranges::transform(weights, units_.begin(),
                         [](float weight) { return static_cast<std::uint32_t>(static_cast<double>(weight) * kMassUnits); });
  return std::accumulate(units_.begin(), units_.end(), std::uint64_t{0});
}

TokenId RejectionRule::draw(std::span<const float> weights, WordStream words) {
  check(count(weights) > 0, "a draw needs a weight of at least one unit");
  return draw_counted(words);
}

TokenId RejectionRule::draw_counted(WordStream words) {
  std::ranges::fill(lane_sums_, 0);
  const std::size_t lanes = lane_sums_.size();
  for (std::size_t c = 0; c < units_.size(); ++c) {
    lane_sums_[c % lanes] += units_[c];
  }
  const std::uint64_t total = std::accumulate(lane_sums_.begin(), lane_sums_.end(), std::uint64_t{0});
  const std::uint64_t limit = std::numeric_limits<std::uint32_t>::max() / total * total;
  check(limit > 0, "the weights of a row add up to about one at most");
  std::uint64_t word = words.next();
  while (word >= limit) {
    word = words.next();
  }
  std::uint64_t rest = word % total;
  std::size_t column = 0;
  while (rest >= lane_sums_[column]) {
    rest -= lane_sums_[column++];
  }
  while (rest >= units_[column]) {
    rest -= units_[column];
    column += lanes;
  }
  return {static_cast<std::int32_t>(column)};
}

TokenId RejectionRule::sample(std::span<const float> log_probs, RandomKey key) {
  std::ranges::transform(log_probs, weights_.begin(), exp_rounded);
  return draw(weights_, WordStream(key, Purpose::fresh));
}

TokenId RejectionRule::sample_draft(std::span<const float> log_probs, RandomKey key) {
  return sample(log_probs, {.seed = key.seed + kDraftSeedOffset, .position = key.position});
}

Verdict RejectionRule::verify(std::span<const float> target, std::span<const float> draft, TokenId proposal, RandomKey key) {
  const auto column = static_cast<std::size_t>(proposal.value);
  check(proposal.value >= 0 && column < target.size() && draft.size() == target.size(), "a proposal is a token of the vocabulary");
  const float uniform = static_cast<float>(WordStream(key, Purpose::acceptance).next()) * 0x1p-32F + 0x1p-33F;
  if (draft[column] > kRemoved && uniform < exp_rounded(target[column] - draft[column])) {
    return {.accepted = true, .token = proposal};
  }
  std::ranges::transform(target, draft, weights_.begin(),
                         [](float p, float q) { return std::max(exp_rounded(p) - exp_rounded(q - kDraftPenalty), 0.0F); });
  if (count(weights_) == 0) {
    return {.accepted = false, .token = {static_cast<std::int32_t>(std::ranges::max_element(target) - target.begin())}};
  }
  return {.accepted = false, .token = draw_counted(WordStream(key, Purpose::residual))};
}

}  // namespace deepinfer::sampling
