// The matrix unit of x86 processors against the order of sums that every other instruction set follows, bit by bit. Skipped where there is none.
#include "backends/cpu/fast/amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "backends/cpu/fast/packed_weights.h"
#include "tensor/formats.h"

namespace deepinfer::test {
namespace {

namespace amx = cpu::amx;

float value_of(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

/// The order of units-inl.h, in plain words.
float block_sum(const std::uint16_t* x, const std::uint16_t* tile, std::int32_t column, float total) {
  float even = 0;
  float odd = 0;
  for (std::int32_t pair = 0; pair < 16; ++pair) {
    even = std::fma(value_of(x[2 * pair]), value_of(tile[32 * pair + 2 * column]), even);
    odd = std::fma(value_of(x[2 * pair + 1]), value_of(tile[32 * pair + 2 * column + 1]), odd);
  }
  return total + (even + odd);
}

class MatrixUnit : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx::is_usable()) {
      GTEST_SKIP() << "this machine has no matrix unit";
    }
  }

  std::uint16_t random_value(int exponents) {
    const float value = std::ldexp(normal_(random_), static_cast<int>(random_() % static_cast<unsigned>(exponents)) - exponents / 2);
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  }

  std::mt19937 random_{20261201};
  std::normal_distribution<float> normal_;
};

TEST_F(MatrixUnit, AddsInTheOrderOfEveryOtherInstructionSet) {
  constexpr std::int32_t kBlocks = 5;
  for (const std::int32_t rows : {1, 3, 16, 17, 31, 32, 40, 65}) {
    for (const std::int32_t units : {1, 2, 3, 4}) {
      const amx::Tiling tiling = amx::tiling(rows);
      const std::int32_t block_size = tiling.rows * amx::kTileDepth;
      std::vector<std::uint16_t> x(static_cast<std::size_t>(tiling.padded() * kBlocks * amx::kTileDepth));
      std::vector<std::uint16_t> panel(static_cast<std::size_t>(units * kBlocks * amx::kTileBytes / 2));
      for (auto* values : {&x, &panel}) {
        for (std::uint16_t& value : *values) {
          value = random_value(24);
        }
      }
      std::vector<float> sums(static_cast<std::size_t>(tiling.padded() * units * 16), 7.0F);
      amx::configure(tiling);
      amx::multiply(tiling, {x.data(), kBlocks, 0}, {panel.data(), units, kBlocks}, {sums.data(), true});
      amx::multiply(tiling, {x.data(), kBlocks, 0}, {panel.data(), units, kBlocks}, {sums.data(), false});
      amx::release();
      for (std::int32_t row = 0; row < rows; ++row) {
        for (std::int32_t column = 0; column < 16 * units; ++column) {
          float want = 0;
          for (std::int32_t block = 0; block < 2 * kBlocks; ++block) {
            const std::int32_t tile = column / 16 * kBlocks + block % kBlocks;
            const std::int32_t x_tile = row / tiling.rows * kBlocks + block % kBlocks;
            want = block_sum(x.data() + x_tile * block_size + row % tiling.rows * 32, panel.data() + tile * 512, column % 16, want);
          }
          const float got = sums[static_cast<std::size_t>(row * units * 16 + column)];
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << rows << " rows, " << row << ", " << column;
        }
      }
    }
  }
}

TEST_F(MatrixUnit, DecodesEveryActivationCodeWithEveryUsualScale) {
  for (std::int32_t scale = 20; scale < 235; ++scale) {
    std::vector<std::uint8_t> codes(256 + 32);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(i % 256);
    }
    const std::vector<std::uint8_t> scales(codes.size() / 32, static_cast<std::uint8_t>(scale));
    std::vector<std::uint16_t> out(codes.size());
    const cpu::ScaleRange range = amx::decode_q8_row(codes.data(), scales.data(), static_cast<std::int32_t>(codes.size()), 32, out.data());
    EXPECT_EQ(range.least, scale);
    EXPECT_EQ(range.most, scale);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float want = e4m3_to_float(codes[i]) * ue8m0_to_float(static_cast<std::uint8_t>(scale));
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(value_of(out[i])));
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value_of(out[i])), std::bit_cast<std::uint32_t>(want)) << int{codes[i]};
      }
    }
  }
}

TEST_F(MatrixUnit, ScalesOfZerosDoNotCount) {
  std::vector<std::uint8_t> codes(64, 0x80);
  codes[40] = 0x01;
  const std::vector<std::uint8_t> scales = {3, 120};
  std::vector<std::uint16_t> out(64);
  const cpu::ScaleRange range = amx::decode_q8_row(codes.data(), scales.data(), 64, 32, out.data());
  EXPECT_EQ(range.least, 120);
  EXPECT_EQ(range.most, 120);
}

TEST_F(MatrixUnit, DecodesEveryWeightCodeToItsPlace) {
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::fp4}) {
    for (std::int32_t first = 0; first < 256; first += 16) {
      const std::int32_t row_bytes = format == WeightFormat::fp8 ? 32 : 16;
      std::vector<std::uint8_t> rows(static_cast<std::size_t>(16 * row_bytes));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<std::uint8_t>(static_cast<std::size_t>(first) + i * 7);
        rows[i] = format == WeightFormat::fp8 && (rows[i] & 0x7FU) == 0x7FU ? 0x80 : rows[i];  // weights hold no NaN
      }
      std::vector<std::uint8_t> block(rows.size());
      cpu::pack_block(format, rows.data(), row_bytes, 16, block.data());
      std::vector<std::uint8_t> scales(16);
      for (std::size_t column = 0; column < scales.size(); ++column) {
        scales[column] = static_cast<std::uint8_t>(format == WeightFormat::fp8 ? 100 + first / 8 : 100 + 3 * column);
      }
      alignas(64) std::uint16_t tile[512];
      amx::decode({format, block.data(), scales.data(), 1}, tile);
      for (std::int32_t column = 0; column < 16; ++column) {
        for (std::int32_t k = 0; k < 32; ++k) {
          const std::uint8_t byte = rows[static_cast<std::size_t>(column * row_bytes + (format == WeightFormat::fp8 ? k : k / 2))];
          const float code = format == WeightFormat::fp8 ? e4m3_to_float(byte) : e2m1_to_float(k % 2 == 0 ? byte & 15U : byte >> 4U);
          const float want = code * ue8m0_to_float(scales[static_cast<std::size_t>(column)]);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(value_of(tile[32 * (k / 2) + 2 * column + k % 2])), std::bit_cast<std::uint32_t>(want))
              << column << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
