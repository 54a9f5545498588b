// The noise: exhaustively against its bound, and against long double.
#include "sampling/noise.h"

#include <gtest/gtest.h>

#include <cmath>

namespace deepinfer::sampling {
namespace {

TEST(Philox, GivesTheKnownAnswers) {
  // engine.md §10: (seed, sequence) and the first word of each.
  EXPECT_EQ(philox4x32(0, 0, 0), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(0, 1, 0)[0], 0xf8e4cca4U);
  EXPECT_EQ(philox4x32(42, 0, 21)[0], 0xe0020480U);
  EXPECT_EQ(philox4x32(~std::uint64_t{0}, 0, 300)[0], 0x9998fcf8U);
  EXPECT_EQ(philox4x32(1'000'000'049, 0, 24)[3], 0x6385c876U);
}

TEST(Noise, IsAccurateAndWithinItsBound) {
  const NoiseBound bound;
  constexpr std::uint32_t kNumValues = 1U << 24;
  double worst = 0.0;
  for (std::uint32_t m = 0; m < kNumValues; m += (m < 10'000 || m > kNumValues - 10'000) ? 1 : 61) {
    const std::uint32_t word = m << 8;
    const float noise = gumbel(word);
    ASSERT_LE(noise, bound(word)) << word;
    ASSERT_LE(noise, bound.largest()) << word;
    const double u = m * 0x1p-24 + 0x1p-25;
    const double exact = -std::log(-std::log(u));
    worst = std::max(worst, std::abs(noise - exact) / std::max(1.0, std::abs(exact)));
  }
  EXPECT_LT(worst, 3e-7);
}

TEST(Noise, TheLowEightBitsOfAWordDoNotMatter) {
  for (const std::uint32_t word : {0U, 0x12345600U, 0x80000000U, 0xFFFFFF00U}) {
    EXPECT_EQ(gumbel(word), gumbel(word | 0xFFU));
  }
}

TEST(Noise, HasTheSameBitsOnEveryMachine) {
  // Computed with exact rational arithmetic and explicit rounding. These bits belong to the meaning of a seed.
  EXPECT_EQ(gumbel(0x00000000U), -0x1.6d1a3ap+1F);
  EXPECT_EQ(gumbel(0x6627e8d5U), 0x1.5b6c6cp-4F);
  EXPECT_EQ(gumbel(0x80000000U), 0x1.774f3p-2F);
  EXPECT_EQ(gumbel(0xe169c58dU), 0x1.07e484p+1F);
  EXPECT_EQ(gumbel(0xFFFFFFFFU), 0x1.154246p+4F);
}

TEST(Noise, LogarithmIsAccurateOverItsRange) {
  for (float x = 1e-8F; x < 20.0F; x *= 1.0001F) {
    const double exact = std::log(static_cast<double>(x));
    ASSERT_NEAR(log_fma(x), exact, 1.2e-7 * std::abs(exact) + 1e-12) << x;
  }
  EXPECT_EQ(log_fma(1.0F), 0.0F);
}

TEST(Noise, ColumnsOfAGroupUseItsWordsInOrder) {
  const RandomKey key{.seed = 42, .position = 7};
  const auto words = noise_words(key, 3);
  for (std::int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(noise_at(key, 12 + i), gumbel(words[static_cast<std::size_t>(i)]));
  }
}

}  // namespace
}  // namespace deepinfer::sampling
