// Ids to segments: complete characters, control ids alone, log probabilities of exactly the ids behind a text.
#include "recipe/token_segments.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::deepseek_v41;

constexpr TokenId kHello{19923};
constexpr TokenId kWorld{2058};        // " world"
constexpr TokenId kEmojiBegin{28927};  // the first three bytes of U+1F600
constexpr TokenId kEmojiEnd{225};      // its last byte
constexpr TokenId kThinkingEnd{128822};
constexpr TokenId kUnknown{999999};

struct Taken {
  std::string text;
  SegmentKind kind = SegmentKind::token_text;
  std::uint32_t num_tokens = 0;

  friend bool operator==(const Taken&, const Taken&) = default;
};

std::vector<Taken> take_all(TokenSegments& segments, const std::vector<TokenId>& ids) {
  std::vector<Taken> out;
  segments.push(ids, nullptr);
  while (const std::optional<TokenSegment> segment = segments.take()) {
    out.push_back({.text = std::string(segment->text), .kind = segment->kind, .num_tokens = segment->num_tokens});
  }
  return out;
}

Taken run(std::string text, std::uint32_t num_tokens) {
  return {.text = std::move(text), .kind = SegmentKind::token_text, .num_tokens = num_tokens};
}
Taken control(std::string text) { return {.text = std::move(text), .kind = SegmentKind::control_token, .num_tokens = 1}; }

TEST(TokenSegments, OrdinaryIdsOfAChunkAreOneSegment) {
  TokenSegments segments(deepseek_v41());
  EXPECT_EQ(take_all(segments, {kHello, kWorld}), std::vector{run("Hello world", 2)});
  EXPECT_EQ(take_all(segments, {}), std::vector<Taken>{});
}

TEST(TokenSegments, ControlIdsStandAlone) {
  TokenSegments segments(deepseek_v41());
  EXPECT_EQ(take_all(segments, {kHello, kThinkingEnd, kThinkingEnd, kWorld}),
            (std::vector{run("Hello", 1), control("</think>"), control("</think>"), run(" world", 1)}));
}

TEST(TokenSegments, AnIncompleteCharacterMakesItsRunWait) {
  TokenSegments segments(deepseek_v41());
  EXPECT_EQ(take_all(segments, {kHello, kEmojiBegin}), std::vector<Taken>{});
  EXPECT_EQ(take_all(segments, {}), std::vector<Taken>{});
  EXPECT_EQ(take_all(segments, {kEmojiEnd, kWorld}), std::vector{run("Hello😀 world", 4)});
}

TEST(TokenSegments, AControlIdEndsAnIncompleteCharacter) {
  TokenSegments segments(deepseek_v41());
  EXPECT_EQ(take_all(segments, {kEmojiBegin, kThinkingEnd, kEmojiEnd}), (std::vector{run("\uFFFD", 1), control("</think>")}));
  EXPECT_EQ(take_all(segments, {kHello}), std::vector{run("\uFFFDHello", 2)});
}

TEST(TokenSegments, IdsWithoutTextWaitForSomeAndCount) {
  TokenSegments segments(deepseek_v41());
  EXPECT_EQ(take_all(segments, {kUnknown}), std::vector<Taken>{});
  EXPECT_EQ(take_all(segments, {kHello, kUnknown}), std::vector{run("Hello", 3)});
}

TEST(TokenSegments, LogprobsAreThoseOfTheIdsBehindTheText) {
  TokenSegments segments(deepseek_v41());
  const std::vector<TokenLogprob> first = {{.logprob = -0.5F, .top = {{kHello, -1e-7F}}}, {.logprob = -1.0F, .top = {}}};
  const std::vector<TokenId> begin = {kHello, kEmojiBegin};
  segments.push(begin, &first);
  EXPECT_FALSE(segments.take().has_value());
  const std::vector<TokenLogprob> second = {{.logprob = -2.25F, .top = {}}};
  const std::vector<TokenId> end = {kEmojiEnd};
  segments.push(end, &second);
  const std::optional<TokenSegment> segment = segments.take();
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ(segment->logprobs,
            R"([{"token":"Hello","logprob":-0.5,"bytes":[72,101,108,108,111],"top_logprobs":[{"token":"Hello","logprob":-1e-7,)"
            R"("bytes":[72,101,108,108,111]}]},{"token":"\\xf0\\x9f\\x98","logprob":-1.0,"bytes":[240,159,152],"top_logprobs":[]},)"
            R"({"token":"\\x80","logprob":-2.25,"bytes":[128],"top_logprobs":[]}])");
}

TEST(TokenSegments, OneIdWithoutLogprobsLeavesTheSegmentWithout) {
  TokenSegments segments(deepseek_v41());
  const std::vector<TokenId> begin = {kEmojiBegin};
  segments.push(begin, nullptr);
  EXPECT_FALSE(segments.take().has_value());
  const std::vector<TokenLogprob> logprobs = {{.logprob = -1.0F, .top = {}}};
  const std::vector<TokenId> end = {kEmojiEnd};
  segments.push(end, &logprobs);
  const std::optional<TokenSegment> segment = segments.take();
  ASSERT_TRUE(segment.has_value());
  EXPECT_EQ(segment->logprobs, "");
}

TEST(AppendFloat, WritesWhatTheOfficialPackageWrites) {
  const std::vector<std::pair<float, std::string>> cases = {{1e-8F, "1e-8"},
                                                            {1e-7F, "1e-7"},
                                                            {1e-6F, "0.000001"},
                                                            {1.5e-6F, "0.0000015"},
                                                            {1.234567e-5F, "0.00001234567"},
                                                            {-0.1F, "-0.1"},
                                                            {-1.1F, "-1.1"},
                                                            {0.0F, "0.0"},
                                                            {-0.0F, "-0.0"},
                                                            {10.0F, "10.0"},
                                                            {15.5F, "15.5"},
                                                            {123456784.0F, "123456780.0"},
                                                            {1e12F, "1000000000000.0"},
                                                            {1e13F, "1e+13"},
                                                            {1.2345679e13F, "1.2345679e+13"},
                                                            {-3.4e38F, "-3.4e+38"},
                                                            {1e-45F, "1e-45"}};
  for (const auto& [value, text] : cases) {
    std::string out;
    append_float(out, value);
    EXPECT_EQ(out, text);
  }
  std::string out;
  append_float(out, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "null");
}

}  // namespace
}  // namespace deepinfer::recipe
