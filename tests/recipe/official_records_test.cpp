// Records that are no probe lines: ids pushed one by one through the official package, and requests that the official API answered.
#include <gtest/gtest.h>

#include "recipe/convert.h"
#include "recipe/render.h"
#include "recipe/reply_stream.h"
#include "recipe/test_files.h"
#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::deepseek_v41;
using testing::read_json_lines;
using testing::read_text_file;
using testing::recipe_data;

const std::string& text_of(const json::Value& value, std::string_view key) { return *value.find(key)->as_string(); }
std::int64_t integer_of(const json::Value& value, std::string_view key) { return *value.find(key)->as_number()->as_int64(); }

/// Appends the texts of the chunks that have one.
void append_contents(json::Array& contents, std::span<const Event> events) {
  for (const Event& event : events) {
    const Result<json::Value> chunk = json::parse(event.data);
    ASSERT_TRUE(chunk.has_value()) << event.data;
    const json::Value* const content = chunk->find("choices")->as_array()->front().find("delta")->find("content");
    if (content != nullptr && content->as_string() != nullptr && !content->as_string()->empty()) {
      contents.push_back(*content);
    }
  }
}

TEST(OfficialTokenDecoding, EveryIdGivesTheRecordedDeltas) {
  const std::vector<json::Value> records = read_json_lines(recipe_data("oracle") / "token_decoding.jsonl.gz");
  ASSERT_EQ(records.size(), 10U);
  for (const json::Value& record : records) {
    ReplyStreamOptions options;
    options.opening = ReplyOpening::plain;
    options.tokenizer = &deepseek_v41();
    options.parsing = {.parse_tool_calls = false, .stop_sequences = {}, .conformance = Conformance::official};
    options.random_bits = [] { return std::uint64_t{0}; };
    options.unix_time = [] { return std::int64_t{0}; };
    ReplyStream stream(std::move(options));
    json::Array contents;
    for (const json::Value& id : *record.find("token_ids")->as_array()) {
      const TokenId token{static_cast<std::int32_t>(*id.as_number()->as_int64())};
      const Result<std::span<const Event>> events = stream.tokens(std::span(&token, 1));
      ASSERT_TRUE(events.has_value()) << events.error().message;
      append_contents(contents, *events);
    }
    append_contents(contents, stream.finish(BackendFinish::stop));
    const json::Value& expected = *record.find("expected");
    EXPECT_EQ(json::Value(contents), *expected.find("deltas")) << text_of(record, "name");
    EXPECT_EQ(stream.turn().content, text_of(expected, "text")) << text_of(record, "name");
    EXPECT_EQ(static_cast<std::int64_t>(stream.usage().completion_tokens), integer_of(expected, "completion_tokens"))
        << text_of(record, "name");
  }
}

TEST(OfficialApi, PromptsHaveTheTokensThatItCounted) {
  const Result<json::Value> records = json::parse(read_text_file(recipe_data("official_api_usage.json.gz")));
  ASSERT_TRUE(records.has_value()) << records.error().message;
  ASSERT_EQ(records->as_array()->size(), 5U);
  ConvertOptions options;
  options.model_versions.emplace("deepseek-v4-flash", ModelVersion::v4);
  for (const json::Value& record : *records->as_array()) {
    const auto request = convert(Api::chat, json::to_text(*record.find("request")), options);
    ASSERT_TRUE(request.has_value()) << request.error().message;
    const Prompt prompt = render(request->conversation, request->version);
    EXPECT_EQ(prompt.text, text_of(record, "prompt_text")) << text_of(record, "name");
    const Result<std::vector<TokenId>> ids = encode_prompt(prompt, deepseek_v41());
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(std::ssize(*ids), integer_of(*record.find("usage"), "prompt_tokens")) << text_of(record, "name");
    for (const json::Value& step : *record.find("completion_steps")->as_array()) {
      EXPECT_EQ(deepseek_v41().encode(text_of(step, "text"), tokenizer::AddedTokens::ignore).size(), 1U) << text_of(step, "text");
    }
  }
}

}  // namespace
}  // namespace deepinfer::recipe
