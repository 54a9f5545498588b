// Codes against the vectors of docs/spec/model.md section 14 and against exhaustive nearest-value searches.
// The goldens of the reference (codecs.json) are checked with the quantisers in tests/backends.
#include "tensor/formats.h"

#include <gtest/gtest.h>

#include <random>

namespace deepinfer {
namespace {

std::uint8_t nearest_e4m3(float x) {
  std::uint8_t best = 0;
  double best_distance = INFINITY;
  for (int code = 0; code < 127; ++code) {  // positive codes ascend with the value
    const double distance = std::abs(static_cast<double>(std::abs(x)) - e4m3_to_float(static_cast<std::uint8_t>(code)));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = static_cast<std::uint8_t>(code);
      best_distance = distance;
    }
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

std::uint8_t nearest_e2m1(float x) {
  std::uint8_t best = 0;
  double best_distance = INFINITY;
  for (int code = 0; code < 8; ++code) {
    const double distance = std::abs(static_cast<double>(std::abs(x)) - e2m1_to_float(static_cast<std::uint8_t>(code)));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = static_cast<std::uint8_t>(code);
      best_distance = distance;
    }
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 8 : 0));
}

TEST(Formats, EveryE4M3CodeRoundTrips) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(e4m3_to_float(static_cast<std::uint8_t>(code))));
      continue;
    }
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<std::uint8_t>(code))), code);
  }
  EXPECT_EQ(float_to_e4m3(1e30F), 0x7E);
  EXPECT_EQ(float_to_e4m3(-INFINITY), 0xFE);
  EXPECT_EQ(float_to_e4m3(-0.0F), 0x80);
}

TEST(Formats, ConversionsAreNearestWithTiesToEven) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-12.0F, 9.0F);
  for (int i = 0; i < 20000; ++i) {
    const float x = std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0F : -1.0F);
    ASSERT_EQ(float_to_e4m3(x), nearest_e4m3(x)) << x;
    ASSERT_EQ(float_to_e2m1(x), nearest_e2m1(x)) << x;
  }
  for (int code = 0; code < 126; ++code) {  // every tie between neighbours
    const float middle = (e4m3_to_float(static_cast<std::uint8_t>(code)) + e4m3_to_float(static_cast<std::uint8_t>(code + 1))) / 2;
    ASSERT_EQ(float_to_e4m3(middle), nearest_e4m3(middle)) << middle;
  }
  for (const float tie : {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, -0.25F, -5.0F, 7.0F, -0.0F}) {
    EXPECT_EQ(float_to_e2m1(tie), nearest_e2m1(tie)) << tie;
  }
}

TEST(Formats, PowerOfTwoScaleMatchesTheVectors) {
  const auto exponent = [](float amax, float maximum) { return power_of_two_scale(amax, maximum) - 127; };
  EXPECT_EQ(exponent(448, 448), 0);
  EXPECT_EQ(exponent(447.9F, 448), 0);
  EXPECT_EQ(exponent(448.1F, 448), 1);
  EXPECT_EQ(exponent(224, 448), -1);
  EXPECT_EQ(exponent(1, 448), -8);
  EXPECT_EQ(exponent(3.5F, 448), -7);
  EXPECT_EQ(exponent(7, 448), -6);
  EXPECT_EQ(exponent(0.875F, 448), -9);
  EXPECT_EQ(exponent(896, 448), 1);
  EXPECT_EQ(exponent(1e-4F, 448), -22);
  EXPECT_EQ(exponent(6, 6), 0);
  EXPECT_EQ(exponent(5.9F, 6), 0);
  EXPECT_EQ(exponent(6.1F, 6), 1);
  EXPECT_EQ(exponent(3, 6), -1);
  EXPECT_EQ(exponent(1, 6), -2);
  EXPECT_EQ(exponent(1.5F, 6), -2);
  EXPECT_EQ(exponent(0.75F, 6), -3);
  EXPECT_EQ(exponent(10, 6), 1);
}

TEST(Formats, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0F + 0x1p-8F)), 1.0F);                // tie, even below
  EXPECT_EQ(to_float(to_bf16(1.0F + 3 * 0x1p-8F)), 1.0F + 0x1p-6F);  // tie, even above
  EXPECT_EQ(to_float(to_bf16(1.0F + 0x1p-8F + 0x1p-20F)), 1.0F + 0x1p-7F);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(NAN))));
  EXPECT_EQ(to_float(to_bf16(3.4e38F)), INFINITY);
}

}  // namespace
}  // namespace deepinfer
