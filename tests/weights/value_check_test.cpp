#include "weights/value_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "weights/safetensors.h"
#include "weights/temp_directory.h"

namespace deepinfer::weights {
namespace {

/// The problems of a checkpoint with one tensor of these bytes.
std::string verdict(DType dtype, std::string_view bytes) {
  const deepinfer::testing::TempDirectory directory;
  const auto items = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
  const std::vector<TensorDescription> tensors = {{.name = "t", .dtype = dtype, .shape = {1, items}}};
  directory.write("model.safetensors", compose_header(tensors) + std::string(bytes));
  const auto checkpoint = Checkpoint::open(directory.path());
  EXPECT_TRUE(checkpoint.has_value());
  const Problems problems = validate_values(**checkpoint);
  return problems.empty() ? "good" : problems.sentences().front();
}

std::string at(const char* what, std::size_t column) {
  return "\"t\" " + std::string(what) + " at row 0, column " + std::to_string(column) +
         ": the checkpoint is damaged, fetch model.safetensors again";
}

/// All codes of a one-byte format but the bad ones, repeated, with `bad` at `column`.
std::string codes(std::string_view without, char bad, std::size_t column) {
  std::string out;
  while (out.size() < 2000) {
    const char code = static_cast<char>(out.size() * 37 % 256);
    out += without.find(code) == std::string_view::npos ? code : '\1';
  }
  out[column] = bad;
  return out;
}

constexpr std::size_t kPlaces[] = {0, 1, 7, 8, 511, 512, 1023, 1900, 1992, 1999};

TEST(ValueCheck, FindsTheScaleByte255AndNothingElse) {
  EXPECT_EQ(verdict(DType::f8_e8m0, codes("\xFF", '\x7F', 3)), "good");
  for (const std::size_t place : kPlaces) {
    EXPECT_EQ(verdict(DType::f8_e8m0, codes("\xFF", '\xFF', place)), at("has the scale byte 255", place));
  }
}

TEST(ValueCheck, FindsBothNotANumberCodesOfE4M3) {
  EXPECT_EQ(verdict(DType::f8_e4m3, codes("\x7F\xFF", '\x7E', 3)), "good");
  for (const std::size_t place : kPlaces) {
    EXPECT_EQ(verdict(DType::f8_e4m3, codes("\x7F\xFF", '\x7F', place)), at("has a value that is not a number", place));
    EXPECT_EQ(verdict(DType::f8_e4m3, codes("\x7F\xFF", '\xFF', place)), at("has a value that is not a number", place));
  }
}

TEST(ValueCheck, FindsNotANumberInBf16AndF32ButAllowsInfinity) {
  const auto text = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  for (const std::uint16_t bad : std::vector<std::uint16_t>{0x7F81, 0xFF81, 0x7FFF, 0xFFC0}) {
    std::vector<std::uint16_t> values = {0x3F80, 0x7F80, 0xFF80, 0x7F7F, 0x8000, 0, 1};
    EXPECT_EQ(verdict(DType::bf16, text(values)), "good");
    values[5] = bad;
    EXPECT_EQ(verdict(DType::bf16, text(values)), at("has a value that is not a number", 5)) << bad;
  }
  for (const std::uint32_t bad : {0x7F800001U, 0xFF800001U, 0xFFFFFFFFU, 0x7FC00000U}) {
    std::vector<std::uint32_t> values = {0x3F800000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0};
    EXPECT_EQ(verdict(DType::f32, text(values)), "good");
    values[4] = bad;
    EXPECT_EQ(verdict(DType::f32, text(values)), at("has a value that is not a number", 4)) << bad;
  }
}

TEST(ValueCheck, EveryByteIsAGoodPairOfFp4Codes) { EXPECT_EQ(verdict(DType::i8, codes("", '\xFF', 0)), "good"); }

}  // namespace
}  // namespace deepinfer::weights
