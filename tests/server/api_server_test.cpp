// The whole server over loopback sockets with a scripted model: APIs, errors, limits, phases, clients that leave.
#include "server/api_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>
#include <vector>

#include "base/json.h"
#include "loopback_client.h"
#include "scripted_model.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;
constexpr const char* kChat = "/v1/chat/completions";

struct BenchOptions {
  ApiServerOptions server = {};
  ScriptedOptions model = {};
};

/// A server that is ready. `log` holds its access lines.
struct Bench {
  explicit Bench(BenchOptions options = {}) : model(scripted_model(std::move(options.model))) {
    options.server.http.port = 0;
    options.server.version = "0.1.0";
    options.server.commit = "abc";
    options.server.log = Log([this](LogLevel, std::string_view text) { EXPECT_TRUE(log.try_push(std::string(text))); });
    auto started = ApiServer::start(std::move(options.server));
    EXPECT_TRUE(started) << started.error().message;
    server = std::move(*started);
    server->serve(model);
  }

  ClientResponse post(const std::string& path, const std::string& body, const std::string& headers = "") const {
    return LoopbackClient(server->port()).exchange("POST", path, body, headers);
  }
  ClientResponse get(const std::string& path, const std::string& headers = "") const {
    return LoopbackClient(server->port()).exchange("GET", path, "", headers);
  }
  bool is_quiet() const {
    const engine::EngineStats stats = model->engine->stats();
    return stats.num_running == 0 && stats.num_waiting == 0 && stats.num_blocks_used == 0 && stats.num_slots_used == 0;
  }
  void expect_normal_service() const {
    const ClientResponse response = post(kChat, chat_body("hello"));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.body.find("Hello! How can I help you today?"), std::string::npos) << response.body;
  }

  BoundedQueue<std::string> log{4096};
  std::shared_ptr<const ServedModel> model;
  std::unique_ptr<ApiServer> server;
};

/// Data lines of a stream, in order.
std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const std::size_t end = body.find('\n', at);
    out.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return out;
}

/// A member of the only choice's delta, joined over all chunks.
std::string joined(const std::vector<std::string>& events, const std::string& member) {
  std::string out;
  for (const std::string& event : events) {
    const auto chunk = json::parse(event);
    const json::Value* const choices = chunk ? chunk->find("choices") : nullptr;
    if (choices == nullptr || choices->as_array()->empty()) {
      continue;
    }
    const json::Value* const value = choices->as_array()->front().find("delta")->find(member);
    out += value == nullptr || value->as_string() == nullptr ? "" : *value->as_string();
  }
  return out;
}

// ---- replies

TEST(ApiServer, AChatRequestGetsOneResponse) {
  Bench bench;
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

TEST(ApiServer, AStreamIsTheSameReplyInPieces) {
  Bench bench;
  const ClientResponse response = bench.post(kChat, chat_body("hello", R"(,"stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.header("content-type").starts_with("text/event-stream"));
  const std::vector<std::string> events = events_of(response.body);
  ASSERT_GT(events.size(), 4U);
  EXPECT_EQ(joined(events, "content"), "Hello! How can I help you today?");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_NE(events[events.size() - 2].find("\"completion_tokens\""), std::string::npos);
}

TEST(ApiServer, ThinkingIsTheReasoningOfTheReply) {
  Bench bench;
  const ClientResponse response =
      bench.post(kChat, R"({"model":"nano","stream":true,"messages":[{"role":"user","content":"[script:think]"}]})");
  const std::vector<std::string> events = events_of(response.body);
  EXPECT_EQ(joined(events, "reasoning_content"), "Let me see.\nIt is easy.");
  EXPECT_EQ(joined(events, "content"), "The answer is 42.");
}

TEST(ApiServer, ACallOfTheReplyIsAToolCall) {
  Bench bench;
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

TEST(ApiServer, SixteenStreamsAtOnceAreTheSameAsOne) {
  Bench bench;
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

TEST(ApiServer, ManyRequestsShareAConnection) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  for (int i = 0; i < 5; ++i) {
    const ClientResponse response = client.exchange("POST", kChat, chat_body("hello", i % 2 == 0 ? R"(,"stream":true)" : ""));
    EXPECT_EQ(response.status, 200);
  }
}

// ---- clients that leave

TEST(ApiServer, AClientThatLeavesAStreamEndsItsWork) {
  Bench bench;
  auto client = std::make_unique<LoopbackClient>(bench.server->port());
  client->request("POST", kChat, chat_body("endless", R"(,"stream":true)"));
  ASSERT_TRUE(client->receive_until("la"));
  EXPECT_FALSE(bench.is_quiet());
  client.reset();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_LT(bench.model->engine->stats().num_generated_tokens, 2000);  // the context was not used up
  bench.expect_normal_service();
}

TEST(ApiServer, AClientThatLeavesBeforeItsReplyEndsItsWork) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(2ms); };
  Bench bench({.model = {.scripts = scripts}});
  auto client = std::make_unique<LoopbackClient>(bench.server->port());
  client->request("POST", kChat, chat_body("endless"));
  ASSERT_TRUE(eventually([&] { return !bench.is_quiet(); }));
  client.reset();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_LT(bench.model->engine->stats().num_generated_tokens, 1500);
}

TEST(ApiServer, TheWorkOfAVanishedClientEndsWithinOneStep) {
  std::counting_semaphore<> steps(0);
  std::atomic<int> num_forwards = 0;
  Scripts scripts;
  scripts.before_forward = [&] {
    ++num_forwards;
    static_cast<void>(steps.try_acquire_for(10s));
  };
  Bench bench({.model = {.scripts = scripts}});
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

TEST(ApiServer, AReaderThatIsTooSlowHoldsNothingBack) {
  BenchOptions options;
  options.server.http.max_unsent_bytes = 4096;
  Bench bench(std::move(options));
  LoopbackClient client(bench.server->port());
  client.shrink_receive_buffer();
  for (int i = 0; i < 20; ++i) {  // whether the buffers of the system take it all depends on the machine
    client.request("POST", kChat, chat_body("endless", R"(,"stream":true,"logprobs":true,"top_logprobs":20)"));
  }
  ASSERT_TRUE(bench.log.pop(10s));
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  bench.expect_normal_service();
}

// ---- what a client can get wrong

struct Wrong {
  const char* what;
  std::string body;
  int status;
  const char* says;
};

TEST(ApiServer, EveryWrongBodyGetsOneClearAnswerAndTheNextRequestWorks) {
  Bench bench;
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

TEST(ApiServer, ABodyOverTheLimitIsRefusedInTheFormOfItsApi) {
  BenchOptions options;
  options.server.http.max_body_bytes = 1000;
  Bench bench(std::move(options));
  const ClientResponse chat = bench.post(kChat, std::string(2000, ' '));
  EXPECT_EQ(chat.status, 413);
  EXPECT_NE(chat.body.find("larger than 1000 bytes"), std::string::npos);
  const ClientResponse messages = bench.post("/v1/messages", std::string(2000, ' '));
  EXPECT_NE(messages.body.find("request_too_large"), std::string::npos) << messages.body;
  bench.expect_normal_service();
}

TEST(ApiServer, UnknownPathsAndWrongMethodsHaveTheirStatus) {
  Bench bench;
  EXPECT_EQ(bench.get("/nothing").status, 404);
  EXPECT_EQ(bench.get("/v1/models/other").status, 404);
  const ClientResponse wrong = bench.get(kChat);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "post");
  EXPECT_EQ(bench.post("/health", "{}").status, 405);
}

TEST(ApiServer, AFullQueueAnswersWithRetryAfter) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(1ms); };
  Bench bench({.model = {.scripts = scripts, .max_requests = 1, .max_queue = 0}});
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

TEST(ApiServer, AFailureOfTheModelIsAnErrorAndInAStreamAnErrorEvent) {
  Bench bench;
  const ClientResponse whole = bench.post(kChat, chat_body("bad"));
  EXPECT_EQ(whole.status, 500);
  EXPECT_NE(whole.body.find("server_error"), std::string::npos);
  const ClientResponse stream = bench.post(kChat, chat_body("bad", R"(,"stream":true)"));
  EXPECT_EQ(stream.status, 200);
  const std::vector<std::string> events = events_of(stream.body);
  EXPECT_NE(events.back().find("server_error"), std::string::npos) << events.back();
  bench.expect_normal_service();
}

// ---- who may

TEST(ApiServer, WithKeysOnlyTheirHoldersAreAnswered) {
  BenchOptions options;
  options.server.keys = ApiKeys({"secret"});
  Bench bench(std::move(options));
  EXPECT_EQ(bench.post(kChat, chat_body("hello")).status, 401);
  EXPECT_EQ(bench.post(kChat, chat_body("hello"), "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(bench.post(kChat, chat_body("hello"), "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(bench.get("/v1/models").status, 401);
  EXPECT_EQ(bench.get("/v1/models", "x-api-key: secret\r\n").status, 200);
  EXPECT_EQ(bench.get("/health").status, 200);
  const ClientResponse messages = bench.post("/v1/messages", "{}");
  EXPECT_NE(messages.body.find(R"("type":"authentication_error")"), std::string::npos);
  bench.server->replace_keys(ApiKeys({"fresh"}));
  EXPECT_EQ(bench.get("/v1/models", "x-api-key: secret\r\n").status, 401);
  EXPECT_EQ(bench.get("/v1/models", "x-api-key: fresh\r\n").status, 200);
  for (const std::string& line : bench.log.drain()) {
    EXPECT_EQ(line.find("secret"), std::string::npos) << line;
  }
}

TEST(ApiServer, WithoutKeysItListensOnLoopbackOnly) {
  ApiServerOptions options;
  options.http.address = "0.0.0.0";
  options.http.port = 0;
  const auto server = ApiServer::start(std::move(options));
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().kind, ErrorKind::invalid_argument);
}

TEST(ApiServer, WebPagesOfOtherOriginsAreRefusedUnlessAllowed) {
  Bench bench;
  EXPECT_EQ(bench.get("/v1/models", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(bench.get("/v1/models", "Origin: null\r\n").status, 403);
  EXPECT_EQ(bench.get("/v1/models", "Origin: http://localhost\r\n").status, 200);
  BenchOptions options;
  options.server.cors_origin = "http://app.example";
  Bench open(std::move(options));
  const ClientResponse allowed = open.get("/v1/models", "Origin: http://app.example\r\n");
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "http://app.example");
  EXPECT_EQ(LoopbackClient(open.server->port()).exchange("OPTIONS", kChat, "", "Origin: http://app.example\r\n").status, 204);
}

TEST(ApiServer, AForeignHostNameIsRefusedWithoutKeys) {
  Bench bench;
  LoopbackClient client(bench.server->port());
  client.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.response().status, 403);
}

// ---- phases and other endpoints

TEST(ApiServer, WhileLoadingOnlyHealthAndVersionAnswer) {
  ApiServerOptions options;
  options.http.port = 0;
  auto server = ApiServer::start(std::move(options));
  ASSERT_TRUE(server);
  const auto get = [&server](const char* path) { return LoopbackClient((*server)->port()).exchange("GET", path); };
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/health").body, R"({"status":"loading"})");
  EXPECT_EQ(get("/version").status, 200);
  EXPECT_EQ(get("/v1/models").status, 503);
  EXPECT_EQ(LoopbackClient((*server)->port()).exchange("POST", kChat, chat_body("hello")).status, 503);
  (*server)->serve(scripted_model());
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/v1/models").status, 200);
}

TEST(ApiServer, HealthTellsWhetherTheEngineMoves) {
  std::counting_semaphore<> steps(0);
  Scripts scripts;
  scripts.before_forward = [&steps] { static_cast<void>(steps.try_acquire_for(10s)); };
  BenchOptions options{.model = {.scripts = scripts}};
  options.server.watchdog = 50ms;
  Bench bench(std::move(options));
  EXPECT_NE(bench.get("/health").body.find(R"("status":"ok")"), std::string::npos);
  LoopbackClient client(bench.server->port());
  client.request("POST", kChat, chat_body("endless", R"(,"stream":true)"));
  steps.release(1);
  EXPECT_TRUE(eventually([&] { return bench.get("/health").body.find(R"("status":"stuck")") != std::string::npos; }));
  client.close();
  steps.release(1000);
  EXPECT_TRUE(eventually([&] { return bench.get("/health").status == 200; }));
}

TEST(ApiServer, DrainingLetsARunningStreamFinish) {
  std::counting_semaphore<> steps(0);
  Scripts scripts;
  scripts.before_forward = [&steps] { static_cast<void>(steps.try_acquire_for(10s)); };
  Bench bench({.model = {.scripts = scripts}});
  LoopbackClient client(bench.server->port());
  client.request("POST", kChat, chat_body("hello", R"(,"stream":true)"));
  steps.release(3);
  ASSERT_TRUE(client.receive_until("Hello"));
  std::jthread drain([&bench] { bench.server->drain(10s); });
  EXPECT_TRUE(eventually([&] { return !LoopbackClient(bench.server->port()).is_connected(); }));
  steps.release(1000);
  EXPECT_TRUE(client.receive_until("[DONE]"));
}

TEST(ApiServer, AfterTheDrainTimeAStreamEndsWithAnErrorEvent) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(5ms); };
  Bench bench({.model = {.scripts = scripts}});
  LoopbackClient stream(bench.server->port());
  stream.request("POST", kChat, chat_body("endless", R"(,"stream":true)"));
  ASSERT_TRUE(stream.receive_until("la"));
  LoopbackClient whole(bench.server->port());
  whole.request("POST", kChat, chat_body("endless"));
  ASSERT_TRUE(eventually([&] { return bench.model->engine->stats().num_running == 2; }));
  bench.server->drain(50ms);
  EXPECT_TRUE(stream.receive_until("the server is shutting down"));
  EXPECT_EQ(whole.response().status, 503);
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(ApiServer, ModelsAreListedUnderAllTheirNames) {
  Bench bench;
  const ClientResponse list = bench.get("/v1/models");
  EXPECT_NE(list.body.find(R"("id":"nano")"), std::string::npos);
  EXPECT_NE(list.body.find(R"("id":"DeepSeek-V4.1-Flash")"), std::string::npos);
  EXPECT_NE(bench.get("/v1/models/nano").body.find(R"("context_length":2048)"), std::string::npos);
}

TEST(ApiServer, TextAndIdsAreConvertedBothWays) {
  Bench bench;
  const ClientResponse ids = bench.post("/tokenize", R"({"text":"Hello<｜User｜>"})");
  const auto body = json::parse(ids.body);
  ASSERT_TRUE(body && body->find("ids") != nullptr) << ids.body;
  EXPECT_EQ(body->find("ids")->as_array()->back().as_number()->as_int64(), nano_tokenizer().find("<｜User｜>")->value);
  const ClientResponse text = bench.post("/detokenize", json::to_text(json::Object{{"ids", *body->find("ids")}}));
  EXPECT_EQ(text.body, R"({"text":"Hello<｜User｜>"})");
  EXPECT_EQ(bench.post("/detokenize", R"({"ids":[99999999]})").status, 400);
  EXPECT_EQ(bench.post("/tokenize", R"({"text":1})").status, 400);
}

TEST(ApiServer, ARenderedPromptIsShown) {
  Bench bench;
  const std::string request = R"({"model":"nano","messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"}})";
  const ClientResponse plain = bench.post("/render", request);
  EXPECT_NE(plain.body.find("<｜User｜>Hi<｜Assistant｜></think>"), std::string::npos) << plain.body;
  EXPECT_EQ(bench.post("/render", R"({"api":"chat","body":)" + request + "}").body, plain.body);
  EXPECT_EQ(bench.post("/render", R"({"api":"other","body":{}})").status, 400);
}

TEST(ApiServer, ThePlaygroundIsAPage) {
  Bench bench;
  const ClientResponse page = bench.get("/");
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("</html>"), std::string::npos);
  BenchOptions options;
  options.server.has_playground = false;
  EXPECT_EQ(Bench(std::move(options)).get("/").status, 404);
}

TEST(ApiServer, EveryRequestLeavesOneLine) {
  Bench bench;
  bench.post(kChat, chat_body("hello"), "x-request-id: line-1\r\n");
  const auto line = bench.log.pop(10s);
  ASSERT_TRUE(line);
  for (const char* part :
       {"id=line-1", "\"POST /v1/chat/completions\"", "status=200", "api=chat", "prompt=", "completion=", "finish=stop"}) {
    EXPECT_NE(line->find(part), std::string::npos) << *line;
  }
  EXPECT_EQ(line->find("Hello"), std::string::npos);
}

TEST(ApiServer, TheAccessLineIsAlsoJson) {
  BenchOptions options;
  options.server.log_format = LogFormat::json;
  Bench bench(std::move(options));
  bench.get("/nothing?x=\"1\"");
  const auto line = bench.log.pop(10s);
  ASSERT_TRUE(line);
  const auto parsed = json::parse(*line);
  ASSERT_TRUE(parsed) << *line;
  EXPECT_EQ(parsed->find("status")->as_number()->as_int64(), 404);
}

}  // namespace
}  // namespace deepinfer::server
