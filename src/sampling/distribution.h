// Distribution: one row of logits after temperature, top-k, top-p and min-p, with raw and processed log-probabilities.
// Not here: randomness (sampler.h, rejection.h).
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampling/params.h"
#include "sampling/prefix.h"
#include "sampling/row_scan.h"

namespace deepinfer::sampling {

struct TokenLogprob {
  TokenId token;
  float logprob = 0.0F;

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// Work space for rows of one vocabulary. What it returns is valid until the next read(); the logits must stay as long.
class Distribution {
 public:
  explicit Distribution(std::int32_t vocab_size);

  /// Takes a row, [vocab] fp32, −infinity where a column is not allowed. Order of operations: engine.md §9.2; min-p looks at the same
  /// softmax as top-k and top-p, and the shortest of the three prefixes is kept.
  /// `raw`: the row before masks and adjustments, for LogprobKind::raw; empty: `logits` itself.
  [[nodiscard]] std::expected<void, RowFailure> read(std::span<const float> logits, const Params& params, std::span<const float> raw = {});

  /// The smallest of the columns with the largest logit.
  [[nodiscard]] std::int32_t argmax() const { return max_.column; }
  /// Kept columns, ascending; without top-k and top-p all of them, −infinity ones included.
  [[nodiscard]] std::span<const std::int32_t> columns() const { return columns_; }
  /// Processed log-probabilities of columns(), in the same order.
  [[nodiscard]] std::span<const float> log_probabilities() const { return log_probabilities_; }
  /// The same as a full row, [vocab]: −infinity where a column was removed.
  void scatter(std::span<float> row) const;

  /// kRemovedLogprob for a column that was removed.
  [[nodiscard]] float logprob(std::int32_t column, LogprobKind kind);
  /// The `count` most probable columns in order (log-probability descending, column ascending); fewer when fewer are left.
  [[nodiscard]] std::span<const TokenLogprob> top(std::int32_t count, LogprobKind kind);

 private:
  void keep_argmax();
  void keep_columns(const Params& params);
  void keep_likely(double min_p);
  void find_raw_total();

  std::span<const float> logits_;
  std::span<const float> raw_;
  RowMax max_;
  std::vector<double> weights_;    // [vocab] e^((x − max)/T) of the last exponentiation
  std::vector<std::int32_t> all_;  // 0 … vocab − 1
  std::span<const std::int32_t> columns_;
  std::vector<std::int32_t> likely_;  // columns that min-p keeps
  std::vector<float> kept_log_probabilities_;
  std::span<const float> log_probabilities_;
  std::optional<double> raw_log_total_;  // ln Σ e^(x − raw_max_) over raw_, when known
  double raw_max_ = 0.0;
  PrefixSelector selector_;
  PrefixSelector top_selector_;
  std::vector<TokenLogprob> top_;
};

}  // namespace deepinfer::sampling
