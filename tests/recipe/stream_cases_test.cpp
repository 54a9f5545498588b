// The recorded answers of the official package to streams, and the laws that every event of them obeys.
#include <gtest/gtest.h>

#include <map>

#include "recipe/official_answers.h"
#include "recipe/probe.h"
#include "recipe/reply_texts.h"
#include "recipe/test_files.h"
#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::deepseek_v41;
using testing::parse_pieces;
using testing::ParsedReply;
using testing::read_json_lines;
using testing::recipe_data;
using testing::stream_difference;

const std::string& text_of(const json::Value& value, std::string_view key) { return *value.find(key)->as_string(); }

/// Runs the `stream` lines of a case file and reports the first differences.
void expect_official_answers(std::string_view file) {
  constexpr json::ParseLimits kLimits{.max_depth = 512};
  constexpr int kShown = 5;
  int num_wrong = 0;
  int num_cases = 0;
  for (const json::Value& record : read_json_lines(recipe_data("oracle") / file)) {
    if (text_of(record, "op") != "stream") {
      continue;
    }
    ++num_cases;
    const std::string answer = answer_probe_line({.tokenizer = &deepseek_v41()}, json::to_text(*record.find("input")));
    const Result<json::Value> parsed = json::parse(answer, kLimits);
    ASSERT_TRUE(parsed.has_value()) << answer;
    const auto difference = stream_difference(*record.find("expected"), *parsed);
    if (difference && ++num_wrong <= kShown) {
      ADD_FAILURE() << text_of(record, "name") << ": " << *difference;
    }
  }
  EXPECT_EQ(num_wrong, 0) << "of " << num_cases;
  EXPECT_GT(num_cases, 0);
}

TEST(OfficialStreamCases, ChatChunksAreEqual) { expect_official_answers("stream_chat.jsonl.gz"); }
TEST(OfficialStreamCases, MessagesEventsAreEqual) { expect_official_answers("stream_messages.jsonl.gz"); }
TEST(OfficialStreamCases, ResponsesEventsAreEqual) { expect_official_answers("stream_responses.jsonl.gz"); }
TEST(OfficialStreamCases, RandomRequestsAreEqual) { expect_official_answers("random.jsonl.gz"); }

ParsingOptions options_of(const json::Value& json) {
  static const std::map<std::string, ThinkingStage, std::less<>> kStages = {{"start", ThinkingStage::reasoning_start},
                                                                            {"reasoning", ThinkingStage::reasoning_continuation},
                                                                            {"content", ThinkingStage::content_continuation}};
  ParsingOptions options;
  options.parse_tool_calls = *json.find("parse_tool_calls")->as_bool();
  options.starts_in_tool_calls = *json.find("tool_call_initial_stage")->as_bool();
  options.parse_json_output = *json.find("parse_json_output")->as_bool();
  if (const std::string* stage = json.find("reasoning_initial_stage")->as_string()) {
    options.thinking_initial_stage = kStages.at(*stage);
  }
  for (const json::Value& stop : *json.find("stop_sequences")->as_array()) {
    options.stop_sequences.push_back(*stop.as_string());
  }
  return options;
}

ParsedReply expected_reply(const json::Value& json) {
  static const std::map<std::string, FinishReason, std::less<>> kReasons = {{"stop", FinishReason::stop},
                                                                            {"tool_calls", FinishReason::tool_calls},
                                                                            {"length", FinishReason::length},
                                                                            {"content_filter", FinishReason::content_filter},
                                                                            {"stop_sequence", FinishReason::stop_sequence},
                                                                            {"end_of_stream", FinishReason::end_of_input}};
  ParsedReply reply;
  reply.reasoning = text_of(json, "reasoning");
  reply.content = text_of(json, "content");
  for (const json::Value& call : *json.find("tool_calls")->as_array()) {
    reply.calls.emplace_back(text_of(call, "name"), text_of(call, "arguments"));
  }
  reply.finish = kReasons.at(text_of(json, "finish"));
  if (const std::string* stop = json.find("stop_sequence")->as_string()) {
    reply.stop_sequence = *stop;
  }
  return reply;
}

BackendFinish backend_finish_of(const json::Value& json) {
  const std::string* name = json.as_string();
  if (name == nullptr) {
    return BackendFinish::end_of_input;
  }
  return *name == "stop" ? BackendFinish::stop : *name == "length" ? BackendFinish::length : BackendFinish::content_filter;
}

TEST(OfficialStateMachine, EveryReplyParsesAsRecordedInEveryTwoPieces) {
  for (const json::Value& record : read_json_lines(recipe_data("oracle") / "state_machine.jsonl.gz")) {
    const std::string_view text = text_of(record, "text");
    const ParsingOptions options = options_of(*record.find("options"));
    const BackendFinish finish = backend_finish_of(*record.find("backend_finish"));
    const ParsedReply expected = expected_reply(*record.find("expected"));
    EXPECT_EQ(parse_pieces(options, {text}, finish), expected) << text_of(record, "name");
    for (std::size_t cut = 1; *record.find("split_invariant")->as_bool() && cut < text.size(); ++cut) {
      ASSERT_EQ(parse_pieces(options, {text.substr(0, cut), text.substr(cut)}, finish), expected)
          << text_of(record, "name") << ", cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace deepinfer::recipe
