// Arrival lane, express lane, then the arrival lane again with what is left.
#include "scheduler/prefill_lanes.h"

#include <algorithm>
#include <vector>

namespace deepinfer::scheduler {
namespace {

/// What the caller decides.
struct Questions {
  const std::function<bool(std::size_t)>& admit;
  const std::function<std::int32_t(std::size_t, std::int32_t)>& cut;
};

std::int32_t num_left(const PrefillShare& share) { return share.num_wanted - share.num_granted; }

/// Returns the rows granted, at most `budget`.
std::int32_t grant(std::int32_t budget, std::size_t index, std::span<PrefillShare> shares, const Questions& ask) {
  PrefillShare& share = shares[index];
  if (num_left(share) == 0 || budget == 0) {
    return 0;
  }
  share.running = share.running || ask.admit(index);
  if (!share.running) {
    return 0;
  }
  const std::int32_t before = share.num_granted;
  const std::int32_t most = before + std::min(budget, num_left(share));
  share.num_granted = ask.cut ? ask.cut(index, most) : most;
  return share.num_granted - before;
}

std::int32_t serve_by_arrival(std::int32_t budget, std::span<PrefillShare> shares, const Questions& ask) {
  std::int32_t left = budget;
  for (std::size_t i = 0; i < shares.size() && left > 0; ++i) {
    left -= grant(left, i, shares, ask);
  }
  return left;
}

std::int32_t serve_by_work(std::int32_t budget, std::span<PrefillShare> shares, const Questions& ask) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (num_left(shares[i]) > 0) {
      order.push_back(i);
    }
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return num_left(shares[i]); });
  std::int32_t left = budget;
  for (const std::size_t i : order) {
    left -= grant(left, i, shares, ask);
  }
  return left;
}

}  // namespace

void divide_prefill_budget(std::int32_t budget, std::span<PrefillShare> shares, const std::function<bool(std::size_t)>& admit,
                           const std::function<std::int32_t(std::size_t, std::int32_t)>& cut) {
  const Questions ask{admit, cut};
  const auto oldest = std::ranges::find_if(shares, [](const PrefillShare& share) { return share.running && share.num_wanted > 0; });
  const std::int32_t reserved = oldest == shares.end() ? 0 : std::min(budget, oldest->num_least);
  const std::int32_t express = shares.size() > 1 ? std::min(budget / kExpressFraction, budget - reserved) : 0;
  std::int32_t left = express + serve_by_arrival(budget - express, shares, ask);
  left = serve_by_work(left, shares, ask);
  serve_by_arrival(left, shares, ask);
}

}  // namespace deepinfer::scheduler
