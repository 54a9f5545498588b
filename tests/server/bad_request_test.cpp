// What a client can get wrong: one clear answer each, and the next request works.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

struct Wrong {
  const char* what;
  std::string body;
  int status;
  const char* says;
};

TEST(BadRequest, EveryWrongBodyGetsOneClearAnswerAndTheNextRequestWorks) {
  ApiBench bench;
  const std::vector<Wrong> cases = {
      {"malformed JSON", R"({"model":"nano","messages":[)", 400, "invalid JSON request"},
      {"no JSON", "hello", 400, "invalid JSON request"},
      {"no body", "", 400, "invalid JSON request"},
      {"another type", R"([1,2])", 400, "invalid request body"},
      {"messages of another type", R"({"model":"nano","messages":"hi"})", 400, "invalid request body"},
      {"temperature of another type", chat_body("hello", R"(,"temperature":"hot")"), 400, "invalid request body"},
      {"temperature out of range", chat_body("hello", R"(,"temperature":3)"), 400, "valid range of temperature"},
      {"empty messages", R"({"model":"nano","messages":[]})", 400, "Empty input messages"},
      {"max_tokens 0", chat_body("hello", R"(,"max_tokens":0)"), 400, "valid range of max_tokens"},
      {"max_tokens beyond all limits", chat_body("hello", R"(,"max_tokens":400000)"), 400, "valid range of max_tokens"},
      {"max_tokens negative", chat_body("hello", R"(,"max_tokens":-1)"), 400, "invalid request body"},
      {"another model", R"({"model":"gpt","messages":[{"role":"user","content":"hi"}]})", 400, "The supported API model names are"},
      {"invalid UTF-8", "{\"model\":\"nano\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", 400, "invalid JSON request"},
      {"lone surrogate", R"({"model":"nano","messages":[{"role":"user","content":"\ud800"}]})", 400, "invalid JSON request"},
      {"deep nesting", std::string(100'000, '['), 400, "invalid JSON request"},
      {"too many choices", chat_body("hello", R"(,"n":2)"), 400, "n = 1"},
      {"an empty stop", chat_body("hello", R"(,"stop":"")"), 400, "Invalid 'stop'"},
      {"a prompt longer than the context",
       R"({"model":"nano","messages":[{"role":"user","content":")" + std::string(40'000, 'x') + R"("}]})", 400,
       "This model's maximum context length is 2048 tokens."},
  };
  for (const Wrong& wrong : cases) {
    const ClientResponse response = bench.post(kChat, wrong.body);
    EXPECT_EQ(response.status, wrong.status) << wrong.what;
    EXPECT_NE(response.body.find(wrong.says), std::string::npos) << wrong.what << ": " << response.body;
    const auto body = json::parse(response.body);
    ASSERT_TRUE(body) << wrong.what;
    EXPECT_NE(body->find("error"), nullptr) << wrong.what;
    bench.expect_normal_service();
  }
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(BadRequest, ABodyOverTheLimitIsRefusedInTheFormOfItsApi) {
  ApiBenchOptions options;
  options.server.http.max_body_bytes = 1000;
  ApiBench bench(std::move(options));
  const ClientResponse chat = bench.post(kChat, std::string(2000, ' '));
  EXPECT_EQ(chat.status, 413);
  EXPECT_NE(chat.body.find("larger than 1000 bytes"), std::string::npos);
  const ClientResponse messages = bench.post("/v1/messages", std::string(2000, ' '));
  EXPECT_NE(messages.body.find("request_too_large"), std::string::npos) << messages.body;
  bench.expect_normal_service();
}

TEST(BadRequest, UnknownPathsAndWrongMethodsHaveTheirStatus) {
  ApiBench bench;
  EXPECT_EQ(bench.get("/nothing").status, 404);
  EXPECT_EQ(bench.get("/v1/models/other").status, 404);
  const ClientResponse wrong = bench.get(kChat);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "post");
  EXPECT_EQ(bench.post("/health", "{}").status, 405);
}

TEST(BadRequest, AFullQueueAnswersWithRetryAfter) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(1ms); };
  ApiBench bench({.model = {.scripts = scripts, .max_requests = 1, .max_queue = 0}});
  LoopbackClient busy(bench.server->port());
  busy.request("POST", kChat, chat_body("endless", R"(,"stream":true)"));
  ASSERT_TRUE(busy.receive_until("la"));
  const ClientResponse refused = bench.post(kChat, chat_body("hello"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  busy.close();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  bench.expect_normal_service();
}

TEST(BadRequest, AFailureOfTheModelIsAnErrorAndInAStreamAnErrorEvent) {
  ApiBench bench;
  const ClientResponse whole = bench.post(kChat, chat_body("bad"));
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.body.find("server_error"), std::string::npos);
  const ClientResponse stream = bench.post(kChat, chat_body("bad", R"(,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  const std::vector<std::string> events = events_of(stream.body);
  EXPECT_NE(events.back().find("server_error"), std::string::npos) << events.back();
  bench.expect_normal_service();
}

}  // namespace
}  // namespace deepinfer::server
