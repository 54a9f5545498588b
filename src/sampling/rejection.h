// The rejection rule (engine.md §10.1, §11): exact integer draws and the acceptance test of drafts, at absolute positions.
// Not here: the coupled rule (sampler.h); whole requests' worth of rows (engine).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampling/params.h"

namespace deepinfer::sampling {

/// What a stream of words is for; each purpose has its own numbers at every position.
enum class Purpose : std::uint8_t { fresh = 0, residual = 1, acceptance = 2 };

/// The 32-bit words of one purpose at one position, from the first.
class WordStream {
 public:
  WordStream(RandomKey key, Purpose purpose);
  [[nodiscard]] std::uint32_t next();

 private:
  std::uint64_t seed_;
  std::uint64_t sequence_;
  std::uint64_t counter_ = 0;
  std::size_t used_ = 4;
  std::array<std::uint32_t, 4> words_{};
};

/// A draft judged: the token that stands at its position now.
struct Verdict {
  bool accepted = false;
  TokenId token;

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

/// Work space for one vocabulary; for one thread. Rows are processed log-probabilities, [vocab] fp32, −infinity where removed.
class RejectionRule {
 public:
  explicit RejectionRule(std::int32_t vocab_size);

  /// A column with probability proportional to floor(weight · 2³¹), the order of the cumulative sum lane-major (§10.1).
  /// weights: [vocab] fp32, at least 0, sum at most 1 up to rounding, not all below 2⁻³¹.
  [[nodiscard]] TokenId draw(std::span<const float> weights, WordStream words);

  /// The target's token at a position without a draft.
  [[nodiscard]] TokenId sample(std::span<const float> log_probs, RandomKey key);
  /// The drafter's proposal: its own random numbers.
  [[nodiscard]] TokenId sample_draft(std::span<const float> log_probs, RandomKey key);
  /// Accepts `proposal` with probability min(1, target/draft), else draws from the residual.
  [[nodiscard]] Verdict verify(std::span<const float> target, std::span<const float> draft, TokenId proposal, RandomKey key);

 private:
  [[nodiscard]] TokenId draw_counted(WordStream words);
  [[nodiscard]] std::uint64_t count(std::span<const float> weights);

  std::vector<float> weights_;
  std::vector<std::uint32_t> units_;
  std::vector<std::uint64_t> lane_sums_;
};

}  // namespace deepinfer::sampling
