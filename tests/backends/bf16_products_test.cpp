// Products with bf16 weights against the order of their sums in plain words, bit by bit, on every instruction set and unit: values that units
// which flush small numbers must not see, infinities and NaN included.
#include <gtest/gtest.h>

#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/implementations.h"
#include "backends/op_cases/op_case.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kMostRows = 37;

/// The order of units-inl.h.
float plain_sum(const bf16* x, const bf16* w, std::int32_t k) {
  float total = 0;
  for (std::int32_t begin = 0; begin < k; begin += 32) {
    float half[2] = {0, 0};
    for (std::int32_t i = begin; i < std::min(begin + 32, k); ++i) {
      half[i % 2] = std::fma(to_float(x[i]), to_float(w[i]), half[i % 2]);
    }
    total += half[0] + half[1];
  }
  return total;
}

struct Matrices {
  std::int32_t n, k;
  std::vector<bf16> x;  // [kMostRows, k]
  std::vector<bf16> w;  // [n, k]
};

class Bf16Products : public testing::TestWithParam<Implementation> {
 protected:
  /// Normal numbers times 2^e, e in [least, most].
  std::vector<bf16> random_values(std::int32_t count, int least, int most) {
    std::vector<bf16> out(static_cast<std::size_t>(count));
    for (bf16& value : out) {
      value = to_bf16(std::ldexp(normal_(random_), std::uniform_int_distribution<int>(least, most)(random_)));
    }
    return out;
  }
  Matrices matrices(std::int32_t n, std::int32_t k, int least, int most) {
    return {n, k, random_values(kMostRows * k, least, most), random_values(n * k, least, most)};
  }

  static void expect_plain_sums(const Matrices& m) {
    const std::unique_ptr<Device> device = make_implementation(GetParam());
    OpMemory memory(*device);
    const bf16* x = memory.put(m.x);
    expect_plain_sums(m, x, Bf16Weight{memory.put(m.w)}, memory);
    expect_plain_sums(m, x, put_bf16_weight(memory, m.w, m.n, m.k), memory);
    EXPECT_TRUE(memory.guards_intact());
  }

  static void expect_plain_sums(const Matrices& m, const bf16* x, const Bf16Weight& w, OpMemory& memory) {
    SCOPED_TRACE(w.layout == WeightLayout::rows ? "rows" : "units");
    for (const std::int32_t rows : {1, 2, 3, 6, 8, 9, 16, kMostRows}) {
      const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(m.n);
      auto* y = memory.room<float>(count);
      memory.ops().linear_bf16(memory.stream(), {.num_rows = rows, .n = m.n, .k = m.k, .x = x, .weight = w, .y_f32 = y});
      const std::vector<float> got = memory.read(y, count);
      for (std::int32_t row = 0; row < rows; ++row) {
        for (std::int32_t column = 0; column < m.n; ++column) {
          const float want = plain_sum(m.x.data() + row * m.k, m.w.data() + column * m.k, m.k);
          const float own = got[static_cast<std::size_t>(row * m.n + column)];
          ASSERT_TRUE(std::isnan(want) ? std::isnan(own) : std::bit_cast<std::uint32_t>(own) == std::bit_cast<std::uint32_t>(want))
              << rows << " rows, " << row << ", " << column << ": " << own << ", not " << want;
        }
      }
    }
  }

  std::mt19937 random_{20261202};
  std::normal_distribution<float> normal_;
};

TEST_P(Bf16Products, AddInOneOrder) {
  for (const auto& [n, k] : {std::pair{16, 32}, {80, 320}, {72, 1056}, {5, 64}, {40, 50}, {33, 3}}) {
    SCOPED_TRACE(std::to_string(n) + ", " + std::to_string(k));
    expect_plain_sums(matrices(n, k, -12, 12));
  }
}

TEST_P(Bf16Products, InfinitiesAndNotANumberStayWhereTheyAre) {
  Matrices m = matrices(48, 96, -3, 3);
  m.x[2 * 96 + 40] = to_bf16(std::numeric_limits<float>::infinity());
  m.x[7 * 96 + 41] = to_bf16(std::nanf(""));
  m.x[8 * 96] = to_bf16(3e38F);
  m.w[20 * 96 + 95] = to_bf16(-std::numeric_limits<float>::infinity());
  m.w[45 * 96 + 1] = to_bf16(std::nanf(""));
  m.w[46 * 96] = to_bf16(-3e38F);
  expect_plain_sums(m);
}

class SmallBf16Products : public Bf16Products {};

TEST_P(SmallBf16Products, AreKept) {
  // Products below 2^-126, sums below it, single subnormal numbers in one row and one column, and all of them subnormal.
  expect_plain_sums(matrices(48, 320, -70, -55));
  expect_plain_sums(matrices(48, 320, -62, -58));
  Matrices m = matrices(80, 320, -3, 3);
  m.x[5 * 320 + 77] = std::bit_cast<bf16>(std::uint16_t{0x0001});
  m.w[33 * 320 + 200] = std::bit_cast<bf16>(std::uint16_t{0x8040});
  m.w[70 * 320 + 77] = to_bf16(1e-30F);
  expect_plain_sums(m);
  m.x = random_values(kMostRows * 320, -132, -128);
  expect_plain_sums(m);
}

/// Without fused multiply-adds products of such numbers are rounded on their own.
std::vector<Implementation> implementations_with_fused_products() {
  std::vector<Implementation> out = fast_implementations();
  std::erase_if(out, [](const Implementation& i) { return i.target == HWY_SSE4 || i.target == HWY_SCALAR; });
  return out;
}

std::string name_of_test(const testing::TestParamInfo<Implementation>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Implementations, Bf16Products, testing::ValuesIn(fast_implementations()), name_of_test);
INSTANTIATE_TEST_SUITE_P(Implementations, SmallBf16Products, testing::ValuesIn(implementations_with_fused_products()), name_of_test);
// A machine may have none of them.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SmallBf16Products);

}  // namespace
}  // namespace deepinfer::test
