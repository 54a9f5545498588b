// The server as a whole: who is answered, phases, draining, the access log, endpoints without generation.
#include "server/api_server.h"

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

TEST(ApiServer, WithKeysOnlyTheirHoldersAreAnswered) {
  ApiBenchOptions options;
  options.server.keys = ApiKeys({"secret"});
  ApiBench bench(std::move(options));
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
  ApiBench bench;
  EXPECT_EQ(bench.get("/v1/models", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(bench.get("/v1/models", "Origin: null\r\n").status, 403);
  EXPECT_EQ(bench.get("/v1/models", "Origin: http://localhost\r\n").status, 200);
  ApiBenchOptions options;
  options.server.cors_origin = "http://app.example";
  ApiBench open(std::move(options));
  const ClientResponse allowed = open.get("/v1/models", "Origin: http://app.example\r\n");
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "http://app.example");
  EXPECT_EQ(LoopbackClient(open.server->port()).exchange("OPTIONS", kChat, "", "Origin: http://app.example\r\n").status, 204);
}

TEST(ApiServer, AForeignHostNameIsRefusedWithoutKeys) {
  ApiBench bench;
  LoopbackClient client(bench.server->port());
  client.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.response().status, 403);
}

// ---- phases

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
  ApiBenchOptions options{.model = {.scripts = scripts}};
  options.server.watchdog = 50ms;
  ApiBench bench(std::move(options));
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
  ApiBench bench({.model = {.scripts = scripts}});
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
  ApiBench bench({.model = {.scripts = scripts}});
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
  ApiBench bench;
  const ClientResponse list = bench.get("/v1/models");
  EXPECT_NE(list.body.find(R"("id":"nano")"), std::string::npos);
  EXPECT_NE(list.body.find(R"("id":"DeepSeek-V4.1-Flash")"), std::string::npos);
  EXPECT_NE(bench.get("/v1/models/nano").body.find(R"("context_length":2048)"), std::string::npos);
}

TEST(ApiServer, TextAndIdsAreConvertedBothWays) {
  ApiBench bench;
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
  ApiBench bench;
  const std::string request = R"({"model":"nano","messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"}})";
  const ClientResponse plain = bench.post("/render", request);
  EXPECT_NE(plain.body.find("<｜User｜>Hi<｜Assistant｜></think>"), std::string::npos) << plain.body;
  EXPECT_EQ(bench.post("/render", R"({"api":"chat","body":)" + request + "}").body, plain.body);
  EXPECT_EQ(bench.post("/render", R"({"api":"other","body":{}})").status, 400);
}

Scripts slow_scripts() {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(2ms); };
  return scripts;
}

TEST(ApiServer, ARequestIsAbortedByItsId) {
  ApiBench bench({.model = {.scripts = slow_scripts()}});
  LoopbackClient stream(bench.server->port());
  stream.request("POST", kChat, chat_body("endless", R"(,"stream":true)"), "x-request-id: doomed\r\n");
  ASSERT_TRUE(stream.receive_until("la"));
  LoopbackClient whole(bench.server->port());
  whole.request("POST", kChat, chat_body("endless"), "x-request-id: doomed\r\n");
  ASSERT_TRUE(eventually([&] { return bench.model->engine->stats().num_running == 2; }));
  EXPECT_EQ(bench.post("/abort", R"({"request_id":"doomed"})").body, R"({"aborted":2})");
  EXPECT_TRUE(stream.receive_until("the request was aborted"));
  EXPECT_EQ(whole.response().status, 503);
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_EQ(bench.post("/abort", R"({"request_id":"doomed"})").body, R"({"aborted":0})");
  EXPECT_EQ(bench.post("/abort", R"({"request_id":7})").status, 400);
}

TEST(ApiServer, AbortingNeedsAnAdministratorWhereThereAreKeys) {
  ApiBenchOptions options;
  options.server.keys = ApiKeys({"user"});
  options.server.admin_keys = ApiKeys({"admin"});
  ApiBench bench(std::move(options));
  const char* const body = R"({"request_id":"x"})";
  EXPECT_EQ(bench.post("/abort", body).status, 403);
  EXPECT_EQ(bench.post("/abort", body, "x-api-key: user\r\n").status, 403);
  EXPECT_EQ(bench.post("/abort", body, "x-api-key: admin\r\n").status, 200);
  EXPECT_EQ(bench.get("/v1/models", "x-api-key: admin\r\n").status, 200);
  ApiBenchOptions without_admins;
  without_admins.server.keys = ApiKeys({"user"});
  EXPECT_EQ(ApiBench(std::move(without_admins)).post("/abort", body, "x-api-key: user\r\n").status, 403);
}

TEST(ApiServer, TheRequestsOfOneKeyAreBounded) {
  ApiBenchOptions options{.model = {.scripts = slow_scripts()}};
  options.server.keys = ApiKeys({"anna", "bert"});
  options.server.max_requests_per_key = 1;
  ApiBench bench(std::move(options));
  LoopbackClient busy(bench.server->port());
  busy.request("POST", kChat, chat_body("endless", R"(,"stream":true)"), "x-api-key: anna\r\n");
  ASSERT_TRUE(busy.receive_until("la"));
  const ClientResponse refused = bench.post(kChat, chat_body("hello"), "x-api-key: anna\r\n");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(bench.post(kChat, chat_body("hello"), "x-api-key: bert\r\n").status, 200);
  busy.close();
  EXPECT_TRUE(eventually([&] { return bench.post(kChat, chat_body("hello"), "x-api-key: anna\r\n").status == 200; }));
}

TEST(ApiServer, ARequestThatTakesTooLongEndsWithAnError) {
  ApiBenchOptions options{.model = {.scripts = slow_scripts()}};
  options.server.http.reply_timeout = 100ms;
  ApiBench bench(std::move(options));
  EXPECT_EQ(bench.post(kChat, chat_body("endless")).status, 504);
  const std::vector<std::string> events = events_of(bench.post(kChat, chat_body("endless", R"(,"stream":true)")).body);
  EXPECT_NE(events.back().find("longer than the server allows"), std::string::npos) << events.back();
  const ClientResponse messages =
      bench.post("/v1/messages", R"({"model":"nano","max_tokens":1900,"messages":[{"role":"user","content":"[script:endless]"}]})");
  EXPECT_EQ(messages.status, 504);
  EXPECT_NE(messages.body.find("timeout_error"), std::string::npos) << messages.body;
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(ApiServer, MetricsCountWhatWasDone) {
  ApiBench bench;
  bench.post(kChat, chat_body("hello"));
  bench.post(kChat, "{");
  bench.get("/v1/models");
  const auto has = [&bench](const std::string& line) { return bench.get("/metrics").body.find(line + "\n") != std::string::npos; };
  EXPECT_TRUE(eventually([&] { return has(R"(deepinfer_requests_total{api="chat",status="200"} 1)"); }));
  EXPECT_TRUE(has(R"(deepinfer_requests_total{api="chat",status="400"} 1)"));
  EXPECT_TRUE(has("deepinfer_request_ttft_seconds_count 1"));
  EXPECT_TRUE(has("deepinfer_requests_running 0"));
  EXPECT_EQ(bench.get("/metrics").header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
}

TEST(ApiServer, ThePlaygroundIsAPage) {
  ApiBench bench;
  const ClientResponse page = bench.get("/");
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("</html>"), std::string::npos);
  ApiBenchOptions options;
  options.server.has_playground = false;
  EXPECT_EQ(ApiBench(std::move(options)).get("/").status, 404);
}

TEST(ApiServer, EveryRequestLeavesOneLine) {
  ApiBench bench;
  bench.post(kChat, chat_body("hello"), "x-request-id: line-1\r\n");
  const auto line = bench.log.pop(10s);
  ASSERT_TRUE(line);
  for (const char* part :
       {"id=line-1", "\"POST /v1/chat/completions\"", "status=200", "api=chat", "prompt=", "completion=", "miss=disabled", "miss_at=0",
        "queue_ms=", "finish=stop"}) {
    EXPECT_NE(line->find(part), std::string::npos) << *line;
  }
  EXPECT_EQ(line->find("Hello"), std::string::npos);
  EXPECT_EQ(line->find("script:"), std::string::npos) << "no prompt unless it is asked for";
}

TEST(ApiServer, PromptsAreLoggedWhenTheyAreAskedFor) {
  ApiBenchOptions options;
  options.server.log_prompts = true;
  options.server.log_format = LogFormat::json;
  ApiBench bench(std::move(options));
  bench.post(kChat, chat_body("hello"));
  bench.post("/v1/completions", R"({"model":"nano","prompt":"[script:hello]"})");
  for (int i = 0; i < 2; ++i) {
    const auto line = bench.log.pop(10s);
    ASSERT_TRUE(line);
    const auto parsed = json::parse(*line);
    ASSERT_TRUE(parsed && parsed->find("prompt_text") != nullptr) << *line;
    EXPECT_NE(parsed->find("prompt_text")->as_string()->find("[script:hello]"), std::string::npos);
  }
}

TEST(ApiServer, TheAccessLineIsAlsoJson) {
  ApiBenchOptions options;
  options.server.log_format = LogFormat::json;
  ApiBench bench(std::move(options));
  bench.get("/nothing?x=\"1\"");
  const auto line = bench.log.pop(10s);
  ASSERT_TRUE(line);
  const auto parsed = json::parse(*line);
  ASSERT_TRUE(parsed) << *line;
  EXPECT_EQ(parsed->find("status")->as_number()->as_int64(), 404);
}

}  // namespace
}  // namespace deepinfer::server
