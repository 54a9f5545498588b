// Constraints of requests: what is read from a body, what becomes of it together with thinking and tools, and replies that fit although
// the scripts do not.
#include "server/constraint.h"

#include <gtest/gtest.h>

#include <semaphore>

#include "api_bench.h"
#include "server/reply.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;
using grammar::GrammarKind;
using grammar::ToolUse;

RequestedConstraint taken(recipe::Api api, std::string_view text) {
  auto body = json::parse(text);
  EXPECT_TRUE(body);
  auto out = take_constraint(api, *body);
  EXPECT_TRUE(out) << out.error().message;
  return out ? *std::move(out) : RequestedConstraint{};
}

std::string problem_with(std::string_view text) {
  auto body = json::parse(text);
  const auto out = take_constraint(recipe::Api::chat, *body);
  return out ? "" : out.error().message;
}

TEST(RequestedConstraint, IsReadFromTheFormatOfEachApi) {
  const auto schema = taken(recipe::Api::chat, R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
      "schema":{"b":1.50,"a":{}}}}})");
  ASSERT_TRUE(schema.body);
  EXPECT_EQ(schema.body->text, R"({"b":1.50,"a":{}})");  // order of keys and spelling of numbers stay
  EXPECT_EQ(schema.body->options.additional, grammar::Additional::closed);
  EXPECT_EQ(schema.param, "response_format.json_schema.schema");

  EXPECT_EQ(taken(recipe::Api::chat, R"({"response_format":{"type":"json_object"}})").body->kind, GrammarKind::json_object);
  EXPECT_EQ(taken(recipe::Api::chat, R"({"response_format":{"type":"regex","regex":"a+"}})").body->text, "a+");

  const auto responses = taken(recipe::Api::responses, R"({"text":{"format":{"type":"json_schema","name":"n","schema":{}}}})");
  EXPECT_EQ(responses.body->options.additional, grammar::Additional::open);
  EXPECT_EQ(responses.param, "text.format.schema");

  const auto messages = taken(recipe::Api::messages, R"({"output_config":{"format":{"type":"json_schema","schema":{"type":"array"}}}})");
  EXPECT_EQ(messages.body->text, R"({"type":"array"})");
  EXPECT_TRUE(messages.prompt_schema);
  EXPECT_EQ(taken(recipe::Api::messages, R"({"output_format":{"type":"json_schema","schema":{}}})").param, "output_format.schema");

  EXPECT_FALSE(taken(recipe::Api::chat, R"({"response_format":{"type":"text"}})").body);
  EXPECT_FALSE(taken(recipe::Api::chat, R"([1])").body);
}

TEST(RequestedConstraint, AGrammarIsTakenOutBeforeConversion) {
  auto body = json::parse(R"({"response_format":{"type":"ebnf","grammar":"root ::= \"a\""}})");
  const auto constraint = take_constraint(recipe::Api::chat, *body);
  EXPECT_EQ(constraint->body->kind, GrammarKind::ebnf);
  EXPECT_EQ(json::to_text(*body), R"({"response_format":{"type":"text"}})");
}

TEST(RequestedConstraint, SoArgsCoverTheWholeOutput) {
  const auto constraint =
      taken(recipe::Api::chat, R"({"so_args":{"schema_type":"json","schema":"{}","trigger_token_ids":[5,6],"bound_token_id":7}})");
  EXPECT_TRUE(constraint.covers_all);
  EXPECT_EQ(constraint.body->options.additional, grammar::Additional::closed);
  EXPECT_EQ(constraint.trigger_ids, (std::vector<TokenId>{{5}, {6}}));
  EXPECT_EQ(constraint.bound_id, TokenId{7});
}

TEST(RequestedConstraint, MalformedAndDoubleOnesAreRefused) {
  EXPECT_EQ(problem_with(R"({"so_args":{"schema_type":"xml"}})"), "so_args.schema_type: \"json\", \"regex\" or \"ebnf\" is needed");
  EXPECT_EQ(problem_with(R"({"so_args":{"schema_type":"json","schema":{}}})"), "so_args.schema: a text is needed");
  EXPECT_EQ(problem_with(R"({"so_args":{"schema_type":"regex","schema":"a","trigger_token_ids":[-1]}})"),
            "so_args.trigger_token_ids: token ids are integers of at least 0");
  EXPECT_EQ(problem_with(R"({"so_args":{"schema_type":"regex","schema":"a","bound_token_id":1}})"),
            "so_args.bound_token_id: an integer of at least 0 beside trigger_token_ids is needed");
  EXPECT_EQ(problem_with(R"({"so_args":{"schema_type":"regex","schema":"a"},"response_format":{"type":"json_object"}})"),
            "so_args and response_format exclude each other");
}

std::optional<grammar::CompositeJob> job_of(std::string_view text, ToolConstraint tools = ToolConstraint::structure) {
  auto body = json::parse(text);
  const auto requested = take_constraint(recipe::Api::chat, *body);
  auto converted = recipe::convert_body(recipe::Api::chat, std::move(*body), convert_options("nano"));
  EXPECT_TRUE(converted) << converted.error().message;
  return constraint_job(*requested, *converted, {.tools = tools, .thinking_end = {9}, .dsml = {8}});
}

std::string with(const std::string& more) { return R"({"model":"nano","messages":[{"role":"user","content":"json"}])" + more + "}"; }

const std::string kOff = R"(,"thinking":{"type":"disabled"})";
const std::string kTool =
    R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"additionalProperties":false,"$defs":{"x":{"type":"string"}}})";

TEST(ConstraintJob, FollowsThinkingToolsAndChoice) {
  EXPECT_FALSE(job_of(with("")));
  const auto thinking = job_of(with(R"(,"response_format":{"type":"json_object"})"));
  EXPECT_EQ(thinking->reasoning_end_ids, (std::vector<TokenId>{{9}}));
  EXPECT_EQ(thinking->tool_use, ToolUse::none);
  EXPECT_TRUE(job_of(with(R"(,"response_format":{"type":"json_object"})" + kOff))->reasoning_end_ids.empty());

  const auto tools = job_of(with(kTool + "}}]" + kOff));
  EXPECT_EQ(tools->tool_use, ToolUse::automatic);
  EXPECT_FALSE(tools->tools[0].is_strict);
  EXPECT_FALSE(tools->block_is_open);
  EXPECT_FALSE(job_of(with(kTool + "}}]"), ToolConstraint::off));
  EXPECT_TRUE(job_of(with(kTool + "}}]"), ToolConstraint::schema)->tools[0].is_strict);

  const auto required = job_of(with(kTool + R"(}}],"tool_choice":"required","parallel_tool_calls":false)" + kOff));
  EXPECT_EQ(required->tool_use, ToolUse::required);
  EXPECT_TRUE(required->block_is_open);
  EXPECT_FALSE(required->has_parallel_calls);
  EXPECT_EQ(job_of(with(kTool + R"(}}],"tool_choice":"none")"))->tool_use, ToolUse::none);
}

TEST(ConstraintJob, AStrictToolKeepsTheDefinitionsThatConversionDrops) {
  const auto strict = job_of(with(kTool + R"(,"strict":true}}])"), ToolConstraint::off);
  ASSERT_TRUE(strict);
  EXPECT_TRUE(strict->tools[0].is_strict);
  EXPECT_NE(strict->tools[0].parameters.find("$defs"), std::string::npos);
}

/// A reply to the script "endless", which fits nothing.
std::string forced_reply(const ApiBench& bench, const std::string& more, const std::string& script = "endless") {
  const ClientResponse response = bench.post(kChat, chat_body(script, R"(,"temperature":0,"max_tokens":200)" + more));
  EXPECT_EQ(response.status, 200) << response.body;
  const auto body = json::parse(response.body);
  const json::Value& choice = body->find("choices")->as_array()->front();
  EXPECT_EQ(*choice.find("finish_reason")->as_string(), "stop");
  return *choice.find("message")->find("content")->as_string();
}

TEST(StructuredOutput, RepliesFitWhateverTheModelWouldSay) {
  const ApiBench bench;
  EXPECT_EQ(forced_reply(bench, R"(,"response_format":{"type":"regex","regex":"no[.]"})"), "no.");
  EXPECT_EQ(forced_reply(bench, R"(,"response_format":{"type":"ebnf","grammar":"root ::= \"a\" \"b\"{3}"})"), "abbb");
  EXPECT_EQ(forced_reply(bench, R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"const":[true,{}]}}})")
                .substr(0, 1),
            "[");
  EXPECT_EQ(forced_reply(bench, R"(,"so_args":{"schema_type":"regex","schema":"yes"})"), "yes");
  EXPECT_EQ(forced_reply(bench, R"(,"response_format":{"type":"regex","regex":"Hel+o[^a]*"})", "hello"), "Hello! How");
}

TEST(StructuredOutput, AReplyThatIsCutSaysSo) {
  const ApiBench bench;
  const ClientResponse response =
      bench.post(kChat, chat_body("endless", R"(,"max_tokens":3,"response_format":{"type":"regex","regex":"[0-9]{50}"})"));
  EXPECT_NE(response.body.find(R"("finish_reason":"length")"), std::string::npos) << response.body;
}

TEST(StructuredOutput, ARequiredCallIsACall) {
  const ApiBench bench;
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"now","strict":true,"parameters":{"type":"object","properties":{"zone":{"type":"string","enum":["UTC"]}},"required":["zone"],"additionalProperties":false}}}],"tool_choice":"required","parallel_tool_calls":false)";
  const ClientResponse response = bench.post(kChat, chat_body("endless", tools));
  const auto body = json::parse(response.body);
  const json::Value& choice = body->find("choices")->as_array()->front();
  EXPECT_EQ(*choice.find("finish_reason")->as_string(), "tool_calls") << response.body;
  const json::Value& call = choice.find("message")->find("tool_calls")->as_array()->front();
  EXPECT_EQ(*call.find("function")->find("name")->as_string(), "now");
  EXPECT_EQ(*json::parse(*call.find("function")->find("arguments")->as_string())->find("zone")->as_string(), "UTC");
}

TEST(StructuredOutput, ThinkingStaysFree) {
  const ApiBench bench;
  const ClientResponse response = bench.post(
      kChat,
      R"({"model":"nano","messages":[{"role":"user","content":"[script:think]"}],"response_format":{"type":"regex","regex":"The answer is 4[0-9]"}})");
  EXPECT_NE(response.body.find(R"("reasoning_content":"Let me see.\nIt is easy.")"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find(R"("content":"The answer is 42")"), std::string::npos) << response.body;
}

TEST(StructuredOutput, ABadConstraintIsA400ThatNamesKeywordAndPlaceAlsoOfAStream) {
  const ApiBench bench;
  for (const std::string stream : {"false", "true"}) {
    const std::string format =
        R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"properties":{"a":{"uniqueItems":true}}}}})";
    const ClientResponse response = bench.post(kChat, chat_body("hello", R"(,"stream":)" + stream + format));
    EXPECT_EQ(response.status, 400) << response.body;
    const auto error = json::parse(response.body);
    ASSERT_TRUE(error && error->find("error")) << response.body;
    EXPECT_EQ(*error->find("error")->find("param")->as_string(), "response_format.json_schema.schema");
    EXPECT_EQ(*error->find("error")->find("code")->as_string(), "unsupported");
    const std::string& message = *error->find("error")->find("message")->as_string();
    EXPECT_NE(message.find("uniqueItems"), std::string::npos) << message;
    EXPECT_NE(message.find("/properties/a"), std::string::npos) << message;
  }
  const ClientResponse regex = bench.post(kChat, chat_body("hello", R"(,"response_format":{"type":"regex","regex":"["})"));
  EXPECT_EQ(regex.status, 400) << regex.body;
  bench.expect_normal_service();
}

TEST(StructuredOutput, SwitchedOffItIsRefusedAndPlainRequestsAreServed) {
  const ApiBench bench({.model = {.has_structured_output = false}});
  const ClientResponse response = bench.post(kChat, chat_body("hello", R"(,"response_format":{"type":"regex","regex":"a"})"));
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("switched off"), std::string::npos);
  bench.expect_normal_service();
}

TEST(StructuredOutput, AClientThatLeavesWhileItsConstraintIsCompiledLeavesNothing) {
  const auto model = scripted_model();
  const std::string body = chat_body("hello", R"(,"response_format":{"type":"regex","regex":"(a|b)*a(a|b){9}"})");
  for (int i = 0; i < 50; ++i) {
    auto completion = Reply::start(model, {.body = body}, [] {});
    ASSERT_TRUE(completion);
    if (i % 2 == 0) {
      (*completion)->cancel();
      EXPECT_EQ((*completion)->state(), Completion::State::failed);
    }
  }
  EXPECT_TRUE(eventually([&] { return model->engine->stats().num_running == 0 && model->engine->stats().num_waiting == 0; }));
}

}  // namespace
}  // namespace deepinfer::server
