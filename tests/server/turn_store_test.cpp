// Tool turns come back as the model wrote them, and only those that the client sent back unchanged.
#include "server/turn_store.h"

#include <gtest/gtest.h>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using recipe::AssistantMessage;
using recipe::Conversation;
using recipe::GeneratedTurn;

const recipe::ReplyStream::Turn kSaid{.content = "One moment.\n",
                                      .reasoning = "I should look.",
                                      .calls = {{.id = "call_1", .name = "f", .arguments = R"({"a": [1, 2.50], "b": "x"})"}}};

GeneratedTurn generated() { return {.thinking_mode = recipe::ThinkingMode::on, .text = "text", .ids = {{7}, {8}}}; }

AssistantMessage sent_back() {
  return {.content = "One moment.",
          .reasoning_content = "I should look.",
          .tool_calls = std::vector<recipe::ToolCall>{{.id = "call_1", .name = "f", .arguments = R"({"b":"x","a":[1,2.5]})"}}};
}

bool is_restored(TurnStore& store, AssistantMessage message, const std::string& owner = "anna") {
  Conversation conversation;
  conversation.messages.emplace_back(std::move(message));
  store.restore(owner, conversation);
  return std::get<AssistantMessage>(conversation.messages.front()).generated != nullptr;
}

TEST(TurnStore, ATurnInTheSpellingOfTheClientIsRestored) {
  TurnStore store;
  store.keep("anna", kSaid, generated());
  EXPECT_TRUE(is_restored(store, sent_back()));
  AssistantMessage without_reasoning = sent_back();
  without_reasoning.reasoning_content = "";
  EXPECT_TRUE(is_restored(store, without_reasoning));
}

TEST(TurnStore, AChangedTurnIsNot) {
  TurnStore store;
  store.keep("anna", kSaid, generated());
  const auto with = [&store](auto change) {
    AssistantMessage message = sent_back();
    change(message);
    return is_restored(store, message);
  };
  EXPECT_FALSE(with([](auto& m) { m.content = "Another moment."; }));
  EXPECT_FALSE(with([](auto& m) { m.reasoning_content = "Something else."; }));
  EXPECT_FALSE(with([](auto& m) { m.tool_calls->front().arguments = R"({"b":"y","a":[1,2.5]})"; }));
  EXPECT_FALSE(with([](auto& m) { m.tool_calls->front().arguments = R"({"b":"x"})"; }));
  EXPECT_FALSE(with([](auto& m) { m.tool_calls->front().arguments = "{"; }));
  EXPECT_FALSE(with([](auto& m) { m.tool_calls->front().name = "g"; }));
  EXPECT_FALSE(with([](auto& m) { m.tool_calls->push_back(m.tool_calls->front()); }));
  EXPECT_FALSE(with([](auto& m) { m.tool_calls.reset(); }));
  EXPECT_FALSE(with([](auto& m) { m.prefix = true; }));
  EXPECT_FALSE(is_restored(store, sent_back(), "bert"));
}

TEST(TurnStore, NumbersAreEqualByValueButLargeIntegersByTheirDigits) {
  const auto turn = [](const std::string& arguments) {
    return recipe::ReplyStream::Turn{.content = {}, .reasoning = {}, .calls = {{.id = "c", .name = "f", .arguments = arguments}}};
  };
  const auto matches = [&](const std::string& said, const std::string& sent) {
    TurnStore store;
    store.keep("", turn(said), generated());
    return is_restored(
        store,
        {.content = {}, .reasoning_content = {}, .tool_calls = std::vector<recipe::ToolCall>{{.id = "c", .name = "f", .arguments = sent}}},
        "");
  };
  EXPECT_TRUE(matches(R"({"a":1.0})", R"({"a":1})"));
  EXPECT_TRUE(matches(R"({"a":1e2})", R"({"a":100})"));
  EXPECT_FALSE(matches(R"({"a":9007199254740993})", R"({"a":9007199254740992})"));
  EXPECT_TRUE(matches("not json", "not json"));
}

TEST(TurnStore, TurnsAndBytesAreBoundedAndTheLongestUnusedGoesFirst) {
  TurnStore store({.max_turns = 2, .max_bytes = 1 << 20});
  const auto keep = [&store](const std::string& id) {
    recipe::ReplyStream::Turn said = kSaid;
    said.calls.front().id = id;
    store.keep("anna", said, generated());
  };
  const auto has = [&store](const std::string& id) {
    AssistantMessage message = sent_back();
    message.tool_calls->front().id = id;
    return is_restored(store, message);
  };
  keep("c1");
  keep("c2");
  EXPECT_TRUE(has("c1"));
  keep("c3");
  EXPECT_TRUE(has("c1"));
  EXPECT_FALSE(has("c2"));
  EXPECT_EQ(store.num_turns(), 2U);

  TurnStore small({.max_turns = 1000, .max_bytes = 5000});
  for (int i = 0; i < 50; ++i) {
    recipe::ReplyStream::Turn said = kSaid;
    said.calls.front().id = "call_" + std::to_string(i);
    small.keep("anna", said, generated());
    EXPECT_LE(small.num_bytes(), 5000U);
  }
  EXPECT_GT(small.num_turns(), 2U);
}

// ---- through the server

constexpr const char* kTools = R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}])";

/// A thinking request that is answered by a call, in the words of the API.
std::string first_request(bool stream) {
  return std::string(R"({"model":"nano","messages":[{"role":"user","content":"[script:think_call]"}],)") + kTools +
         (stream ? R"(,"stream":true})" : "}");
}

std::string second_request(const std::string& call_id, const std::string& arguments, const std::string& reasoning_member) {
  std::string quoted;
  json::append_string(quoted, arguments);
  return std::string(
             R"({"model":"nano","messages":[{"role":"user","content":"[script:think_call]"},{"role":"assistant","content":"One moment.")") +
         reasoning_member + R"(,"tool_calls":[{"id":")" + call_id + R"(","type":"function","function":{"name":"get_weather","arguments":)" +
         quoted + R"(}}]},{"role":"tool","tool_call_id":")" + call_id + R"(","content":"sunny"}],)" + kTools + "}";
}

std::string call_id_in(const std::string& text) {
  const std::size_t at = text.find("\"call_0");
  EXPECT_NE(at, std::string::npos) << text;
  return text.substr(at + 1, text.find('"', at + 1) - at - 1);
}

TEST(ToolTurns, TheNextPromptBeginsWithEveryTokenOfTheTurnBefore) {
  ApiBench bench;
  const auto render = [&bench](const std::string& body) {
    const ClientResponse rendered = bench.post("/render", body);
    auto parsed = json::parse(rendered.body);
    EXPECT_TRUE(parsed && rendered.status == 200) << rendered.body;
    return std::move(*parsed);
  };
  const std::string generated = Scripts().texts.at("think_call");
  const std::vector<TokenId> generated_ids = nano_tokenizer().encode(generated, tokenizer::AddedTokens::recognise);
  for (const bool stream : {false, true}) {
    json::Array expected = *render(first_request(false)).find("ids")->as_array();
    for (const TokenId id : generated_ids) {
      expected.emplace_back(id.value);
    }
    const std::string call_id = call_id_in(bench.post(kChat, first_request(stream)).body);
    for (const char* const reasoning : {"", R"(,"reasoning_content":"I should look.")"}) {
      const json::Value second = render(second_request(call_id, R"({ "city":"Paris",  "days":[1,2.5] })", reasoning));
      json::Array ids = *second.find("ids")->as_array();
      ASSERT_GT(ids.size(), expected.size());
      ids.resize(expected.size());
      EXPECT_EQ(ids, expected) << *second.find("prompt")->as_string();
    }
    const json::Value edited = render(second_request(call_id, R"({"city":"London","days":[1,2.5]})", ""));
    EXPECT_NE(edited.find("prompt")->as_string()->find("London"), std::string::npos);
  }
}

/// The ids of a prompt, for a body of `api`.
json::Array prompt_ids(const ApiBench& bench, const char* api, const json::Value& body) {
  const ClientResponse rendered = bench.post("/render", json::to_text(json::Object{{"api", api}, {"body", body}}));
  const auto parsed = json::parse(rendered.body);
  EXPECT_TRUE(parsed && rendered.status == 200) << rendered.body;
  return *parsed->find("ids")->as_array();
}

/// Asks `first`, builds the next body with `continued`, and expects its prompt to begin with the first prompt and what was generated.
template <class Continue>
void expect_same_prefix(const char* api, const char* path, const std::string& first, const Continue& continued) {
  ApiBench bench;
  const auto request = json::parse(first);
  ASSERT_TRUE(request);
  json::Array expected = prompt_ids(bench, api, *request);
  for (const TokenId id : nano_tokenizer().encode(Scripts().texts.at("think_call"), tokenizer::AddedTokens::recognise)) {
    expected.emplace_back(id.value);
  }
  const ClientResponse response = bench.post(path, first);
  const auto reply = json::parse(response.body);
  ASSERT_TRUE(reply && response.status == 200) << response.body;
  json::Array ids = prompt_ids(bench, api, continued(*request, *reply));
  ASSERT_GT(ids.size(), expected.size());
  ids.resize(expected.size());
  EXPECT_EQ(ids, expected);
}

TEST(ToolTurns, MessagesComeBackAsTheyWereGenerated) {
  const std::string first =
      R"({"model":"nano","max_tokens":500,"messages":[{"role":"user","content":"[script:think_call]"}],"thinking":{"type":"enabled","budget_tokens":1024},
          "tools":[{"name":"get_weather","input_schema":{"type":"object"}}]})";
  expect_same_prefix("messages", "/v1/messages", first, [](const json::Value& request, const json::Value& reply) {
    json::Object next = *request.as_object();
    const json::Array& blocks = *reply.find("content")->as_array();
    json::Array messages = *next.find("messages")->as_array();
    messages.emplace_back(json::Object{{"role", "assistant"}, {"content", blocks}});
    messages.emplace_back(json::Object{
        {"role", "user"},
        {"content", json::Array{json::Object{{"type", "tool_result"}, {"tool_use_id", *blocks.back().find("id")}, {"content", "sunny"}}}}});
    next.set("messages", std::move(messages));
    return next;
  });
}

TEST(ToolTurns, ResponsesComeBackAsTheyWereGenerated) {
  const std::string first = R"({"model":"nano","input":[{"role":"user","content":"[script:think_call]"}],"reasoning":{"effort":"high"},
                               "tools":[{"type":"function","name":"get_weather","parameters":{"type":"object"}}]})";
  expect_same_prefix("responses", "/v1/responses", first, [](const json::Value& request, const json::Value& reply) {
    json::Object next = *request.as_object();
    json::Array input = *next.find("input")->as_array();
    const json::Array& output = *reply.find("output")->as_array();
    input.insert(input.end(), output.begin(), output.end());
    input.emplace_back(json::Object{{"type", "function_call_output"}, {"call_id", *output.back().find("call_id")}, {"output", "sunny"}});
    next.set("input", std::move(input));
    return next;
  });
}

TEST(ToolTurns, OfficialRenderingStaysWhenItIsAskedFor) {
  ApiBench bench({.model = {.strict_official = true}});
  const std::string call_id = call_id_in(bench.post(kChat, first_request(false)).body);
  const ClientResponse second = bench.post("/render", second_request(call_id, R"({"days":[1,2.50],"city":"Paris"})", ""));
  EXPECT_NE(second.body.find("<think></think>One moment."), std::string::npos) << second.body;
}

}  // namespace
}  // namespace deepinfer::server
