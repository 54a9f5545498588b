#include "weights/random_values.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tensor/formats.h"

namespace deepinfer::weights {
namespace {

std::vector<std::byte> filled(const ValueTable& table, std::uint64_t key, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  table.fill(key, 0, out);
  return out;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments(const std::vector<double>& values) {
  Moments out;
  for (const double value : values) {
    out.mean += value / static_cast<double>(values.size());
  }
  for (const double value : values) {
    out.deviation += (value - out.mean) * (value - out.mean) / static_cast<double>(values.size());
  }
  out.deviation = std::sqrt(out.deviation);
  return out;
}

TEST(RandomValues, NormalValuesHaveTheWantedMeanAndDeviation) {
  constexpr std::size_t kItems = 100'000;
  std::vector<double> floats;
  const std::vector<std::byte> f32 = filled(ValueTable::normal(DType::f32, 1.0F, 0.25F), 1, kItems * 4);
  for (std::size_t i = 0; i < kItems; ++i) {
    floats.push_back(reinterpret_cast<const float*>(f32.data())[i]);
  }
  EXPECT_NEAR(moments(floats).mean, 1.0, 0.01);
  EXPECT_NEAR(moments(floats).deviation, 0.25, 0.01);

  std::vector<double> codes;
  for (const std::byte byte : filled(ValueTable::normal(DType::f8_e4m3, 0, 127), 2, kItems)) {
    codes.push_back(e4m3_to_float(static_cast<std::uint8_t>(byte)));
  }
  EXPECT_NEAR(moments(codes).mean, 0, 2);
  EXPECT_NEAR(moments(codes).deviation, 127, 3);
}

TEST(RandomValues, Fp4CodesHaveTheStatedDeviation) {
  std::vector<double> codes;
  for (const std::byte byte : filled(ValueTable::fp4_pairs(), 3, 100'000)) {
    codes.push_back(e2m1_to_float(static_cast<std::uint8_t>(byte) & 15U));
    codes.push_back(e2m1_to_float(static_cast<std::uint8_t>(byte) >> 4U));
  }
  EXPECT_NEAR(moments(codes).mean, 0, 0.03);
  EXPECT_NEAR(moments(codes).deviation, kAnyFp4CodeDeviation, 0.03);
}

TEST(RandomValues, ScalesLieAroundTheExponent) {
  std::set<int> seen;
  for (const std::byte byte : filled(ValueTable::scales(-7), 4, 1000)) {
    seen.insert(static_cast<int>(byte));
  }
  EXPECT_EQ(seen, (std::set<int>{119, 120, 121}));
}

TEST(RandomValues, AnyPartOfATensorCanBeMadeAlone) {
  const ValueTable halves = ValueTable::normal(DType::bf16, 0, 1);
  const std::vector<std::byte> whole = filled(halves, 6, 402);
  std::vector<std::byte> tail(402 - 320);
  halves.fill(6, 160, tail);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), whole.begin() + 320));
}

TEST(RandomValues, KeysDependOnSeedAndName) {
  EXPECT_EQ(random_key(1, "a"), random_key(1, "a"));
  EXPECT_NE(random_key(1, "a"), random_key(2, "a"));
  EXPECT_NE(random_key(1, "ab"), random_key(1, "ba"));
  EXPECT_NE(filled(ValueTable::fp4_pairs(), random_key(1, "a"), 64), filled(ValueTable::fp4_pairs(), random_key(1, "b"), 64));
}

}  // namespace
}  // namespace deepinfer::weights
