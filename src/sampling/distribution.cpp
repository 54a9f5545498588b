// lp(c) = (x − M)/T − ln Z over the kept columns, in double, rounded to fp32 once.
#include "sampling/distribution.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "sampling/exponential.h"

namespace deepinfer::sampling {

Distribution::Distribution(std::int32_t vocab_size) : selector_(vocab_size), top_selector_(vocab_size) {
  const auto size = static_cast<std::size_t>(vocab_size);
  weights_.resize(size);
  all_.resize(size);
  likely_.reserve(size);
  std::iota(all_.begin(), all_.end(), 0);
  kept_log_probabilities_.resize(size);
}

std::expected<void, RowFailure> Distribution::read(std::span<const float> logits, const Params& params, std::span<const float> raw) {
  check(logits.size() == weights_.size(), "a row has one logit per vocabulary entry");
  check(raw.empty() || raw.size() == logits.size(), "the row before adjustments is as long as the one after them");
  const auto max = scan_row(logits);
  if (!max) {
    return std::unexpected(max.error());
  }
  logits_ = logits;
  raw_ = raw.empty() ? logits : raw;
  max_ = *max;
  raw_log_total_.reset();
  if (params.is_greedy()) {
    keep_argmax();
  } else {
    keep_columns(params);
  }
  return {};
}

void Distribution::keep_argmax() {
  columns_ = std::span(all_).subspan(static_cast<std::size_t>(max_.column), 1);
  kept_log_probabilities_[0] = 0.0F;
  log_probabilities_ = std::span(kept_log_probabilities_).first(1);
}

void Distribution::keep_columns(const Params& params) {
  const double inverse_temperature = 1.0 / params.temperature;
  double total = exponentiate(logits_, max_.value, inverse_temperature, weights_);
  if (params.temperature == 1.0 && raw_.data() == logits_.data()) {
    raw_log_total_ = log_positive(total);
    raw_max_ = max_.value;
  }
  const bool limits_mass = params.top_p < 1.0;
  const bool limits_count = params.top_k >= 0 && static_cast<std::size_t>(params.top_k) < logits_.size();
  columns_ = all_;
  if (limits_mass || limits_count) {
    PrefixLimit limit;
    if (limits_mass) {
      limit.mass = static_cast<std::int64_t>(params.top_p * kMassUnits) + 1;
    }
    if (limits_count) {
      limit.num_columns = params.top_k;
    }
    columns_ = selector_.select(logits_, weights_, kMassUnits / total, limit);
  }
  if (params.min_p > 0.0) {
    keep_likely(params.min_p);
  }
  if (columns_.data() != all_.data()) {
    ColumnSum sum;
    for (const std::int32_t column : columns_) {
      sum.add(column, weights_[static_cast<std::size_t>(column)]);
    }
    total = sum.total();
  }
  const double log_total = log_positive(total);
  const double largest = max_.value;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const double logit = logits_[static_cast<std::size_t>(columns_[i])];
    kept_log_probabilities_[i] = static_cast<float>((logit - largest) * inverse_temperature - log_total);
  }
  log_probabilities_ = std::span(kept_log_probabilities_).first(columns_.size());
}

/// The weight of the most probable column is 1.
void Distribution::keep_likely(double min_p) {
  likely_.clear();
  for (const std::int32_t column : columns_) {
    if (weights_[static_cast<std::size_t>(column)] >= min_p) {
      likely_.push_back(column);
    }
  }
  columns_ = likely_;
}

void Distribution::scatter(std::span<float> row) const {
  check(row.size() == logits_.size(), "a full row has one entry per vocabulary entry");
  std::ranges::fill(row, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    row[static_cast<std::size_t>(columns_[i])] = log_probabilities_[i];
  }
}

void Distribution::find_raw_total() {
  if (raw_log_total_) {
    return;
  }
  const float largest = raw_.data() == logits_.data() ? max_.value : *std::ranges::max_element(raw_);
  raw_max_ = largest;
  raw_log_total_ = log_positive(exponentiate(raw_, largest, 1.0, weights_));
}

float Distribution::logprob(std::int32_t column, LogprobKind kind) {
  float value = 0.0F;
  if (kind == LogprobKind::raw) {
    find_raw_total();
    const double logit = raw_[static_cast<std::size_t>(column)];
    value = static_cast<float>((logit - raw_max_) - *raw_log_total_);
  } else {
    const auto place = std::ranges::lower_bound(columns_, column);
    if (place == columns_.end() || *place != column) {
      return kRemovedLogprob;
    }
    value = log_probabilities_[static_cast<std::size_t>(place - columns_.begin())];
  }
  return std::max(value, kRemovedLogprob);
}

std::span<const TokenLogprob> Distribution::top(std::int32_t count, LogprobKind kind) {
  top_.clear();
  if (count <= 0) {
    return top_;
  }
  // In both kinds the order is that of their row; processed ones end with the kept columns.
  const std::span<const float> row = kind == LogprobKind::raw ? raw_ : logits_;
  const auto largest = top_selector_.select(row, weights_, 0.0, {.num_columns = count});
  for (const std::int32_t column : largest) {
    const float value = logprob(column, kind);
    if (kind == LogprobKind::raw || value > kRemovedLogprob) {
      top_.push_back({.token = {column}, .logprob = value});
    }
  }
  std::ranges::sort(top_, [row](const TokenLogprob& a, const TokenLogprob& b) {
    const float logit_a = row[static_cast<std::size_t>(a.token.value)];
    const float logit_b = row[static_cast<std::size_t>(b.token.value)];
    return logit_a != logit_b ? logit_a > logit_b : a.token < b.token;
  });
  return top_;
}

}  // namespace deepinfer::sampling
