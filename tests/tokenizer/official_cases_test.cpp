// The recorded answers of the official encoder, over the V3 file and, where the shared data is, the V4.1 overlay.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/json.h"
#include "tokenizer/test_data.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::tokenizer {
namespace {

struct Case {
  std::string text;  // text to encode, or the decoded text
  std::vector<TokenId> ids;
  std::vector<TokenId> plain_ids;
  bool is_decode = false;
};

std::vector<TokenId> ids_of(const json::Value* value) {
  std::vector<TokenId> out;
  for (const json::Value& item : *value->as_array()) {
    out.push_back(TokenId{static_cast<std::int32_t>(*item.as_number()->as_int64())});
  }
  return out;
}

std::vector<Case> read_cases() {
  std::vector<Case> out;
  std::istringstream lines(testing::read_data("cases.jsonl.gz"));
  for (std::string line; std::getline(lines, line);) {
    const json::Value value = *json::parse(line);
    Case entry{.text = {}, .ids = ids_of(value.find("ids")), .plain_ids = {}, .is_decode = value.find("decoded") != nullptr};
    entry.text = *value.find(entry.is_decode ? "decoded" : "text")->as_string();
    const json::Value* plain = value.find("plain_ids");
    entry.plain_ids = plain == nullptr ? entry.ids : ids_of(plain);
    out.push_back(std::move(entry));
  }
  return out;
}

void expect_case(const Tokenizer& tokenizer, const Case& entry) {
  if (entry.is_decode) {
    EXPECT_EQ(tokenizer.decode(entry.ids, SpecialTokens::keep), entry.text);
    return;
  }
  EXPECT_EQ(tokenizer.encode(entry.text, AddedTokens::recognise), entry.ids) << entry.text;
  EXPECT_EQ(tokenizer.encode(entry.text, AddedTokens::ignore), entry.plain_ids) << entry.text;
}

TEST(OfficialCases, AllHoldWithTheV41Overlay) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(testing::read_data("deepseek-tokenizer.json.gz"), testing::read_overlay());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 129280);
  const std::vector<Case> cases = read_cases();
  EXPECT_EQ(cases.size(), 2735U);
  for (const Case& entry : cases) {
    expect_case(*tokenizer, entry);
  }
}

TEST(OfficialCases, PlainEncodingHoldsWithTheFileAlone) {
  for (const Case& entry : read_cases()) {
    if (!entry.is_decode) {
      EXPECT_EQ(testing::deepseek().encode(entry.text, AddedTokens::ignore), entry.plain_ids) << entry.text;
    }
  }
}

TEST(OfficialCases, DecodingOfModelTokensHoldsWithTheFileAlone) {
  constexpr std::int32_t kNumModelTokens = 128000;
  for (const Case& entry : read_cases()) {
    if (std::ranges::all_of(entry.ids, [](TokenId id) { return id.value < kNumModelTokens; })) {
      EXPECT_EQ(testing::deepseek().decode(entry.ids, SpecialTokens::keep), entry.text);
    }
  }
}

TEST(OfficialCases, EarlierVectorsHold) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(testing::read_data("deepseek-tokenizer.json.gz"), testing::read_overlay());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  std::istringstream lines(testing::read_data("earlier_cases.jsonl.gz"));
  int num_cases = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const json::Value value = *json::parse(line);
    const std::string& mode = *value.find("mode")->as_string();
    EXPECT_EQ(
        tokenizer->encode(*value.find("text")->as_string(), mode == "with_special_tokens" ? AddedTokens::recognise : AddedTokens::ignore),
        ids_of(value.find("ids")))
        << line;
  }
  EXPECT_EQ(num_cases, 266);
}

}  // namespace
}  // namespace deepinfer::tokenizer
