// Attention with the instruction for pairs of bf16: its scores and value sums against the plain order of their additions, and whole queries on every
// unit, with numbers that the instruction takes for zero.
#include "backends/cpu/fast/attention_pairs.h"

#include <gtest/gtest.h>

#include <hwy/targets.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/fast/pairs.h"
#include "backends/implementations.h"
#include "backends/op_cases/op_case.h"

namespace deepinfer::test {
namespace {

namespace kernels = cpu::attention_pairs;

constexpr std::int32_t kWidth = 64;
constexpr std::int32_t kCount = 40;  // keys, with what is read behind some of them

float upper(std::uint32_t word) { return std::bit_cast<float>(word & 0xFFFF0000U); }
float lower(std::uint32_t word) { return std::bit_cast<float>(word << 16U); }

std::uint32_t random_word(std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto bits = [&] {
    const float value = std::ldexp(normal(random), static_cast<int>(random() % 24) - 12);
    return std::uint32_t{std::bit_cast<std::uint16_t>(to_bf16(value))};
  };
  const std::uint32_t first = bits();
  return first << 16U | bits();
}

struct Words {
  std::vector<std::uint32_t> query = std::vector<std::uint32_t>(kWidth / 2 * kernels::kHeads);
  std::vector<std::uint32_t> keys = std::vector<std::uint32_t>(kCount * kWidth / 2);
  std::vector<std::uint32_t> probabilities = std::vector<std::uint32_t>(kCount / 2 * kernels::kHeads);
  std::array<const std::uint32_t*, kCount> rows{};

  Words() {
    std::mt19937 random(20261202);
    for (std::vector<std::uint32_t>* words : {&query, &keys, &probabilities}) {
      for (std::uint32_t& word : *words) {
        word = random_word(random);
      }
    }
    for (std::size_t j = 0; j < rows.size(); ++j) {
      rows[j] = keys.data() + j * kWidth / 2;
    }
  }

  [[nodiscard]] float score(std::size_t key, std::size_t head) const {
    float sum = 0;
    for (std::size_t i = 0; i < kWidth / 2; ++i) {
      const std::uint32_t q = query[i * kernels::kHeads + head];
      sum = std::fma(upper(q), upper(rows[key][i]), sum);
      sum = std::fma(lower(q), lower(rows[key][i]), sum);
    }
    return sum;
  }
};

TEST(AttentionPairs, ScoresAddTheColumnsInOrder) {
  if (!cpu::pairs::is_usable()) {
    GTEST_SKIP() << "no AVX512_BF16 here";
  }
  Words words;
  for (const std::int32_t count : {1, 7, 8, 16, 23}) {
    std::vector<float> all(kCount * kernels::kHeads);
    kernels::score_all_heads(words.query.data(), {words.rows.data(), count, kWidth}, all.data());
    Words twice = words;
    for (std::size_t i = 0; i < twice.query.size(); ++i) {
      twice.query[i] = words.query[i - i % 16 + i % 8];
    }
    std::vector<float> few(kCount * kernels::kHeads);
    kernels::score_few_heads(twice.query.data(), {words.rows.data(), count, kWidth}, few.data());
    for (std::size_t key = 0; key < static_cast<std::size_t>(count); ++key) {
      for (std::size_t head = 0; head < 16; ++head) {
        ASSERT_EQ(all[key * 16 + head], words.score(key, head));
        ASSERT_EQ(few[key * 8 + head % 8], words.score(key, head % 8));
      }
    }
  }
}

TEST(AttentionPairs, ValuesAddTheKeysInOrder) {
  if (!cpu::pairs::is_usable()) {
    GTEST_SKIP() << "no AVX512_BF16 here";
  }
  const Words words;
  for (const std::int32_t count : {2, 10, kCount}) {
    for (const std::size_t stride : {8U, 16U}) {
      std::vector<float> values(kernels::kFewHeads * kWidth);
      kernels::sum_values({words.rows.data(), count, kWidth}, words.probabilities.data(), static_cast<std::int64_t>(stride), values.data());
      for (std::size_t head = 0; head < kernels::kFewHeads; ++head) {
        for (std::size_t column = 0; column < kWidth; ++column) {
          float sum = 0;
          for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
            const std::uint32_t p = words.probabilities[j / 2 * stride + head];
            const std::uint32_t key = words.rows[j][column / 2];
            sum = std::fma(j % 2 == 0 ? upper(p) : lower(p), column % 2 == 0 ? upper(key) : lower(key), sum);
          }
          ASSERT_EQ(values[head * kWidth + column], sum);
        }
      }
    }
  }
}

/// What makes numbers small.
struct Extremes {
  float query = 1;         ///< factor of all queries
  int least_scale = 120;   ///< of window rows, exponent bytes
  int most_scale = 124;
};

/// Every row of a chunk sees all rows: an odd number of keys.
std::vector<bf16> attend_all_rows(const Implementation& implementation, std::int32_t heads, const Extremes& extremes) {
  constexpr std::int32_t kRows = 13;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<bf16> q(static_cast<std::size_t>(kRows * heads * kWidth));
  for (bf16& value : q) {
    value = to_bf16(normal(random) * extremes.query);
  }
  std::vector<std::uint8_t> own(kRows * window_record_bytes(kWidth));
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool is_scale = i % window_record_bytes(kWidth) >= kWidth;
    const auto code = static_cast<std::uint8_t>(random() % 4 == 0 ? random() % 255 : 0);  // most are zero, so that small products are seen
    own[i] = is_scale ? static_cast<std::uint8_t>(std::uniform_int_distribution<int>(extremes.least_scale, extremes.most_scale)(random))
                      : ((code & 0x7FU) == 0x7FU ? std::uint8_t{0} : code);
  }
  std::vector<std::int32_t> position(kRows);
  for (std::int32_t r = 0; r < kRows; ++r) {
    position[static_cast<std::size_t>(r)] = r;
  }
  const std::unique_ptr<Device> device = make_implementation(implementation);
  OpMemory memory(*device);
  const auto ones = [&](std::size_t count, float value) { return memory.put(std::vector<float>(count, value)); };
  const auto ints = [&](std::size_t count, std::int32_t value) { return memory.put(std::vector<std::int32_t>(count, value)); };
  auto* o = memory.room<bf16>(q.size());
  device->ops().attend(memory.stream(), {.rows = {kRows, memory.put(position), ints(kRows, 0)},
                                         .chunks = {.num_chunks = 1,
                                                    .first_row = ints(1, 0),
                                                    .num_rows = ints(1, kRows),
                                                    .first_position = ints(1, 0),
                                                    .slot = ints(1, 0)},
                                         .heads = heads,
                                         .head_dim = kWidth,
                                         .rope_dim = 16,
                                         .ring_rows = 32,
                                         .q = memory.put(q),
                                         .own = memory.put(own),
                                         .ring = nullptr,
                                         .window_low = ints(kRows, 0),
                                         .window_high = ints(kRows, kRows - 1),
                                         .max_window = kRows,
                                         .sink = ones(static_cast<std::size_t>(heads), -1e30F),
                                         .rope = {ones(kRows * 8, 1), ones(kRows * 8, 0)},
                                         .o = o,
                                         .q8 = {}});
  return memory.read(o, q.size());
}

TEST(AttentionPairs, SmallNumbersAreKept) {
  std::vector<Implementation> implementations = fast_implementations();
  // These round products on their own.
  std::erase_if(implementations, [](const Implementation& i) { return i.target == HWY_SSE4 || i.target == HWY_SCALAR; });
  for (const Extremes& extremes : {Extremes{}, Extremes{.query = 1e-37F}, Extremes{.query = 1e-39F}, Extremes{.query = 60, .least_scale = 118},
                                   Extremes{.least_scale = 1, .most_scale = 12}, Extremes{.query = 1e-20F, .least_scale = 50, .most_scale = 70},
                                   Extremes{.query = 1e30F, .least_scale = 0, .most_scale = 20}}) {
    for (const std::int32_t heads : {3, 8, 11, 24}) {
      std::vector<std::uint16_t> first;
      for (const Implementation& implementation : implementations) {
        std::vector<std::uint16_t> bits;
        for (const bf16 value : attend_all_rows(implementation, heads, extremes)) {
          bits.push_back(std::bit_cast<std::uint16_t>(value));
        }
        first = first.empty() ? bits : first;
        ASSERT_EQ(bits, first) << implementation.name << ", " << heads << " heads, query " << extremes.query << ", scales from "
                               << extremes.least_scale;
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
