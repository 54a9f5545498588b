// The whole curve is scanned: a larger step may pay again where the time grows in stairs.
#include "scheduler/verification.h"

#include <algorithm>
#include <tuple>

namespace deepinfer::scheduler {

void VerificationPlan::sort(std::span<const DraftRates> requests) {
  entries_.clear();
  for (std::size_t r = 0; r < requests.size(); ++r) {
    for (const float rate : requests[r].rates) {
      entries_.push_back({.rate = rate, .request = static_cast<std::int32_t>(r), .place = static_cast<std::int32_t>(entries_.size())});
    }
  }
  std::ranges::sort(entries_, [](const Entry& a, const Entry& b) { return std::tuple(-a.rate, a.place) < std::tuple(-b.rate, b.place); });
}

std::int32_t VerificationPlan::total_rows(std::span<const DraftRates> requests, std::int32_t max_rows, const StepSeconds& seconds) {
  sort(requests);
  const auto num_requests = static_cast<std::int32_t>(requests.size());
  const std::int32_t most = std::max(num_requests, std::min(max_rows, num_requests + static_cast<std::int32_t>(entries_.size())));
  std::int32_t best_rows = most;
  double best = 0;
  double expected = num_requests;
  for (std::int32_t rows = num_requests; rows <= most; ++rows) {
    if (rows > num_requests) {
      expected += static_cast<double>(entries_[static_cast<std::size_t>(rows - num_requests - 1)].rate);
    }
    const double time = seconds(rows);
    if (time > 0 && expected / time > best) {
      best = expected / time;
      best_rows = rows;
    }
  }
  return best_rows;
}

std::span<const std::int32_t> VerificationPlan::divide(std::span<const DraftRates> requests, std::int32_t num_rows) {
  sort(requests);
  num_drafts_.assign(requests.size(), 0);
  const std::int32_t extra = num_rows - static_cast<std::int32_t>(requests.size());
  for (std::int32_t i = 0; i < std::min(extra, static_cast<std::int32_t>(entries_.size())); ++i) {
    ++num_drafts_[static_cast<std::size_t>(entries_[static_cast<std::size_t>(i)].request)];
  }
  return num_drafts_;
}

}  // namespace deepinfer::scheduler
