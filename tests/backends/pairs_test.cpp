// Products with the instruction for pairs of bf16 against the order of sums that every other instruction set follows, bit by bit. Skipped where
// the processor does not have it.
#include "backends/cpu/fast/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tensor/formats.h"

namespace deepinfer::test {
namespace {

namespace pairs = cpu::pairs;

constexpr std::int32_t kBlocks = pairs::kPanelBlocks + 3;

float lower_value(std::uint32_t word) { return std::bit_cast<float>(word << 16U); }
float upper_value(std::uint32_t word) { return std::bit_cast<float>(word & 0xFFFF0000U); }

/// One unit of random codes without NaN and scales, in rows and packed.
struct RandomUnit {
  RandomUnit(WeightFormat unit_format, std::uint8_t least_scale, std::uint8_t most_scale, std::mt19937& random) : format(unit_format) {
    const std::int32_t row_bytes = bytes_of_row();
    rows.resize(static_cast<std::size_t>(16 * row_bytes));
    for (std::uint8_t& code : rows) {
      code = static_cast<std::uint8_t>(random());
      code = format == WeightFormat::fp8 && (code & 0x7FU) == 0x7FU ? 0x80 : code;
    }
    blocks.resize(rows.size());
    for (std::int32_t block = 0; block < kBlocks; ++block) {
      cpu::pack_block(format, rows.data() + block * row_bytes / kBlocks, row_bytes, 16, blocks.data() + block * cpu::block_bytes(format));
    }
    scales.resize(static_cast<std::size_t>(kBlocks * (format == WeightFormat::fp8 ? 1 : 16)));
    for (std::uint8_t& scale : scales) {
      scale = static_cast<std::uint8_t>(least_scale + random() % (most_scale - least_scale + 1U));
    }
  }

  [[nodiscard]] std::int32_t bytes_of_row() const { return format == WeightFormat::fp8 ? 32 * kBlocks : 16 * kBlocks; }
  [[nodiscard]] cpu::UnitBlocks packed() const { return {format, blocks.data(), scales.data(), kBlocks}; }
  [[nodiscard]] cpu::UnitBlocks packed_panel(std::int32_t panel) const {
    const std::int32_t first = panel * pairs::kPanelBlocks;
    return {format, blocks.data() + first * cpu::block_bytes(format), scales.data() + first * (format == WeightFormat::fp8 ? 1 : 16),
            std::min(pairs::kPanelBlocks, kBlocks - first)};
  }
  [[nodiscard]] float value(std::int32_t column, std::int32_t k) const {
    const std::uint8_t* row = rows.data() + column * bytes_of_row();
    return format == WeightFormat::fp8 ? e4m3_to_float(row[k]) : e2m1_to_float(k % 2 == 0 ? row[k / 2] & 15U : row[k / 2] >> 4U);
  }
  [[nodiscard]] float scale(std::int32_t column, std::int32_t block) const {
    return ue8m0_to_float(scales[static_cast<std::size_t>(format == WeightFormat::fp8 ? block : block * 16 + column)]);
  }

  WeightFormat format;
  std::vector<std::uint8_t> rows;
  std::vector<std::uint8_t> blocks;
  std::vector<std::uint8_t> scales;
};

/// Random Q8 rows and their words.
struct RandomRows {
  RandomRows(pairs::Tiling row_tiling, std::mt19937& random) : codes(static_cast<std::size_t>(row_tiling.rows * kWidth)), tiling(row_tiling) {
    for (std::uint8_t& code : codes) {
      code = static_cast<std::uint8_t>(random());
      code = (code & 0x7FU) == 0x7FU && random() % 8 != 0 ? 0 : code;  // a few NaN
    }
    scales.resize(codes.size() / 32);
    for (std::uint8_t& scale : scales) {
      scale = static_cast<std::uint8_t>(60 + random() % 130);
    }
    words.resize(static_cast<std::size_t>(tiling.num_words(kBlocks)));
    for (std::int32_t tile = 0; tile < tiling.count; ++tile) {
      for (std::int32_t i = 0; i < tiling.size(tile); ++i) {
        for (std::int32_t panel = 0; panel * pairs::kPanelBlocks < kBlocks; ++panel) {
          const std::int32_t block = (tiling.first_row(tile) + i) * kBlocks + panel * pairs::kPanelBlocks;
          const std::int32_t width = 32 * std::min(pairs::kPanelBlocks, kBlocks - panel * pairs::kPanelBlocks);
          std::uint32_t* out = words.data() + tiling.offset(panel, tile) + std::int64_t{i} * pairs::kBlockWords;
          const std::int64_t stride = std::int64_t{tiling.size(tile)} * pairs::kBlockWords;
          static_cast<void>(pairs::decode_q8_row(codes.data() + std::int64_t{32} * block, scales.data() + block, width, stride, out));
        }
      }
    }
  }

  static constexpr std::int32_t kWidth = 32 * kBlocks;
  [[nodiscard]] float value(std::int32_t row, std::int32_t k) const {
    return e4m3_to_float(codes[static_cast<std::size_t>(row * kWidth + k)]) * ue8m0_to_float(scales[static_cast<std::size_t>(row * kBlocks + k / 32)]);
  }
  [[nodiscard]] pairs::Rows packed() const { return {words.data(), tiling}; }

  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<std::uint32_t> words;
  pairs::Tiling tiling;
};

/// The order of units-inl.h, in plain words.
float add_in_order(const RandomRows& x, std::int32_t row, const RandomUnit& w, std::int32_t column) {
  float total = 0;
  for (std::int32_t block = 0; block < kBlocks; ++block) {
    float even = 0;
    float odd = 0;
    for (std::int32_t k = 32 * block; k < 32 * (block + 1); k += 2) {
      even = std::fma(x.value(row, k), w.value(column, k), even);
      odd = std::fma(x.value(row, k + 1), w.value(column, k + 1), odd);
    }
    total = std::fma(even + odd, w.scale(column, block), total);
  }
  return total;
}

void expect_same(float got, float want, std::int32_t rows, std::int32_t row, std::int32_t column) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << rows << " rows, " << row << ", " << column;
  } else {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << rows << " rows, " << row << ", " << column;
  }
}

class PairProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (!pairs::is_usable()) {
      GTEST_SKIP() << "this processor has no AVX512_BF16 or no look-ups of bytes";
    }
  }

  std::mt19937 random_{20261201};
};

TEST_F(PairProducts, InstructionAddsUpperThenLowerProductsEachWithOneRounding) {
  std::normal_distribution<float> normal;
  const auto random_half = [&] {
    const float value = std::ldexp(normal(random_), static_cast<int>(random_() % 60) - 30);
    return std::bit_cast<std::uint32_t>(value) >> 16U;
  };
  for (int round = 0; round < 20000; ++round) {
    std::array<std::uint32_t, 16> a{};
    std::array<std::uint32_t, 16> b{};
    std::array<float, 16> acc{};
    std::array<float, 16> want{};
    for (std::size_t i = 0; i < 16; ++i) {
      a[i] = random_half() << 16U | random_half();
      b[i] = random_half() << 16U | random_half();
      acc[i] = std::ldexp(normal(random_), static_cast<int>(random_() % 60) - 30);
      want[i] = std::fma(lower_value(a[i]), lower_value(b[i]), std::fma(upper_value(a[i]), upper_value(b[i]), acc[i]));
    }
    pairs::add_pair_products(a.data(), b.data(), acc.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(acc[i]), std::bit_cast<std::uint32_t>(want[i])) << round << ", " << i;
    }
  }
}

TEST_F(PairProducts, DecodesEveryActivationCodeToItsPlaceWithEveryUsualScale) {
  for (std::int32_t scale = 20; scale < 235; ++scale) {
    std::vector<std::uint8_t> codes(256 + 32);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(i % 256);
    }
    const std::vector<std::uint8_t> scales(codes.size() / 32, static_cast<std::uint8_t>(scale));
    std::vector<std::uint32_t> words(codes.size() / 2);
    const auto width = static_cast<std::int32_t>(codes.size());
    const cpu::ScaleRange range = pairs::decode_q8_row(codes.data(), scales.data(), width, pairs::kBlockWords, words.data());
    EXPECT_EQ(range.least, scale);
    EXPECT_EQ(range.most, scale);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::uint32_t word = words[i / 4 * 2 + i % 2];
      const float want = e4m3_to_float(codes[i]) * ue8m0_to_float(static_cast<std::uint8_t>(scale));
      expect_same(i % 4 < 2 ? upper_value(word) : lower_value(word), want, scale, static_cast<std::int32_t>(i), codes[i]);
    }
  }
}

TEST_F(PairProducts, AddInTheOrderOfEveryOtherInstructionSet) {
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::fp4}) {
    for (const std::int32_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 65}) {
      const RandomRows x(pairs::tiling(rows, pairs::kFewTileRows), random_);
      const RandomUnit w(format, 0, 255, random_);
      std::vector<float> sums(static_cast<std::size_t>(rows * 16));
      pairs::multiply(x.packed(), w.packed(), sums.data());
      for (std::int32_t row = 0; row < rows; ++row) {
        for (std::int32_t column = 0; column < 16; ++column) {
          expect_same(sums[static_cast<std::size_t>(row * 16 + column)], add_in_order(x, row, w, column), rows, row, column);
        }
      }
    }
  }
}

TEST_F(PairProducts, OfPanelsAddInTheSameOrder) {
  struct alignas(64) Panel {
    std::uint32_t words[pairs::kPanelWords];
  };
  struct alignas(64) RowSums {
    float columns[pairs::kPanelColumns];
  };
  const auto panel = std::make_unique<Panel>();
  for (const WeightFormat format : {WeightFormat::fp8, WeightFormat::fp4}) {
    for (const std::int32_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 33, 65}) {
      const RandomRows x(pairs::tiling(rows, pairs::kPanelTileRows), random_);
      const RandomUnit units[2] = {{format, 107, 147, random_}, {format, 107, 147, random_}};
      std::vector<RowSums> sums(static_cast<std::size_t>(rows));
      for (std::int32_t i = 0; i * pairs::kPanelBlocks < kBlocks; ++i) {
        const std::array codes = {units[0].packed_panel(i), units[1].packed_panel(i)};
        pairs::multiply_panel(x.packed(), i, {codes, codes}, panel->words, sums[0].columns);
      }
      for (std::int32_t row = 0; row < rows; ++row) {
        for (std::int32_t column = 0; column < pairs::kPanelColumns; ++column) {
          expect_same(sums[static_cast<std::size_t>(row)].columns[column], add_in_order(x, row, units[column / 16], column % 16), rows, row, column);
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
