// n: several choices of one chat request, in one body or one stream.
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

std::uint64_t count(const json::Value& body, const char* name) { return body.find("usage")->find(name)->as_number()->as_uint64().value(); }

TEST(Choices, ABodyHoldsEveryChoiceAndTheUsageOfAll) {
  ApiBench bench;
  const auto one = json::parse(bench.post(kChat, chat_body("hello")).body);
  const auto three = json::parse(bench.post(kChat, chat_body("hello", R"(,"n":3)")).body);
  ASSERT_TRUE(one && three);
  const json::Array& choices = *three->find("choices")->as_array();
  ASSERT_EQ(choices.size(), 3U);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    EXPECT_EQ(choices[i].find("index")->as_number()->as_uint64(), i);
    EXPECT_EQ(*choices[i].find("message"), *one->find("choices")->as_array()->front().find("message"));
  }
  EXPECT_EQ(count(*three, "prompt_tokens"), count(*one, "prompt_tokens"));
  EXPECT_EQ(count(*three, "completion_tokens"), 3 * count(*one, "completion_tokens"));
  EXPECT_EQ(count(*three, "total_tokens"), count(*three, "prompt_tokens") + count(*three, "completion_tokens"));
}

TEST(Choices, AStreamNamesTheChoiceOfEveryChunkAndEndsWithOneUsage) {
  ApiBench bench;
  for (const bool with_usage : {false, true}) {
    const std::string more = std::string(R"(,"n":2,"stream":true)") + (with_usage ? R"(,"stream_options":{"include_usage":true})" : "");
    std::vector<std::string> events = events_of(bench.post(kChat, chat_body("hello", more)).body);
    ASSERT_EQ(events.back(), "[DONE]");
    events.pop_back();
    std::map<std::uint64_t, std::string> texts;
    std::size_t num_usages = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
      const auto chunk = json::parse(events[i]);
      ASSERT_TRUE(chunk);
      const json::Value& choice = chunk->find("choices")->as_array()->front();
      const json::Value* const content = choice.find("delta")->find("content");
      if (content != nullptr && content->as_string() != nullptr) {
        texts[choice.find("index")->as_number()->as_uint64().value()] += *content->as_string();
      }
      const json::Value* const usage = chunk->find("usage");
      const bool is_last = i + 1 == events.size();
      EXPECT_EQ(usage != nullptr, with_usage || is_last) << events[i];
      num_usages += usage != nullptr && !usage->is_null() ? 1 : 0;
    }
    EXPECT_EQ(num_usages, 1U);
    ASSERT_EQ(texts.size(), 2U);
    EXPECT_EQ(texts[0], "Hello! How can I help you today?");
    EXPECT_EQ(texts[1], texts[0]);
  }
}

TEST(Choices, ThePromptOfAllIsComputedOnce) {
  const std::string padding(600, 'x');
  const auto num_computed = [&](std::string_view path, const std::string& body) {
    ApiBench bench({.model = {.has_prefix_cache = true}});
    EXPECT_EQ(bench.post(std::string(path), body).status, 200);
    EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
    return bench.model->engine->stats().num_prefill_tokens;
  };
  const std::string text = R"({"model":"nano","prompt":")" + padding + R"([script:hello]")";
  EXPECT_EQ(num_computed("/v1/completions", text + R"(,"n":4})"), num_computed("/v1/completions", text + "}"));
  const std::string chat = R"({"model":"nano","messages":[{"role":"user","content":")" + padding + R"([script:hello]"}])";
  EXPECT_EQ(num_computed(kChat, chat + R"(,"n":4})"), num_computed(kChat, chat + "}"));
}

TEST(Choices, WhatWasCachedOfThePromptCountsForAll) {
  ApiBench bench({.model = {.has_prefix_cache = true}});
  const std::string body =
      R"({"model":"nano","messages":[{"role":"user","content":")" + std::string(2000, 'x') + R"([script:hello]"}],"n":3})";
  const auto cached = [&] {
    const auto reply = json::parse(bench.post(kChat, body).body);
    return count(*reply, "prompt_cache_hit_tokens");
  };
  EXPECT_EQ(cached(), 0U);
  EXPECT_GE(cached(), 128U);
}

TEST(Choices, AFailureOfOneEndsAll) {
  ApiBench bench;
  EXPECT_EQ(bench.post(kChat, chat_body("bad", R"(,"n":2)")).status, 500);
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(Choices, AClientThatLeavesEndsAll) {
  ApiBench bench;
  auto client = std::make_unique<LoopbackClient>(bench.server->port());
  client->request("POST", kChat, chat_body("endless", R"(,"n":4,"stream":true)"));
  ASSERT_TRUE(client->receive_until("la"));
  client.reset();
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(Choices, MoreThanTheQueueTakesAreRefusedTogether) {
  ApiBench bench({.model = {.max_requests = 2, .max_queue = 1}});
  EXPECT_EQ(bench.post(kChat, chat_body("endless", R"(,"n":4,"max_tokens":5)")).status, 429);
  EXPECT_TRUE(eventually([&] { return bench.post(kChat, chat_body("hello")).status == 200; }));
}

TEST(Choices, TheOfficialPackageHasOneOnly) {
  ApiBench bench({.model = {.strict_official = true}});
  const ClientResponse response = bench.post(kChat, chat_body("hello", R"(,"n":2)"));
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("currently only n = 1 is supported"), std::string::npos);
}

TEST(Choices, OtherApisHaveOneOnly) {
  ApiBench bench;
  EXPECT_EQ(bench.post("/v1/responses", R"({"model":"nano","input":"[script:hello]","n":2})").status, 400);
}

}  // namespace
}  // namespace deepinfer::server
