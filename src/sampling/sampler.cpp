// The search for the winner starts at the arg-max and skips every column whose noise cannot lift it above the best so far. The
// skipped ones could not have won, so the result is that of evaluating all of them.
#include "sampling/sampler.h"

#include <algorithm>
#include <array>

namespace deepinfer::sampling {
namespace {

struct Best {
  float value = 0.0F;
  std::int32_t column = 0;

  void offer(float candidate, std::int32_t at) {
    if (candidate > value || (candidate == value && at < column)) {
      value = candidate;
      column = at;
    }
  }
};

}  // namespace

TokenId sample_coupled(const Distribution& distribution, RandomKey key, const NoiseBound& bound) {
  const auto columns = distribution.columns();
  const auto log_probs = distribution.log_probabilities();
  if (columns.size() == 1) {
    return {columns.front()};
  }
  const auto start = static_cast<std::size_t>(std::ranges::lower_bound(columns, distribution.argmax()) - columns.begin());
  Best best{.value = log_probs[start] + noise_at(key, columns[start]), .column = columns[start]};
  std::int32_t group = -1;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (log_probs[i] + bound.largest() < best.value) {
      continue;
    }
    const std::int32_t column = columns[i];
    if (column / 4 != group) {
      group = column / 4;
      words = noise_words(key, group);
    }
    const std::uint32_t word = words[static_cast<std::size_t>(column % 4)];
    if (log_probs[i] + bound(word) < best.value) {
      continue;
    }
    best.offer(log_probs[i] + gumbel(word), column);
  }
  return {best.column};
}

std::expected<TokenId, RowFailure> Sampler::sample(std::span<const float> logits, const Params& params, RandomKey key,
                                                   std::span<const float> raw) {
  if (const auto read = distribution_.read(logits, params, raw); !read) {
    return std::unexpected(read.error());
  }
  return sample_coupled(distribution_, key, noise_bound_);
}

}  // namespace deepinfer::sampling
