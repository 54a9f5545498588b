// priority, time_limit and cache_salt: in every API, from the body to the engine.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;

/// A body of each API that generates for the script, with further members.
std::vector<std::pair<std::string, std::string>> bodies(const std::string& script, const std::string& more) {
  const std::string text = "[script:" + script + "]";
  const std::string messages = R"("messages":[{"role":"user","content":")" + text + R"("}])";
  return {{kChat, R"({"model":"nano",)" + messages + more + "}"},
          {"/v1/messages", R"({"model":"nano","max_tokens":1000,)" + messages + more + "}"},
          {"/v1/responses", R"({"model":"nano","input":")" + text + R"(")" + more + "}"},
          {"/v1/completions", R"({"model":"nano","max_tokens":1000,"prompt":")" + text + R"(")" + more + "}"}};
}

Scripts slow() {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(2ms); };
  return scripts;
}

TEST(SchedulingMembers, ATimeLimitEndsTheRequestOfEveryApi) {
  ApiBench bench({.model = {.scripts = slow()}});
  for (const auto& [path, body] : bodies("endless", R"(,"time_limit":0.05)")) {
    const ClientResponse response = bench.post(path, body);
    EXPECT_EQ(response.status, 504) << path << response.body;
    EXPECT_NE(response.body.find("time limit"), std::string::npos) << response.body;
  }
  const auto streamed = bodies("endless", R"(,"time_limit":0.05,"stream":true)");
  for (const auto& [path, body] : streamed) {
    const ClientResponse response = bench.post(path, body);
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_NE(response.body.find("time limit"), std::string::npos) << path << response.body;
  }
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  EXPECT_EQ(bench.model->engine->stats().num_timed_out, 8);
}

TEST(SchedulingMembers, WrongOnesAreRefusedByEveryApi) {
  ApiBench bench;
  for (const auto& [more, member] : std::vector<std::pair<std::string, std::string>>{
           {R"(,"priority":1000)", "priority"}, {R"(,"time_limit":0)", "time_limit"}, {R"(,"cache_salt":[])", "cache_salt"}}) {
    for (const auto& [path, body] : bodies("hello", more)) {
      const ClientResponse response = bench.post(path, body);
      EXPECT_EQ(response.status, 400) << path << more;
      EXPECT_NE(response.body.find(member), std::string::npos) << path << response.body;
    }
  }
}

TEST(SchedulingMembers, AHigherPriorityIsServedFirst) {
  ApiBench bench({.model = {.scripts = slow(), .max_requests = 1}});
  LoopbackClient busy(bench.server->port());
  busy.request("POST", kChat, chat_body("endless", R"(,"max_tokens":60,"stream":true)"));
  ASSERT_TRUE(busy.receive_until("la"));
  LoopbackClient low(bench.server->port());
  low.request("POST", kChat, chat_body("endless", R"(,"priority":-1,"max_tokens":200)"));
  ASSERT_TRUE(eventually([&] { return bench.model->engine->stats().num_waiting == 1; }));
  EXPECT_EQ(bench.post(kChat, chat_body("hello", R"(,"priority":5)")).status, 200);
  EXPECT_TRUE(eventually([&] { return bench.model->engine->stats().num_finished == 2; })) << "the one of lower priority goes on";
}

TEST(SchedulingMembers, OnlyOneSaltSharesPrefixesInEveryApi) {
  ApiBench bench({.model = {.has_prefix_cache = true}});
  const auto num_hits = [&](const std::string& path, std::string body, const std::string& salt) {
    body.insert(body.find("[script"), std::string(700, 'x'));
    body.insert(1, R"("cache_salt":")" + salt + R"(",)");
    const std::int64_t before = bench.model->engine->stats().num_prefix_hits;
    const ClientResponse response = bench.post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
    return bench.model->engine->stats().num_prefix_hits - before;
  };
  for (const auto& [path, body] : bodies("hello", "")) {
    EXPECT_EQ(num_hits(path, body, "a" + path), 0) << path;
    EXPECT_EQ(num_hits(path, body, "b" + path), 0) << path;
    EXPECT_EQ(num_hits(path, body, "a" + path), 1) << path;
  }
}

}  // namespace
}  // namespace deepinfer::server
