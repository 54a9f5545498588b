// The whole curve is scanned: a larger step may pay again where the time grows in stairs.
#include "scheduler/verification.h"

#include <algorithm>
#include <bit>

namespace deepinfer::scheduler {

/// Entries in any order. Rates fall and places rise in one integer: floats above zero are ordered as their bits are.
void VerificationPlan::gather(std::span<const DraftRates> requests) {
  entries_.clear();
  owners_.clear();
  for (std::size_t r = 0; r < requests.size(); ++r) {
    for (const float rate : requests[r].rates) {
      const std::uint64_t fall = ~std::bit_cast<std::uint32_t>(rate + 0.0F);  // -0 becomes 0
      entries_.push_back(fall << 32 | owners_.size());
      owners_.push_back(static_cast<std::int32_t>(r));
    }
  }
}

std::int32_t VerificationPlan::total_rows(std::span<const DraftRates> requests, std::int32_t max_rows, const StepSeconds& seconds,
                                          double trust) {
  gather(requests);
  std::ranges::sort(entries_);
  sums_.assign(1, 0.0);
  for (const std::uint64_t entry : entries_) {
    sums_.push_back(sums_.back() + static_cast<double>(std::bit_cast<float>(~static_cast<std::uint32_t>(entry >> 32))));
  }
  num_requests_ = static_cast<std::int32_t>(requests.size());
  const std::int32_t most = std::max(num_requests_, std::min(max_rows, num_requests_ + static_cast<std::int32_t>(entries_.size())));
  std::int32_t best_rows = most;
  double best = 0;
  for (std::int32_t rows = num_requests_; rows <= most; ++rows) {
    const double time = seconds(rows);
    const double expected = num_requests_ + trust * sum_of_rates(rows);
    if (time > 0 && expected / time > best) {
      best = expected / time;
      best_rows = rows;
    }
  }
  return best_rows;
}

double VerificationPlan::sum_of_rates(std::int32_t num_rows) const {
  const auto num_drafts = static_cast<std::size_t>(std::max(num_rows - num_requests_, 0));
  return sums_[std::min(num_drafts, sums_.size() - 1)];
}

std::span<const std::int32_t> VerificationPlan::divide(std::span<const DraftRates> requests, std::int32_t num_rows) {
  gather(requests);
  num_drafts_.assign(requests.size(), 0);
  const std::int32_t extra = std::max(num_rows - static_cast<std::int32_t>(requests.size()), 0);
  const auto end = entries_.begin() + std::min(static_cast<std::ptrdiff_t>(extra), static_cast<std::ptrdiff_t>(entries_.size()));
  std::ranges::nth_element(entries_, end);
  for (auto entry = entries_.begin(); entry != end; ++entry) {
    ++num_drafts_[static_cast<std::size_t>(owners_[static_cast<std::uint32_t>(*entry)])];
  }
  return num_drafts_;
}

}  // namespace deepinfer::scheduler
