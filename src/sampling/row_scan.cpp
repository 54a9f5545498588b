// Two passes over memory that fits the cache, in lanes that the compiler maps to vector registers.
#include "sampling/row_scan.h"

#include <array>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

constexpr std::size_t kLanes = 32;  // enough independent maxima to hide the latency of a comparison
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Lanes {
  std::array<float, kLanes> largest;
  std::array<std::int32_t, kLanes> not_finite;

  Lanes() {
    largest.fill(-kInfinity);
    not_finite.fill(0);
  }
  void look(std::size_t lane, float x) {
    largest[lane] = x > largest[lane] ? x : largest[lane];
    not_finite[lane] |= x < kInfinity ? 0 : 1;  // a NaN is not below infinity
  }
};

std::size_t first_equal(std::span<const float> row, float value) {
  const std::size_t whole = row.size() - row.size() % kLanes;
  std::size_t start = 0;
  for (; start < whole; start += kLanes) {
    std::int32_t found = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      found |= row[start + lane] == value ? 1 : 0;
    }
    if (found != 0) {
      break;
    }
  }
  while (row[start] != value) {
    ++start;
  }
  return start;
}

}  // namespace

std::expected<RowMax, RowFailure> scan_row(std::span<const float> logits) {
  check(!logits.empty(), "a row has at least one column");
  Lanes lanes;
  const std::size_t whole = logits.size() - logits.size() % kLanes;
  for (std::size_t start = 0; start < whole; start += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes.look(lane, logits[start + lane]);
    }
  }
  for (std::size_t c = whole; c < logits.size(); ++c) {
    lanes.look(c - whole, logits[c]);
  }
  float largest = -kInfinity;
  std::int32_t not_finite = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    largest = lanes.largest[lane] > largest ? lanes.largest[lane] : largest;
    not_finite |= lanes.not_finite[lane];
  }
  if (not_finite != 0) {
    return std::unexpected(RowFailure::not_finite);
  }
  if (largest == -kInfinity) {
    return std::unexpected(RowFailure::nothing_allowed);
  }
  return RowMax{.value = largest, .column = static_cast<std::int32_t>(first_equal(logits, largest))};
}

}  // namespace deepinfer::sampling
