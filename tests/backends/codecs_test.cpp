// Number formats in scalar and vector form: goldens of the Python reference, every code and every bf16 value, bit for bit.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backends/cpu/block_codecs.h"
#include "backends/implementations.h"
#include "backends/vector_forms.h"
#include "support/golden_file.h"

namespace deepinfer::test {
namespace {

/// The vector forms of every instruction set of this machine, by name.
std::vector<std::pair<std::string, VectorForms>> all_forms() {
  std::vector<std::pair<std::string, VectorForms>> out;
  for (const Implementation& implementation : fast_implementations()) {
    if (implementation.num_threads == 1) {
      hwy::SetSupportedTargetsForTest(implementation.target);
      out.emplace_back(implementation.name, vector_forms());
      hwy::SetSupportedTargetsForTest(0);
    }
  }
  return out;
}

std::vector<float> widen(const std::vector<bf16>& values) {
  std::vector<float> out(values.size());
  std::ranges::transform(values, out.begin(), to_float);
  return out;
}

using ScalarQuantiser = void (*)(const bf16*, std::int32_t, std::uint8_t*, std::uint8_t*);
using VectorQuantiser = void (*)(const float*, std::int32_t, std::uint8_t*, std::uint8_t*);

struct Format {
  std::string name;
  ScalarQuantiser scalar;
  VectorQuantiser VectorForms::*vector;
  std::int32_t group;
  std::int32_t values_per_byte;
};

std::vector<Format> formats() {
  return {{"q8", cpu::quantise_q8, &VectorForms::quantise_q8, kQ8Group, 1},
          {"q4_index", cpu::quantise_q4_index, &VectorForms::quantise_q4_index, kQ4IndexGroup, 2},
          {"q4_kv", cpu::quantise_q4_kv, &VectorForms::quantise_q4_kv, kQ4KvGroup, 2}};
}

/// Codes, then scales.
std::vector<std::uint8_t> quantise(const Format& format, const std::vector<bf16>& x) {
  std::vector<std::uint8_t> out(x.size() / format.values_per_byte + x.size() / format.group);
  format.scalar(x.data(), static_cast<std::int32_t>(x.size()), out.data(), out.data() + x.size() / format.values_per_byte);
  return out;
}

std::vector<std::uint8_t> quantise(const Format& format, const VectorForms& forms, const std::vector<bf16>& x) {
  const std::vector<float> values = widen(x);
  std::vector<std::uint8_t> out(x.size() / format.values_per_byte + x.size() / format.group);
  (forms.*format.vector)(values.data(), static_cast<std::int32_t>(x.size()), out.data(), out.data() + x.size() / format.values_per_byte);
  return out;
}

std::vector<std::uint8_t> pack(const std::vector<std::uint8_t>& codes, std::int32_t values_per_byte) {
  if (values_per_byte == 1) {
    return codes;
  }
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    out.push_back(static_cast<std::uint8_t>(codes[i] | codes[i + 1] << 4));
  }
  return out;
}

TEST(Codecs, QuantisersGiveTheGoldenCodes) {
  const GoldenFile file(std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens/codecs.safetensors");
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    const auto x = file.values<bf16>(format.name + ".input");
    std::vector<std::uint8_t> expected = pack(file.values<std::uint8_t>(format.name + ".codes"), format.values_per_byte);
    std::ranges::copy(file.values<std::uint8_t>(format.name + ".scales"), std::back_inserter(expected));
    EXPECT_EQ(quantise(format, x), expected);
    for (const auto& [name, forms] : all_forms()) {
      EXPECT_EQ(quantise(format, forms, x), expected) << name;
    }
  }
}

TEST(Codecs, StoredWeightsDecodeToTheGoldenValues) {
  const GoldenFile file(std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens/codecs.safetensors");
  const auto fp8 = file.values<std::uint8_t>("fp8_weight.weight");
  const auto fp8_scale = file.values<std::uint8_t>("fp8_weight.scale");
  const auto fp8_value = file.values<float>("fp8_weight.dequantized");
  const auto fp4 = file.values<std::uint8_t>("fp4_weight.weight");
  const auto fp4_scale = file.values<std::uint8_t>("fp4_weight.scale");
  const auto fp4_value = file.values<float>("fp4_weight.dequantized");
  for (std::size_t i = 0; i < fp8_value.size(); ++i) {
    const std::size_t row = i / 96;
    const std::size_t column = i % 96;
    ASSERT_EQ(e4m3_to_float(fp8[i]) * ue8m0_to_float(fp8_scale[row / 32 * 3 + column / 32]), fp8_value[i]) << i;
    ASSERT_EQ(cpu::q4_index_value(fp4.data() + row * 48, fp4_scale.data() + row * 3, static_cast<std::int64_t>(column)), fp4_value[i]) << i;
  }
}

TEST(Codecs, EveryBf16ValueQuantisesAlikeInVectorForm) {
  // Every finite bf16 value in every position, beside values of its own size so that its code is not always zero.
  const auto forms = all_forms();
  for (const Format& format : formats()) {
    std::vector<bf16> x;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      if ((bits & 0x7F80U) != 0x7F80U) {
        x.push_back({static_cast<std::uint16_t>(bits)});
      }
    }
    std::mt19937 random(7);
    for (int order = 0; order < 3; ++order) {  // by size, then in random company
      x.resize(x.size() / 32 * 32);
      const std::vector<std::uint8_t> expected = quantise(format, x);
      for (const auto& [name, form] : forms) {
        ASSERT_EQ(quantise(format, form, x), expected) << format.name << " on " << name << " in order " << order;
      }
      std::ranges::shuffle(x, random);
    }
  }
}

TEST(Codecs, EveryTieIsRoundedAlike) {
  // Multiples of half a step around every code, for scales that the largest value of the group fixes.
  const auto forms = all_forms();
  for (const Format& format : formats()) {
    std::vector<bf16> x;
    for (int largest = 1; largest < 256; ++largest) {
      for (std::int32_t i = 0; i < 32; ++i) {
        const float value = static_cast<float>(largest) * static_cast<float>(i % 16 + 1) / 16.0F;
        x.push_back(to_bf16(i % 2 == 0 ? value : -value));
      }
    }
    const std::vector<std::uint8_t> expected = quantise(format, x);
    for (const auto& [name, form] : forms) {
      EXPECT_EQ(quantise(format, form, x), expected) << format.name << " on " << name;
    }
  }
}

TEST(Codecs, NotANumberKeepsItsPlaceInQ8) {
  const float nan = std::nanf("");
  for (const auto& [name, forms] : all_forms()) {
    std::vector<bf16> x(32, to_bf16(1.0F));
    x[5] = to_bf16(nan);
    const std::vector<std::uint8_t> stored = quantise(formats()[0], forms, x);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ((stored[i] & 0x7FU) == 0x7FU, i == 5) << name << " " << i;
    }
    std::vector<float> plain(32);
    forms.decode_q8_plain(stored.data(), stored.data() + 32, plain.data());
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(std::isnan(plain[i]), i == 5) << name << " " << i;
    }
    x[5] = to_bf16(INFINITY);  // an infinite group reads as NaN
    const std::vector<std::uint8_t> infinite = quantise(formats()[0], forms, x);
    forms.decode_q8_plain(infinite.data(), infinite.data() + 32, plain.data());
    EXPECT_TRUE(std::isnan(plain[5])) << name;
  }
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

TEST(Codecs, EveryE4M3CodeDecodesAlikeUnderEveryScale) {
  for (const auto& [name, forms] : all_forms()) {
    for (int scale = 0; scale < 255; ++scale) {
      const auto scale_code = static_cast<std::uint8_t>(scale);
      for (int first = 0; first < 256; first += 32) {
        std::uint8_t codes[32];
        float pairs[32];
        float plain[32];
        std::generate_n(codes, 32, [next = first]() mutable { return static_cast<std::uint8_t>(next++); });
        forms.decode_q8_pairs(codes, &scale_code, pairs);
        forms.decode_q8_plain(codes, &scale_code, plain);
        for (int i = 0; i < 32; ++i) {
          const float expected = e4m3_to_float(codes[i]) * ue8m0_to_float(scale_code);
          ASSERT_TRUE(same(plain[i], expected)) << name << " code " << int{codes[i]} << " scale " << scale;
          ASSERT_TRUE(same(pairs[i / 2 + i % 2 * 16], expected)) << name << " code " << int{codes[i]} << " scale " << scale;
        }
      }
    }
  }
}

TEST(Codecs, EveryByteOfE2M1DecodesAlike) {
  for (const auto& [name, forms] : all_forms()) {
    for (int first = 0; first < 256; first += 16) {
      std::uint8_t packed[16];
      float pairs[32];
      float plain[32];
      std::generate_n(packed, 16, [next = first]() mutable { return static_cast<std::uint8_t>(next++); });
      forms.decode_e2m1_pairs(packed, pairs);
      forms.decode_e2m1_plain(packed, plain);
      for (int i = 0; i < 32; ++i) {
        const float expected = e2m1_to_float(cpu::nibble(packed, i));
        ASSERT_TRUE(same(plain[i], expected)) << name << " byte " << int{packed[i / 2]};
        ASSERT_TRUE(same(pairs[i / 2 + i % 2 * 16], expected)) << name << " byte " << int{packed[i / 2]};
      }
    }
  }
}

TEST(Codecs, RoundingToBf16IsToNearestEven) {
  for (const auto& [name, forms] : all_forms()) {
    std::mt19937 random(11);
    for (int i = 0; i < 20000; ++i) {
      float x[16];
      bf16 out[16];
      for (float& value : x) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & (i % 2 == 0 ? 0xFFFFFFFFU : 0xFFFF8000U));  // odd rounds: ties
      }
      forms.round_to_bf16(x, out);
      for (int j = 0; j < 16; ++j) {
        ASSERT_EQ(out[j].bits, to_bf16(x[j]).bits) << name << " " << x[j];
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::test
