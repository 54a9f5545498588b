#include "sampling/row_mask.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();
constexpr std::size_t kBits = 32;

/// Gives the columns of every non-zero word to `take(first column, number of columns, word)`.
template <class Take>
void for_words(std::span<const std::uint32_t> mask, std::size_t num_columns, Take take) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0) {
      take(i * kBits, std::min(kBits, num_columns - i * kBits), mask[i]);
    }
  }
}

}  // namespace

void mask_row(std::span<const float> logits, std::span<const std::uint32_t> mask, std::span<float> out) {
  check(out.size() == logits.size() && mask.size() == (logits.size() + kBits - 1) / kBits, "row, mask and result have one size");
  std::ranges::fill(out, kRemoved);
  bool has_chance = false;
  for_words(mask, logits.size(), [&](std::size_t first, std::size_t count, std::uint32_t word) {
    for (std::size_t bit = 0; bit < count; ++bit) {
      const bool is_allowed = ((word >> bit) & 1U) != 0;
      out[first + bit] = is_allowed ? logits[first + bit] : kRemoved;
      has_chance |= is_allowed && logits[first + bit] != kRemoved;
    }
  });
  if (has_chance) {
    return;
  }
  for_words(mask, logits.size(), [&](std::size_t first, std::size_t count, std::uint32_t word) {
    for (std::size_t bit = 0; bit < count; ++bit) {
      out[first + bit] = ((word >> bit) & 1U) != 0 ? 0.0F : kRemoved;
    }
  });
}

}  // namespace deepinfer::sampling
