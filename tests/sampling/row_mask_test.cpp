#include "sampling/row_mask.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace deepinfer::sampling {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

std::vector<float> masked(const std::vector<float>& logits, const std::vector<std::uint32_t>& mask) {
  std::vector<float> out(logits.size(), 7.0F);
  mask_row(logits, mask, out);
  return out;
}

TEST(RowMask, KeepsAllowedLogitsAndRemovesTheRest) {
  std::vector<float> logits(70);
  for (std::size_t c = 0; c < logits.size(); ++c) {
    logits[c] = static_cast<float>(c) - 30.0F;
  }
  const std::vector<std::uint32_t> mask{0x80000001U, 0U, 0b100001U};
  const std::vector<float> out = masked(logits, mask);
  for (std::size_t c = 0; c < logits.size(); ++c) {
    const bool is_allowed = ((mask[c / 32] >> (c % 32)) & 1U) != 0;
    EXPECT_EQ(out[c], is_allowed ? logits[c] : kRemoved) << c;
  }
}

TEST(RowMask, ARowWhoseAllowedColumnsAreAllRemovedBecomesUniformOverThem) {
  const std::vector<float> out = masked({1.0F, kRemoved, kRemoved, 2.0F}, {0b0110U});
  EXPECT_EQ(out, (std::vector<float>{kRemoved, 0.0F, 0.0F, kRemoved}));
}

TEST(RowMask, AnEmptyMaskAllowsNothing) { EXPECT_EQ(masked({1.0F, 2.0F}, {0U}), (std::vector<float>{kRemoved, kRemoved})); }

TEST(RowMask, BitsBeyondTheRowAreIgnored) { EXPECT_EQ(masked({1.0F, 2.0F}, {~0U}), (std::vector<float>{1.0F, 2.0F})); }

TEST(RowMask, AnAllowedNumberThatIsNoneStaysOne) {
  const std::vector<float> out = masked({std::numeric_limits<float>::quiet_NaN(), 2.0F}, {0b01U});
  EXPECT_NE(out[0], out[0]);
}

}  // namespace
}  // namespace deepinfer::sampling
