// What a client can get wrong: one clear answer each, and the next request works.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

std::string image_body(const std::string& url) {
  return R"({"model":"nano","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":")" + url + R"("}}]}]})";
}

/// The head of a PNG of 60,000 × 60,000 pixels: 10 GB when decoded.
std::string huge_png() { return "iVBORw0KGgoAAAANSUhEUgAA6mAAAOpgCAIAAAA="; }

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
      {"too many choices", chat_body("hello", R"(,"n":17)"), 400, "Invalid n value"},
      {"a bias of a token that does not exist", chat_body("hello", R"(,"logit_bias":{"99999":1})"), 400, "logit_bias names token 99999"},
      {"a seed beyond 2^63", chat_body("hello", R"(,"seed":9223372036854775808)"), 400, "valid range of seed"},
      {"max_tokens beyond 2^53", chat_body("hello", R"(,"max_tokens":9007199254740993)"), 400, "invalid request body"},
      {"top_p beyond all doubles", chat_body("hello", R"(,"top_p":1e999)"), 400, "invalid JSON request"},
      {"an image in bytes that is none", image_body("data:image/png;base64,AAAA"), 400, "does not take images"},
      {"an image of another type", image_body("data:application/pdf;base64,AAAA"), 400, "You have uploaded an unsupported image"},
      {"an image that claims to be huge", image_body("data:image/png;base64," + huge_png()), 400, "does not take images"},
      {"an image behind a link", image_body("http://127.0.0.1:1/x.png"), 400, "does not take images"},
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

/// One body for each API that generates, with `value` where the user's text stands.
std::vector<std::pair<std::string, std::string>> bodies_with(const std::string& value) {
  return {{"/v1/chat/completions", R"({"model":"nano","messages":[{"role":"user","content":)" + value + "}]}"},
          {"/v1/messages", R"({"model":"nano","max_tokens":5,"messages":[{"role":"user","content":)" + value + "}]}"},
          {"/v1/responses", R"({"model":"nano","input":)" + value + "}"},
          {"/v1/completions", R"({"model":"nano","prompt":)" + value + "}"}};
}

TEST(BadRequest, EveryApiRefusesInItsOwnFormAndServesTheNext) {
  ApiBench bench;
  std::string deep;
  for (int i = 0; i < 50'000; ++i) {
    deep += R"({"a":[)";
  }
  const std::vector<std::pair<const char*, std::string>> values = {
      {"deep nesting", deep},
      {"deep nesting that is closed", std::string(200, '[') + std::string(200, ']')},
      {"a lone surrogate", R"("\ud83d")"},
      {"a surrogate the wrong way round", R"("\ude00\ud83d")"},
      {"invalid UTF-8", "\"\xc3(\""},
      {"a number", "9007199254740993"},
      {"a number of very many digits", std::string(100'000, '9')},
      {"an unfinished text", "\"abc"},
  };
  for (const auto& [what, value] : values) {
    for (const auto& [path, body] : bodies_with(value)) {
      const ClientResponse response = bench.post(path, body);
      EXPECT_EQ(response.status, 400) << what << " " << path << ": " << response.body.substr(0, 300);
      const auto parsed = json::parse(response.body);
      ASSERT_TRUE(parsed) << what << " " << path;
      const json::Value* const error = parsed->find("error");
      ASSERT_NE(error, nullptr) << what << " " << path;
      EXPECT_EQ(*error->find("type")->as_string(), "invalid_request_error") << what << " " << path;
      EXPECT_EQ(parsed->find("type") != nullptr, path == "/v1/messages") << what << " " << path;
      EXPECT_LT(response.body.size(), 1000U) << what << " " << path;
    }
    bench.expect_normal_service();
  }
}

TEST(BadRequest, WhatConversionRefusesHasTheFormOfTheApiToo) {
  const std::vector<std::pair<const char*, std::string>> bodies = {
      {"a temperature", R"({"model":"nano","max_tokens":5,"temperature":-1,"messages":[{"role":"user","content":"hi"}]})"},
      {"a model", R"({"model":"other","max_tokens":5,"messages":[{"role":"user","content":"hi"}]})"},
      {"no messages", R"({"model":"nano","max_tokens":5,"messages":[]})"},
      {"a prompt beyond the context",
       R"({"model":"nano","max_tokens":5,"messages":[{"role":"user","content":")" + std::string(40'000, 'x') + R"("}]})"}};
  for (const bool is_strict : {false, true}) {
    ApiBench bench({.model = {.strict_official = is_strict}});
    for (const auto& [what, body] : bodies) {
      for (const char* const path : {"/v1/chat/completions", "/v1/messages"}) {
        const ClientResponse response = bench.post(path, body);
        EXPECT_EQ(response.status, 400) << what << " " << path << ": " << response.body.substr(0, 300);
        const bool has_own_form = response.body.starts_with(R"({"type":"error","error":{"type":"invalid_request_error","message":")");
        EXPECT_EQ(has_own_form, !is_strict && std::string_view(path) == "/v1/messages") << what << " " << path << ": " << response.body;
      }
    }
  }
}

TEST(BadRequest, ABodyNests127LevelsAndNoMore) {
  ApiBench bench;
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  for (auto [path, body] : bodies_with("\"[script:hello]\"")) {
    body.insert(body.size() - 1, R"(,"unknown":)");
    const auto with_levels = [&, body = body](std::size_t levels) {
      std::string out = body;
      return out.insert(out.size() - 1, nested(levels - 1));  // the body is one
    };
    EXPECT_EQ(bench.post(path, with_levels(127)).status, 200) << path;
    const ClientResponse refused = bench.post(path, with_levels(128));
    EXPECT_EQ(refused.status, 400) << path;
    EXPECT_NE(refused.body.find("nesting deeper than 127 levels"), std::string::npos) << refused.body;
    EXPECT_EQ(refused.body.find(R"({"type":"error")") == 0, path == "/v1/messages") << refused.body;
    if (path != "/v1/completions") {
      const std::string api = path == kChat ? "chat" : path.substr(4);
      const auto wrapped = [&api](const std::string& inner) { return R"({"api":")" + api + R"(","body":)" + inner + "}"; };
      EXPECT_EQ(bench.post("/render", wrapped(with_levels(127))).status, 200) << path;
      EXPECT_EQ(bench.post("/render", wrapped(with_levels(128))).status, 400) << path;
    }
  }
}

TEST(BadRequest, ABodyOf100MegabytesIsRefusedWithoutBeingKept) {
  ApiBench bench;
  const std::string piece(1 << 20, ' ');
  for (const char* const path : {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"}) {
    LoopbackClient client(bench.server->port());
    client.send("POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n");
    for (int i = 0; i < 100 && client.send(piece); ++i) {
    }
    EXPECT_EQ(client.response().status, 413) << path;
  }
  bench.expect_normal_service();
}

}  // namespace
}  // namespace deepinfer::server
