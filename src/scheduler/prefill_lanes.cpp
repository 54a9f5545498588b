// Arrival lane, express lane, then the arrival lane again with what is left.
#include "scheduler/prefill_lanes.h"

#include <algorithm>
#include <vector>

namespace deepinfer::scheduler {
namespace {

using Admit = std::function<bool(std::size_t)>;

std::int32_t num_left(const PrefillShare& share) { return share.num_wanted - share.num_granted; }

/// Returns the rows granted, at most `budget`.
std::int32_t grant(std::int32_t budget, std::size_t index, std::span<PrefillShare> shares, const Admit& admit) {
  PrefillShare& share = shares[index];
  if (num_left(share) == 0 || budget == 0) {
    return 0;
  }
  share.running = share.running || admit(index);
  if (!share.running) {
    return 0;
  }
  const std::int32_t num_rows = std::min(budget, num_left(share));
  share.num_granted += num_rows;
  return num_rows;
}

std::int32_t serve_by_arrival(std::int32_t budget, std::span<PrefillShare> shares, const Admit& admit) {
  std::int32_t left = budget;
  for (std::size_t i = 0; i < shares.size() && left > 0; ++i) {
    left -= grant(left, i, shares, admit);
  }
  return left;
}

std::int32_t serve_by_work(std::int32_t budget, std::span<PrefillShare> shares, const Admit& admit) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (num_left(shares[i]) > 0) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return num_left(shares[i]); });
  std::int32_t left = budget;
  for (const std::size_t i : order) {
    left -= grant(left, i, shares, admit);
  }
  return left;
}

}  // namespace

void divide_prefill_budget(std::int32_t budget, std::span<PrefillShare> shares, const Admit& admit) {
  const std::int32_t express = shares.size() > 1 ? budget / kExpressFraction : 0;
  std::int32_t left = express + serve_by_arrival(budget - express, shares, admit);
  left = serve_by_work(left, shares, admit);
  serve_by_arrival(left, shares, admit);
}

}  // namespace deepinfer::scheduler
