// Chat requests over loopback sockets: replies and streams, clients that leave or read slowly, what a client can get wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

TEST(Generation, AChatRequestGetsOneResponse) {
  ApiBench bench;
  const ClientResponse response = bench.post(kChat, chat_body("hello"), "x-request-id: abc-1\r\n");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.header("x-request-id"), "abc-1");
  EXPECT_EQ(response.header("content-type"), "application/json");
  const auto body = json::parse(response.body);
  ASSERT_TRUE(body);
  EXPECT_EQ(*body->find("object")->as_string(), "chat.completion");
  EXPECT_TRUE(body->find("id")->as_string()->starts_with("chatcmpl-"));
  const json::Value& choice = body->find("choices")->as_array()->front();
  EXPECT_EQ(*choice.find("message")->find("content")->as_string(), "Hello! How can I help you today?");
  EXPECT_EQ(*choice.find("finish_reason")->as_string(), "stop");
  EXPECT_GT(body->find("usage")->find("prompt_tokens")->as_number()->as_int64(), 0);
}

TEST(Generation, AStreamIsTheSameReplyInPieces) {
  ApiBench bench;
  const ClientResponse response = bench.post(kChat, chat_body("hello", R"(,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.header("content-type").starts_with("text/event-stream"));
  const std::vector<std::string> events = events_of(response.body);
  ASSERT_GT(events.size(), 4U);
  EXPECT_EQ(joined(events, "content"), "Hello! How can I help you today?");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_NE(events[events.size() - 2].find("\"completion_tokens\""), std::string::npos);
}

TEST(Generation, ThinkingIsTheReasoningOfTheReply) {
  ApiBench bench;
  const ClientResponse response =
      bench.post(kChat, R"({"model":"nano","stream":true,"messages":[{"role":"user","content":"[script:think]"}]})");
  const std::vector<std::string> events = events_of(response.body);
  EXPECT_EQ(joined(events, "reasoning_content"), "Let me see.\nIt is easy.");
  EXPECT_EQ(joined(events, "content"), "The answer is 42.");
}

TEST(Generation, ACallOfTheReplyIsAToolCall) {
  ApiBench bench;
  const ClientResponse response = bench.post(
      kChat, chat_body("call", R"(,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}])"));
  const auto body = json::parse(response.body);
  ASSERT_TRUE(body);
  const json::Value& choice = body->find("choices")->as_array()->front();
  EXPECT_EQ(*choice.find("finish_reason")->as_string(), "tool_calls");
  const json::Value& function = *choice.find("message")->find("tool_calls")->as_array()->front().find("function");
  EXPECT_EQ(*function.find("name")->as_string(), "get_weather");
  EXPECT_EQ(*function.find("arguments")->as_string(), R"({"city": "Paris"})");
}

TEST(Generation, SixteenStreamsAtOnceAreTheSameAsOne) {
  ApiBench bench;
  const std::string body = chat_body("unicode", R"(,"stream":true)");
  std::vector<std::string> texts(16);
  std::vector<std::jthread> clients;
  for (std::string& text : texts) {
    clients.emplace_back([&] { text = joined(events_of(bench.post(kChat, body).body), "content"); });
  }
  clients.clear();
  for (const std::string& text : texts) {
    EXPECT_EQ(text, "Zażółć 你好 🙂🙃 done");
  }
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(Generation, ManyRequestsShareAConnection) {
  ApiBench bench;
  LoopbackClient client(bench.server->port());
  for (int i = 0; i < 5; ++i) {
    const ClientResponse response = client.exchange("POST", kChat, chat_body("hello", i % 2 == 0 ? R"(,"stream":true)" : ""));
    EXPECT_EQ(response.status, 200);
  }
}

// ---- clients that leave

TEST(Generation, AClientThatLeavesAStreamEndsItsWork) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(1ms); };  // else the context may be used up before the client has read anything
  ApiBench bench({.model = {.scripts = scripts}});
  auto client = std::make_unique<LoopbackClient>(bench.server->port());
  client->request("POST", kChat, chat_body("endless", R"(,"stream":true)"));
  ASSERT_TRUE(client->receive_until("la"));
  EXPECT_FALSE(bench.is_quiet());
  client.reset();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_LT(bench.model->engine->stats().num_generated_tokens, 2000);  // the context was not used up
  bench.expect_normal_service();
}

TEST(Generation, AClientThatLeavesBeforeItsReplyEndsItsWork) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(2ms); };
  ApiBench bench({.model = {.scripts = scripts}});
  auto client = std::make_unique<LoopbackClient>(bench.server->port());
  client->request("POST", kChat, chat_body("endless"));
  ASSERT_TRUE(eventually([&] { return !bench.is_quiet(); }));
  client.reset();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_LT(bench.model->engine->stats().num_generated_tokens, 1500);
}

TEST(Generation, TheWorkOfAVanishedClientEndsWithinOneStep) {
  std::counting_semaphore<> steps(0);
  std::atomic<int> num_forwards = 0;
  Scripts scripts;
  scripts.before_forward = [&] {
    ++num_forwards;
    static_cast<void>(steps.try_acquire_for(10s));
  };
  ApiBench bench({.model = {.scripts = scripts}});
  auto client = std::make_unique<LoopbackClient>(bench.server->port());
  client->request("POST", kChat, chat_body("endless", R"(,"stream":true)"));
  steps.release(3);
  ASSERT_TRUE(client->receive_until("la"));
  ASSERT_TRUE(eventually([&] { return num_forwards == 4; }));  // the fourth waits for its permit
  client.reset();
  ASSERT_TRUE(eventually([&] {  // the server has noticed: the line is in the log
    for (const std::string& line : bench.log.drain()) {
      if (line.find("client gone") != std::string::npos) {
        return true;
      }
    }
    return false;
  }));
  steps.release(100);
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_EQ(num_forwards, 4);  // the step that ran when the client left, and none after it
}

TEST(Generation, AReaderThatIsTooSlowHoldsNothingBack) {
  constexpr int kSystemBuffer = 4096;  // on both sides: a reply of 2,000 tokens with 20 alternatives each is far larger
  ApiBenchOptions options;
  options.server.http.max_unsent_bytes = 16384;
  options.server.http.send_buffer_bytes = kSystemBuffer;
  ApiBench bench(std::move(options));
  LoopbackClient client(bench.server->port(), kSystemBuffer);
  client.request("POST", kChat, chat_body("endless", R"(,"stream":true,"logprobs":true,"top_logprobs":20)"));
  const auto line = bench.log.pop(10s);
  ASSERT_TRUE(line);
  EXPECT_NE(line->find("reader too slow"), std::string::npos) << *line;
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_LT(bench.model->engine->stats().num_generated_tokens, 2000);
  bench.expect_normal_service();
}

}  // namespace
}  // namespace deepinfer::server
