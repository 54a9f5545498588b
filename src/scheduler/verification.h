// How many drafts are verified (docs/spec/engine.md 8.3): rows in total from measured times, then their division among the requests.
// Pure functions of numbers. Not here: where rates and times come from (engine/speculation.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace deepinfer::scheduler {

/// Seconds of a step with this many rows; 0 when not known.
using StepSeconds = std::function<double(std::int32_t num_rows)>;

/// Draft j of one request is accepted with this probability, its predecessors included; not increasing with j.
struct DraftRates {
  std::span<const float> rates;
};

/// Work space for steps of any size.
class VerificationPlan {
 public:
  /// The number of rows, from requests.size() to that and all drafts but at most `max_rows`, with the most expected tokens per second:
  /// (requests + trust * sum of the largest rates) / seconds. Of equal ones the smallest. Row counts without a time are not considered;
  /// when none has one, all rows are verified. `trust`: accepted drafts per unit of rate, as seen.
  [[nodiscard]] std::int32_t total_rows(std::span<const DraftRates> requests, std::int32_t max_rows, const StepSeconds& seconds,
                                        double trust = 1);
  /// Sum of the largest rates that `num_rows` rows of the requests of the last total_rows() have room for.
  [[nodiscard]] double sum_of_rates(std::int32_t num_rows) const;

  /// Divides `num_rows` rows: one for each request, the others to the drafts with the largest rates, the earlier request and draft on ties.
  /// Returns the drafts to verify per request, always a prefix of its drafts; valid until the next call.
  [[nodiscard]] std::span<const std::int32_t> divide(std::span<const DraftRates> requests, std::int32_t num_rows);

 private:
  void gather(std::span<const DraftRates> requests);

  std::vector<std::uint64_t> entries_;  // each a rate and its place in the order of requests and drafts
  std::vector<std::int32_t> owners_;    // by place: the request
  std::vector<double> sums_;  // of the total: of the largest 0, 1, … rates
  std::int32_t num_requests_ = 0;
  std::vector<std::int32_t> num_drafts_;
};

}  // namespace deepinfer::scheduler
