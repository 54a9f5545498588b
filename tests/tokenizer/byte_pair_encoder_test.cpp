#include "tokenizer/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/reference_tokenizer.h"
#include "tokenizer/test_data.h"

namespace deepinfer::tokenizer {
namespace {

std::vector<std::int32_t> values_of(const std::vector<TokenId>& ids) {
  std::vector<std::int32_t> out;
  for (const TokenId id : ids) {
    out.push_back(id.value);
  }
  return out;
}

std::vector<std::int32_t> encode_with(const BytePairEncoder& encoder, std::string_view piece) {
  BytePairEncoder::Scratch scratch;
  std::vector<TokenId> out;
  encoder.encode(piece, piece.size(), scratch, out);
  return values_of(out);
}

/// The 256 bytes as tokens 0 … 255 in byte order, nothing else.
TokenizerFile bytes_only() {
  TokenizerFile file;
  for (int byte = 0; byte < 256; ++byte) {
    file.spellings.push_back(spelling_of_bytes(std::string(1, static_cast<char>(byte))));
    file.byte_tokens[static_cast<std::size_t>(byte)] = byte;
  }
  file.num_model_ids = 256;
  return file;
}

void add_merge(TokenizerFile& file, std::int32_t left, std::int32_t right) {
  const std::string joined = file.spellings[static_cast<std::size_t>(left)] + file.spellings[static_cast<std::size_t>(right)];
  auto found = std::ranges::find(file.spellings, joined);
  if (found == file.spellings.end()) {
    file.spellings.push_back(joined);
    found = file.spellings.end() - 1;
  }
  file.merges.push_back({.left = left, .right = right, .result = static_cast<std::int32_t>(found - file.spellings.begin())});
  file.num_model_ids = static_cast<std::int32_t>(file.spellings.size());
}

enum class Products { distinct, repeated };

/// Merges over a few letters: small enough that every kind of conflict between merges comes up.
TokenizerFile random_merges(std::mt19937& random, Products products) {
  TokenizerFile file = bytes_only();
  std::vector<std::int32_t> tokens{'a', 'b', 'c'};
  const auto num_merges = (products == Products::repeated ? 20 : 1) + random() % 24;  // of many merges, some make the same token
  std::set<std::string> made;
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  while (file.merges.size() < num_merges) {
    const std::int32_t left = tokens[random() % tokens.size()];
    const std::int32_t right = tokens[random() % tokens.size()];
    const std::string joined = file.spellings[static_cast<std::size_t>(left)] + file.spellings[static_cast<std::size_t>(right)];
    if (joined.size() > 12 || !pairs.emplace(left, right).second) {
      continue;
    }
    if (!made.insert(joined).second && products == Products::distinct) {
      continue;
    }
    add_merge(file, left, right);
    tokens.push_back(file.merges.back().result);
  }
  return file;
}

std::string random_letters(std::mt19937& random, std::size_t max_size) {
  std::string out(1 + random() % max_size, ' ');
  for (char& letter : out) {
    letter = static_cast<char>('a' + random() % 3);
  }
  return out;
}

void expect_like_reference(const TokenizerFile& file, std::mt19937& random, int num_pieces) {
  const BytePairEncoder encoder = *BytePairEncoder::build(file);
  const testing::ReferenceBpe reference(file);
  for (int i = 0; i < num_pieces; ++i) {
    const std::string piece = random_letters(random, 40);
    ASSERT_EQ(encode_with(encoder, piece), reference.encode(piece)) << piece;
  }
}

TEST(BytePairEncoder, RandomMergesGiveWhatTheDefinitionGives) {
  constexpr std::uint32_t kSeed = 20250701;
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const TokenizerFile file = random_merges(random, Products::distinct);
    ASSERT_TRUE(LongestMatchEncoder::build(file).has_value());
    ASSERT_NO_FATAL_FAILURE(expect_like_reference(file, random, 40)) << "round " << round;
  }
}

TEST(BytePairEncoder, MergesThatMakeOneTokenTwiceGiveWhatTheDefinitionGives) {
  constexpr std::uint32_t kSeed = 20250702;
  std::cout << "seed " << kSeed << "\n";
  std::mt19937 random(kSeed);
  int num_refused = 0;
  for (int round = 0; round < 200; ++round) {
    const TokenizerFile file = random_merges(random, Products::repeated);
    num_refused += LongestMatchEncoder::build(file).has_value() ? 0 : 1;
    ASSERT_NO_FATAL_FAILURE(expect_like_reference(file, random, 40)) << "round " << round;
  }
  EXPECT_GT(num_refused, 50) << "the heap is what this test is for";
}

TEST(BytePairEncoder, BothEncodersAgreeOnRealVocabularies) {
  const std::string json = testing::read_data("deepseek-tokenizer.json.gz");
  const TokenizerFile file = *read_tokenizer_file(json, {});
  const std::optional<LongestMatchEncoder> longest_match = LongestMatchEncoder::build(file);
  ASSERT_TRUE(longest_match.has_value());
  const HeapEncoder heap(file);
  HeapEncoder::Scratch heap_scratch;
  LongestMatchEncoder::Scratch scratch;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::string piece = seed % 2 == 0 ? testing::random_text(seed, 300) : testing::random_bytes(seed, 600);
    std::vector<TokenId> expected;
    heap.encode(piece, heap_scratch, expected);
    std::vector<TokenId> ids;
    longest_match->encode(piece, piece.size(), scratch, ids);
    ASSERT_EQ(ids, expected) << "seed " << seed;
  }
}

TEST(BytePairEncoder, RealVocabularyGivesWhatTheDefinitionGives) {
  const TokenizerFile file = *read_tokenizer_file(testing::read_data("nano-tokenizer.json.gz"), {});
  const BytePairEncoder encoder = *BytePairEncoder::build(file);
  const testing::ReferenceBpe reference(file);
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const std::string piece = testing::random_text(seed, 60);
    ASSERT_EQ(encode_with(encoder, piece), reference.encode(piece)) << "seed " << seed;
  }
}

TEST(BytePairEncoder, EqualRanksMergeFromTheLeft) {
  TokenizerFile file = bytes_only();
  add_merge(file, 'a', 'a');
  const BytePairEncoder encoder = *BytePairEncoder::build(file);
  EXPECT_EQ(encode_with(encoder, "aaaaa"), (std::vector<std::int32_t>{256, 256, 'a'}));
}

TEST(BytePairEncoder, TokenThatMergesNeverReachIsNotUsed) {
  TokenizerFile file = bytes_only();
  add_merge(file, 'b', 'c');  // 256
  add_merge(file, 'a', 'b');  // 257
  add_merge(file, 257, 'c');  // 258, "abc": its b has always gone to "bc"
  const BytePairEncoder encoder = *BytePairEncoder::build(file);
  EXPECT_EQ(encode_with(encoder, "abc"), (std::vector<std::int32_t>{'a', 256}));
}

TEST(BytePairEncoder, WholePieceComesFirstWhenTheFileSaysSo) {
  TokenizerFile file = bytes_only();
  add_merge(file, 'b', 'c');
  add_merge(file, 'a', 'b');
  add_merge(file, 257, 'c');
  file.is_whole_piece_first = true;
  const BytePairEncoder encoder = *BytePairEncoder::build(file);
  EXPECT_EQ(encode_with(encoder, "abc"), (std::vector<std::int32_t>{258}));
  EXPECT_EQ(encode_with(encoder, "abcb"), (std::vector<std::int32_t>{'a', 256, 'b'}));
}

TEST(BytePairEncoder, BytesBehindThePieceAreNotRead) {
  const TokenizerFile file = *read_tokenizer_file(testing::read_data("tiny-tokenizer.json.gz"), {});
  const BytePairEncoder encoder = *BytePairEncoder::build(file);
  const std::string text = " the people and the letters";
  for (std::size_t length = 1; length <= text.size(); ++length) {
    BytePairEncoder::Scratch scratch;
    std::vector<TokenId> inside;
    encoder.encode(text, length, scratch, inside);
    EXPECT_EQ(values_of(inside), encode_with(encoder, text.substr(0, length))) << length;
  }
}

}  // namespace
}  // namespace deepinfer::tokenizer
