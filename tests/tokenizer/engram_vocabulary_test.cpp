#include "tokenizer/engram_vocabulary.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <span>

#include "base/json.h"
#include "tokenizer/test_data.h"

namespace deepinfer::tokenizer {
namespace {

/// Hexadecimal SHA-256 of the first `count` classes as little-endian int32.
std::string sha256_of(const EngramVocabulary& engram, std::size_t count) {
  std::string bytes;
  for (const std::int32_t value : std::span(engram.class_of).first(count)) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>(static_cast<std::uint32_t>(value) >> shift & 0xFF));
    }
  }
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string out;
  for (const unsigned char byte : digest) {
    constexpr char kHex[] = "0123456789abcdef";
    out += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return out;
}

// model.md 14.5.
constexpr std::string_view kSha256OfFile = "cd48cb62d9cca1baaf08d9e7795ad3d4c22b6c56f0f070178b9e3a52694ea930";
constexpr std::string_view kSha256OfAll = "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481";

TEST(EngramVocabulary, DeepseekFileHasThePublishedClasses) {
  const EngramVocabulary engram = compress_vocabulary(testing::deepseek());
  ASSERT_EQ(engram.class_of.size(), 128815U);
  EXPECT_EQ(engram.num_classes, 98627);
  EXPECT_EQ(sha256_of(engram, 128815), kSha256OfFile);
  EXPECT_EQ(engram.class_of[19923], 15844);  // "Hello"
  EXPECT_EQ(engram.class_of[44388], 15844);  // " hello"
  EXPECT_EQ(engram.class_of[270], 237);      // " the"
  EXPECT_EQ(engram.class_of[271], 174);      // two newlines
  EXPECT_EQ(engram.class_of[262], 174);      // two spaces
  EXPECT_EQ(engram.class_of[619], 39);       // "é"
  EXPECT_EQ(engram.class_of[2], 2);
}

TEST(EngramVocabulary, CompletedV41VocabularyHasThePublishedClasses) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(testing::read_data("deepseek-tokenizer.json.gz"), testing::read_overlay());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const EngramVocabulary engram = compress_vocabulary(*tokenizer);
  ASSERT_EQ(engram.class_of.size(), 129280U);
  EXPECT_EQ(engram.num_classes, 99092);
  EXPECT_EQ(sha256_of(engram, 128815), kSha256OfFile);
  EXPECT_EQ(sha256_of(engram, 129280), kSha256OfAll);
}

TEST(EngramVocabulary, TinyHasTheClassesOfTheReferenceModel) {
  const json::Value golden = *json::parse(testing::read_data("tiny-engram-classes.json"));
  std::vector<std::int32_t> expected;
  for (const json::Value& item : *golden.find("token_map")->as_array()) {
    expected.push_back(static_cast<std::int32_t>(*item.as_number()->as_int64()));
  }
  const EngramVocabulary engram = compress_vocabulary(testing::tiny());
  EXPECT_EQ(engram.class_of, expected);
  EXPECT_EQ(engram.num_classes, 541);
}

TEST(EngramVocabulary, NanoHasTheClassCountOfItsModel) { EXPECT_EQ(compress_vocabulary(testing::nano()).num_classes, 6350); }

TEST(EngramVocabulary, ClassesAreNumberedByFirstAppearance) {
  const EngramVocabulary engram = compress_vocabulary(testing::nano());
  std::int32_t next = 0;
  for (const std::int32_t value : engram.class_of) {
    ASSERT_LE(value, next);
    next += value == next ? 1 : 0;
  }
  EXPECT_EQ(next, engram.num_classes);
}

}  // namespace
}  // namespace deepinfer::tokenizer
