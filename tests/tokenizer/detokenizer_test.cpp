#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/test_data.h"

namespace deepinfer::tokenizer {
namespace {

/// The pieces of a stream, what finish() releases as the last.
std::vector<std::string> stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, SpecialTokens mode = SpecialTokens::keep) {
  Detokenizer detokenizer(tokenizer, mode);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) {
    detokenizer.append(id, pieces.emplace_back());
  }
  detokenizer.finish(pieces.emplace_back());
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) {
    out += piece;
  }
  return out;
}

/// Single-byte tokens of `bytes`, so that a stream can be cut at every byte.
std::vector<TokenId> byte_tokens(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<TokenId> out;
  for (const char byte : bytes) {
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.bytes(TokenId{id}) == std::string_view(&byte, 1)) {
        out.push_back(TokenId{id});
        break;
      }
    }
  }
  EXPECT_EQ(out.size(), bytes.size());
  return out;
}

TEST(Detokenizer, PiecesPutTogetherAreDecodeForAnyIds) {
  std::cout << "seeds 0 … 399\n";
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const Tokenizer& tokenizer = seed % 2 == 0 ? testing::deepseek() : testing::nano();
    const std::vector<TokenId> ids = testing::random_ids(tokenizer, seed, 200);
    for (const SpecialTokens mode : {SpecialTokens::keep, SpecialTokens::skip}) {
      const std::vector<std::string> pieces = stream(tokenizer, ids, mode);
      ASSERT_EQ(joined(pieces), tokenizer.decode(ids, mode)) << "seed " << seed;
      for (const std::string& piece : pieces) {
        ASSERT_TRUE(utf8::is_valid(piece)) << "seed " << seed;
      }
    }
  }
}

TEST(Detokenizer, BytesOneByOneGiveWholeCharactersOrReplacements) {
  const Tokenizer& tokenizer = testing::tiny();
  std::cout << "seeds 0 … 299\n";
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::string bytes = testing::random_bytes(seed, 60);
    ASSERT_EQ(joined(stream(tokenizer, byte_tokens(tokenizer, bytes))), utf8::replace_invalid(bytes)) << "seed " << seed;
  }
}

TEST(Detokenizer, CharacterComesWithItsLastByte) {
  const Tokenizer& tokenizer = testing::tiny();
  EXPECT_EQ(stream(tokenizer, byte_tokens(tokenizer, "a😀é")), (std::vector<std::string>{"a", "", "", "", "😀", "", "é", ""}));
}

TEST(Detokenizer, UnfinishedCharacterBecomesOneReplacementAtTheEnd) {
  const Tokenizer& tokenizer = testing::tiny();
  EXPECT_EQ(stream(tokenizer, byte_tokens(tokenizer, "\xF0\x9F\x98")), (std::vector<std::string>{"", "", "", "\uFFFD"}));
}

TEST(Detokenizer, ByteThatCannotContinueIsReplacedAtOnce) {
  const Tokenizer& tokenizer = testing::tiny();
  EXPECT_EQ(stream(tokenizer, byte_tokens(tokenizer, "\xE4z")), (std::vector<std::string>{"", "\uFFFDz", ""}));
  EXPECT_EQ(stream(tokenizer, byte_tokens(tokenizer, "\xE0\x80")), (std::vector<std::string>{"", "\uFFFD\uFFFD", ""}));
  EXPECT_EQ(stream(tokenizer, byte_tokens(tokenizer, "\xFF")), (std::vector<std::string>{"\uFFFD", ""}));
}

TEST(Detokenizer, StartsAnewAfterFinish) {
  const Tokenizer& tokenizer = testing::tiny();
  Detokenizer detokenizer(tokenizer);
  std::string out;
  detokenizer.append(byte_tokens(tokenizer, "\xE4").front(), out);
  detokenizer.finish(out);
  detokenizer.append(byte_tokens(tokenizer, "a").front(), out);
  detokenizer.finish(out);
  EXPECT_EQ(out, "\uFFFDa");
}

TEST(Detokenizer, LossyDecodingFollowsTheRecordedRule) {
  const Tokenizer& tokenizer = testing::tiny();
  const json::Value cases = *json::parse(testing::read_data("utf8_lossy.json"));
  for (const json::Value& entry : *cases.as_array()) {
    const std::string& hex = *entry.find("bytes_hex")->as_string();
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    const std::vector<TokenId> ids = byte_tokens(tokenizer, bytes);
    EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::keep), *entry.find("text")->as_string()) << hex;
    EXPECT_EQ(joined(stream(tokenizer, ids)), *entry.find("text")->as_string()) << hex;
  }
}

TEST(ByteAlphabet, SpellsAndReadsEveryByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.push_back(static_cast<char>(byte));
  }
  const std::string spelling = spelling_of_bytes(bytes);
  EXPECT_TRUE(utf8::is_valid(spelling));
  EXPECT_EQ(bytes_of_spelling(spelling), bytes);
  EXPECT_EQ(spelling_of_bytes(" a\n"), "ĠaĊ");
}

TEST(ByteAlphabet, CharactersOutsideItAreRefused) {
  EXPECT_EQ(bytes_of_spelling("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("｜"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\xFF"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer::tokenizer
