// What a request says about sampling, and what can be wrong with a row. Plain values.
#pragma once

#include <cstdint>
#include <string_view>

namespace deepinfer::sampling {

/// Below this a temperature means 0: arg-max (engine.md §11.1).
inline constexpr double kGreedyBelow = 1e-5;

struct Params {
  double temperature = 1.0;  ///< finite, at least 0; 0: arg-max, the smaller id on ties
  double top_p = 1.0;        ///< in (0, 1]; 1 disables
  std::int32_t top_k = -1;   ///< at least 1; −1 disables
  double min_p = 0.0;        ///< in [0, 1]; keeps tokens at least this fraction as probable as the most probable one; 0 disables

  [[nodiscard]] bool is_greedy() const { return temperature < kGreedyBelow; }
};

/// Names the random numbers of one output token: nothing else enters.
struct RandomKey {
  std::uint64_t seed = 0;
  std::int64_t position = 0;  ///< absolute: the number of tokens before this one, prompt included
};

/// `raw`: log-softmax of the model's logits, before adjustments. `processed`: after adjustments, temperature, top-k, top-p and min-p
/// (greedy: 0 for the token).
enum class LogprobKind { raw, processed };

/// The processed log-probability of a token outside the kept columns.
inline constexpr float kRemovedLogprob = -9999.0F;

/// Why no token can be drawn from a row.
enum class RowFailure {
  not_finite,      ///< a NaN or +infinity among the logits
  nothing_allowed  ///< every column is −infinity
};

/// One sentence without a final full stop.
[[nodiscard]] constexpr std::string_view describe(RowFailure failure) {
  return failure == RowFailure::not_finite ? "the model's logits are not finite numbers" : "no token is allowed at this position";
}

}  // namespace deepinfer::sampling
