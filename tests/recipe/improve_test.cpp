// Every place of docs/recipe.md: what the official component does and what is done by default.
#include <gtest/gtest.h>

#include "base/json.h"
#include "recipe/convert.h"
#include "recipe/render.h"
#include "recipe/reply_stream.h"
#include "recipe/reply_texts.h"
#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::parse_pieces;
using testing::ParsedReply;

constexpr std::array kBoth{Conformance::official, Conformance::improved};

std::string calls_block(std::string_view inside) {
  return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n" + std::string(inside) + "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}

ParsedReply parse(std::string_view text, Conformance conformance, ParsingOptions options = {.parse_tool_calls = true},
                  BackendFinish finish = BackendFinish::stop) {
  options.conformance = conformance;
  return parse_pieces(options, {text}, finish);
}

/// Arguments of the only call.
std::string arguments(std::string_view inside, Conformance conformance) {
  const ParsedReply reply = parse(calls_block(inside), conformance);
  return reply.calls.size() == 1 ? reply.calls[0].second : "not one call";
}

std::expected<ConvertedRequest, RequestError> convert_as(Conformance conformance, Api api, std::string_view body) {
  ConvertOptions options;
  options.conformance = conformance;
  return convert(api, body, options);
}

std::string prompt_as(Conformance conformance, Api api, std::string_view body) {
  const auto request = convert_as(conformance, api, body);
  return request ? render(request->conversation, request->version).text : request.error().body;
}

TEST(Improved, KeysEndWithTheirQuote) {
  constexpr std::string_view kParameter = "<｜DSML｜ parameter name=\"a b\" string=\"true\">v</｜DSML｜ parameter>";
  EXPECT_FALSE(json::parse(arguments(kParameter, Conformance::official)).has_value());
  EXPECT_EQ(arguments(kParameter, Conformance::improved), R"({"a b": "v"})");
}

TEST(Improved, AParameterWithoutATypeIsAString) {
  EXPECT_EQ(arguments("<｜DSML｜ parameter name=\"a\">1</｜DSML｜ parameter>", Conformance::improved), R"({"a": "1"})");
}

TEST(Improved, AValueThatIsNoJsonBecomesAString) {
  constexpr std::string_view kParameter = "<｜DSML｜ parameter name=\"a\" string=\"false\">[1, </｜DSML｜ parameter>";
  EXPECT_FALSE(json::parse(arguments(kParameter, Conformance::official)).has_value());
  EXPECT_EQ(arguments(kParameter, Conformance::improved), R"({"a": "[1, "})");
  EXPECT_EQ(arguments("<｜DSML｜ parameter name=\"a\" string=\"false\">{\"b\": 1}</｜DSML｜ parameter>", Conformance::improved),
            R"({"a": {"b": 1}})");
}

TEST(Improved, AQuotedMarkerDoesNotSwallowTheAnswer) {
  constexpr std::string_view kText = "A call starts with <｜DSML｜ and a name.";
  EXPECT_EQ(parse(kText, Conformance::official).content, "A call starts with ");
  EXPECT_EQ(parse(kText, Conformance::improved).content, kText);
  for (const Conformance conformance : kBoth) {
    EXPECT_EQ(parse("x\n\n" + calls_block(""), conformance).calls.size(), 1U);
    EXPECT_EQ(
        parse("<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", conformance).calls.size(), 1U);
  }
  EXPECT_EQ(parse("x\n\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>", Conformance::improved).calls.size(), 1U)
      << "a call without a block around it";
}

TEST(Improved, CallsWithoutACallableNameAreNotReported) {
  for (const std::string_view name : {"", "a<b", "a\nb"}) {
    const std::string text = "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"" + std::string(name) +
                             "\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">v</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
                             "<｜DSML｜ invoke name=\"g\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
    EXPECT_EQ(parse(text, Conformance::official).calls.size(), 2U);
    const ParsedReply reply = parse(text, Conformance::improved);
    ASSERT_EQ(reply.calls.size(), 1U);
    EXPECT_EQ(reply.calls[0], (std::pair<std::string, std::string>{"g", "{}"}));
  }
}

TEST(Improved, HalfACloseTagIsNotPartOfTheValue) {
  const std::string text = "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" string=\"true\">v</｜DSM";
  EXPECT_EQ(parse(text, Conformance::official, {.parse_tool_calls = true}, BackendFinish::length).calls[0].second, R"({"a": "v</｜DSM)");
  EXPECT_EQ(parse(text, Conformance::improved, {.parse_tool_calls = true}, BackendFinish::length).calls[0].second, R"({"a": "v)");
}

TEST(Improved, JsonModeGivesTheJsonAlone) {
  const ParsingOptions json_mode{.parse_tool_calls = true, .parse_json_output = true};
  const std::string text = "Sure: {\"a\": \"}\", \"b\": [1]} as you asked.\n\n" + calls_block("");
  EXPECT_NE(parse(text, Conformance::official, json_mode).content, R"({"a": "}", "b": [1]})");
  const ParsedReply reply = parse(text, Conformance::improved, json_mode);
  EXPECT_EQ(reply.content, R"({"a": "}", "b": [1]})");
  EXPECT_EQ(reply.calls.size(), 1U) << "officially a call after bare JSON is not found";
  EXPECT_EQ(parse("I would rather not.", Conformance::improved, json_mode).content, "I would rather not.");
}

TEST(Improved, ControlTokensAreNoText) {
  const tokenizer::Tokenizer& tokenizer = testing::deepseek_v41();
  for (const Conformance conformance : kBoth) {
    ReplyStreamOptions options;
    options.opening = ReplyOpening::plain;
    options.parsing.conformance = conformance;
    options.tokenizer = &tokenizer;
    options.random_bits = [] { return std::uint64_t{0}; };
    options.unix_time = [] { return std::int64_t{0}; };
    ReplyStream reply(options);
    std::vector<TokenId> ids = tokenizer.encode("Hi", tokenizer::AddedTokens::ignore);
    ids.push_back(*tokenizer.find("<｜end▁of▁sentence｜>"));
    ASSERT_TRUE(reply.tokens(ids).has_value());
    EXPECT_FALSE(reply.finish(BackendFinish::stop).empty());
    EXPECT_EQ(reply.turn().content, conformance == Conformance::official ? "Hi<｜end▁of▁sentence｜>" : "Hi");
  }
}

TEST(Improved, ASingleCallEndsTheReply) {
  ParsingOptions options{.parse_tool_calls = true, .max_calls = 1};
  const std::string text =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"g\">\n</｜DSML｜ invoke>\n</｜DSML｜ "
      "calls>";
  const ParsedReply reply = parse(text, Conformance::improved, options);
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].first, "f");
  EXPECT_EQ(reply.finish, FinishReason::tool_calls);
}

TEST(Improved, RequestsForSingleCallsAreKept) {
  constexpr std::string_view kChat =
      R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"x"}],"parallel_tool_calls":false})";
  EXPECT_EQ(convert_as(Conformance::improved, Api::chat, kChat)->parsing.max_calls, 1);
  EXPECT_EQ(convert_as(Conformance::official, Api::chat, kChat)->parsing.max_calls, std::nullopt);
  constexpr std::string_view kMessages =
      R"({"model":"DeepSeek-V4.1-Flash","max_tokens":9,"messages":[{"role":"user","content":"x"}],)"
      R"("tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}})";
  EXPECT_EQ(convert_as(Conformance::improved, Api::messages, kMessages)->parsing.max_calls, 1);
}

TEST(Improved, StrictSchemasKeepTheirDefinitions) {
  constexpr std::string_view kBody =
      R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",)"
      R"("strict":true,"parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"string","minLength":1}}}}}]})";
  const auto official = convert_as(Conformance::official, Api::chat, kBody);
  const auto improved = convert_as(Conformance::improved, Api::chat, kBody);
  ASSERT_TRUE(official.has_value() && improved.has_value());
  EXPECT_EQ(official->conversation.tools[0].parameters.find("$defs"), nullptr);
  EXPECT_EQ(json::to_text(*improved->conversation.tools[0].parameters.find("$defs")), R"({"A":{"type":"string"}})");
}

TEST(Improved, ARunningToolLoopKeepsItsReasoningWithoutTools) {
  constexpr std::string_view kBody =
      R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"x"},)"
      R"({"role":"assistant","reasoning_content":"THOUGHT","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"r"}]})";
  EXPECT_EQ(prompt_as(Conformance::official, Api::chat, kBody).find("THOUGHT"), std::string::npos);
  EXPECT_NE(prompt_as(Conformance::improved, Api::chat, kBody).find("<think>THOUGHT</think>"), std::string::npos);
}

TEST(Improved, LaterSystemMessagesOfV4StayWhereTheyAre) {
  constexpr std::string_view kBody =
      R"({"model":"DeepSeek-V4-Pro","messages":[{"role":"system","content":"S1"},{"role":"user","content":"U1"},)"
      R"({"role":"assistant","content":"A1"},{"role":"system","content":"S2"},{"role":"user","content":"U2"}]})";
  const std::string official = prompt_as(Conformance::official, Api::chat, kBody);
  EXPECT_LT(official.find("S2"), official.find("U1"));
  const std::string improved = prompt_as(Conformance::improved, Api::chat, kBody);
  EXPECT_NE(improved.find("<｜User｜><system-reminder>\nS2\n</system-reminder>\n\nU2"), std::string::npos) << improved;
  EXPECT_LT(improved.find("S1"), improved.find("U1"));
}

TEST(Improved, CallsOfATurnInResponsesKeepTheirOrder) {
  const auto call = [](const std::string& id) {
    return R"({"type":"function_call","call_id":")" + id + R"(","name":"f_)" + id + R"(","arguments":"{}"},)";
  };
  const auto output = [](const std::string& id) {
    return R"({"type":"function_call_output","call_id":")" + id + R"(","output":"of )" + id + R"("},)";
  };
  std::string body = R"({"model":"DeepSeek-V4.1-Flash","input":[{"type":"message","role":"user","content":"q"},)" + call("c9") +
                     call("c10") + call("B") + output("B") + output("c9") + output("c10");
  body.back() = ']';
  body += '}';
  const auto order_of = [&body](Conformance conformance) {
    std::string out;
    const std::string prompt = prompt_as(conformance, Api::responses, body);
    for (std::size_t at = 0; (at = prompt.find_first_of("fo", at)) != std::string::npos; ++at) {
      for (const std::string_view mark : {"f_c9\"", "f_c10\"", "f_B\"", "of c9<", "of c10<", "of B<"}) {
        out += std::string_view(prompt).substr(at).starts_with(mark) ? std::string(mark.substr(0, mark.size() - 1)) + " " : "";
      }
    }
    return out;
  };
  EXPECT_EQ(order_of(Conformance::official), "f_B f_c10 f_c9 of B of c10 of c9 ");
  EXPECT_EQ(order_of(Conformance::improved), "f_c9 f_c10 f_B of c9 of c10 of B ");
}

TEST(Improved, EmptyThinkingIsRecognisedInEveryCallId) {
  constexpr std::string_view kBody =
      R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"x"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"call_100_ET_x","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"call_100_ET_x","content":"r"}]})";
  for (const Conformance conformance : kBoth) {
    ConvertOptions options;
    options.missing_reasoning = MissingReasoning::reject;
    options.conformance = conformance;
    EXPECT_EQ(convert(Api::chat, kBody, options).has_value(), conformance == Conformance::improved);
  }
}

TEST(Improved, NamesThatBreakTheMarkupAreRefused) {
  constexpr std::string_view kBody =
      R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"x"},)"
      R"({"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f\"> x","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"r"}]})";
  EXPECT_TRUE(convert_as(Conformance::official, Api::chat, kBody).has_value());
  const auto refused = convert_as(Conformance::improved, Api::chat, kBody);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status, 400);
}

}  // namespace
}  // namespace deepinfer::recipe
