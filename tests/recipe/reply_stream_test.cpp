// The stream object the server uses: order of calls, usage, errors, ids, and the bytes of its events.
#include "recipe/reply_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <regex>
#include <string>
#include <vector>

#include "recipe/reply_texts.h"
#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::deepseek_v41;
using testing::reply_cases;
using testing::ReplyCase;

constexpr std::array kApis = {Api::chat, Api::messages, Api::responses};

ReplyStreamOptions options_for(Api api, const ParsingOptions& parsing = {}) {
  ReplyStreamOptions options;
  options.api = api;
  options.id = "id-\"1\"";
  options.model = "model";
  options.opening = parsing.thinking_initial_stage == ThinkingStage::none ? ReplyOpening::plain : ReplyOpening::reasoning;
  options.parsing = parsing;
  options.random_bits = [state = std::uint64_t{1}]() mutable { return state = state * 6364136223846793005U + 1442695040888963407U; };
  options.unix_time = [] { return std::int64_t{1700000000}; };
  return options;
}

ParsingOptions thinking_with_tools() { return {.parse_tool_calls = true, .thinking_initial_stage = ThinkingStage::reasoning_start}; }

std::string last_data(std::span<const Event> events) { return events.empty() ? "" : std::string(events.back().data); }

TEST(ReplyStream, EveryEventHasTheBytesOfCompactJson) {
  for (const Api api : kApis) {
    for (const ReplyCase& reply : reply_cases()) {
      ReplyStream stream(options_for(api, reply.options));
      const auto check_bytes = [](std::span<const Event> events) {
        for (const Event& event : events) {
          const Result<json::Value> value = json::parse(event.data);
          ASSERT_TRUE(value.has_value()) << event.data << ": " << value.error().message;
          EXPECT_EQ(json::to_text(*value), event.data);
        }
      };
      check_bytes(stream.ready({.prompt_tokens = 7, .cached_tokens = 3, .system_fingerprint = "fp"}));
      check_bytes(stream.text(reply.text, 5));
      check_bytes(stream.finish(BackendFinish::stop));
      const Result<json::Value> response = json::parse(stream.response());
      ASSERT_TRUE(response.has_value()) << stream.response();
      EXPECT_EQ(json::to_text(*response), stream.response());
    }
  }
}

TEST(ReplyStream, TheCompleteResponseDoesNotDependOnThePieces) {
  for (const Api api : kApis) {
    for (const ReplyCase& reply : reply_cases()) {
      if (reply.options.parse_json_output) {
        continue;  // one blank per piece
      }
      ReplyStream whole(options_for(api, reply.options));
      (void)whole.text(reply.text, 0);
      (void)whole.finish(BackendFinish::stop);
      ReplyStream pieces(options_for(api, reply.options));
      for (const char& byte : reply.text) {
        (void)pieces.text({&byte, 1}, 0);
      }
      (void)pieces.finish(BackendFinish::stop);
      EXPECT_EQ(pieces.response(), whole.response()) << reply.name;
    }
  }
}

TEST(ReplyStream, IdsGiveTheResponseOfTheirTextHoweverTheyAreChunked) {
  const std::string text =
      "Hmm <think>, 😀 here.\n\n</think>\n\nHi\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"a\" string=\"true\">é\"x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const std::vector<TokenId> ids = deepseek_v41().encode(text, tokenizer::AddedTokens::recognise);
  for (const Api api : kApis) {
    const auto response_of = [&](std::size_t chunk) {
      ReplyStreamOptions options = options_for(api, thinking_with_tools());
      options.tokenizer = &deepseek_v41();
      ReplyStream stream(std::move(options));
      for (std::size_t i = 0; i < ids.size(); i += chunk) {
        EXPECT_TRUE(stream.tokens(std::span(ids).subspan(i, std::min(chunk, ids.size() - i))).has_value());
      }
      (void)stream.finish(BackendFinish::stop);
      EXPECT_EQ(stream.usage().completion_tokens, ids.size());
      return stream.response();
    };
    const std::string one_by_one = response_of(1);
    EXPECT_NE(one_by_one.find("Hmm <think>, 😀 here."), std::string::npos) << one_by_one;
    for (const std::size_t chunk : {2U, 3U, 7U, 1000U}) {
      EXPECT_EQ(response_of(chunk), one_by_one) << chunk << " ids at a time";
    }
  }
}

TEST(ReplyStream, OnlyTheFirstReadyBeforeAnyChunkCounts) {
  ReplyStream stream(options_for(Api::chat));
  EXPECT_EQ(stream.ready({.prompt_tokens = 5, .cached_tokens = 0, .system_fingerprint = "a"}).size(), 1U);
  EXPECT_TRUE(stream.ready({.prompt_tokens = 6, .cached_tokens = 0, .system_fingerprint = "b"}).empty());
  EXPECT_NE(last_data(stream.text("x", 1)).find(R"("system_fingerprint":"a")"), std::string::npos);
  EXPECT_EQ(stream.usage().prompt_tokens, 5U);

  ReplyStream late(options_for(Api::chat));
  EXPECT_EQ(late.text("<", 1).size(), 1U) << "the text waits, the first chunk does not";
  EXPECT_TRUE(late.ready({.prompt_tokens = 6, .cached_tokens = 0, .system_fingerprint = "b"}).empty());
  EXPECT_EQ(late.usage().prompt_tokens, 0U);
}

TEST(ReplyStream, AStopSequenceEndsTheStreamAtOnce) {
  ParsingOptions parsing;
  parsing.stop_sequences = {"STOP"};
  for (const Api api : kApis) {
    ReplyStream stream(options_for(api, parsing));
    (void)stream.text("a STO", 2);
    EXPECT_FALSE(stream.finished());
    EXPECT_FALSE(stream.text("P and more", 3).empty());
    EXPECT_TRUE(stream.finished());
    EXPECT_EQ(stream.usage().completion_tokens, 5U);
    EXPECT_TRUE(stream.text("x", 1).empty());
    EXPECT_TRUE(stream.finish(BackendFinish::length).empty());
    EXPECT_EQ(stream.usage().completion_tokens, 5U);
  }
}

TEST(ReplyStream, TokenChunksNeedATokenizerAndOneLogprobPerId) {
  const std::vector<TokenId> ids = {TokenId{19923}, TokenId{2058}};
  ReplyStream without(options_for(Api::chat));
  EXPECT_EQ(without.tokens(ids).error().message, "token chunk received without a tokenizer");
  ReplyStreamOptions options = options_for(Api::chat);
  options.tokenizer = &deepseek_v41();
  ReplyStream with(std::move(options));
  const std::vector<TokenLogprob> one(1);
  EXPECT_EQ(with.tokens(ids, &one).error().message, "invalid log probabilities: 1 log probabilities for 2 token IDs");
}

TEST(ReplyStream, ReasoningTokensAreTheTokensOfTheReasoningText) {
  ReplyStreamOptions options = options_for(Api::chat, thinking_with_tools());
  options.tokenizer = &deepseek_v41();
  ReplyStream stream(std::move(options));
  const std::vector<TokenId> ids = {TokenId{19923}, TokenId{30}, TokenId{90}, TokenId{128822}, TokenId{2058}};  // Hello < x </think> world
  ASSERT_TRUE(stream.tokens(ids).has_value());
  (void)stream.finish(BackendFinish::stop);
  EXPECT_EQ(stream.usage().completion_tokens, 5U);
  EXPECT_EQ(stream.usage().reasoning_tokens, 2U) << "`Hello` and `<x`";
}

TEST(MakeCallId, CarriesTheIndexAndWhetherTheReasoningWasEmpty) {
  const RandomBits random = [state = std::uint64_t{0}]() mutable { return state += 0x9E3779B97F4A7C15U; };
  EXPECT_TRUE(std::regex_match(make_call_id(0, false, random), std::regex("call_00_[A-Za-z0-9]{20}[0-9]{4}")));
  EXPECT_TRUE(std::regex_match(make_call_id(12, true, random), std::regex("call_12_ET_[A-Za-z0-9]{20}[0-9]{4}")));
  EXPECT_TRUE(std::regex_match(make_call_id(123, false, random), std::regex("call_123_[A-Za-z0-9]{20}[0-9]{4}")));
  EXPECT_NE(make_call_id(1, false, random), make_call_id(1, false, random));
}

}  // namespace
}  // namespace deepinfer::recipe
