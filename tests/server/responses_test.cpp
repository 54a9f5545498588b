// The Responses API as a store: GET, DELETE, previous_response_id, cancel.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;
constexpr const char* kResponses = "/v1/responses";

std::string body_of(const std::string& input, const std::string& more = "") {
  return R"({"model":"nano","reasoning":{"effort":"none"},"input":)" + input + more + "}";
}

json::Value parsed(const ClientResponse& response) {
  auto value = json::parse(response.body);
  EXPECT_TRUE(value) << response.body;
  return value ? std::move(*value) : json::Value();
}

std::string id_of(const ClientResponse& response) { return *parsed(response).find("id")->as_string(); }

ClientResponse erase(const ApiBench& bench, const std::string& id, const std::string& headers = "") {
  return LoopbackClient(bench.server->port()).exchange("DELETE", std::string(kResponses) + "/" + id, "", headers);
}

TEST(Responses, AFinishedResponseIsKeptUntilItIsDeleted) {
  ApiBench bench;
  const ClientResponse created = bench.post(kResponses, body_of(R"("[script:hello]")"));
  ASSERT_EQ(created.status, 200) << created.body;
  const std::string path = std::string(kResponses) + "/" + id_of(created);
  EXPECT_EQ(bench.get(path).body, created.body);
  const ClientResponse deleted = erase(bench, id_of(created));
  EXPECT_EQ(deleted.status, 200);
  EXPECT_EQ(parsed(deleted).find("deleted")->as_bool() != nullptr, true);
  EXPECT_EQ(bench.get(path).status, 404);
  EXPECT_EQ(erase(bench, id_of(created)).status, 404);
}

TEST(Responses, AStreamedResponseIsKeptToo) {
  ApiBench bench;
  const ClientResponse stream = bench.post(kResponses, body_of(R"("[script:hello]")", R"(,"stream":true)"));
  const std::vector<std::string> events = events_of(stream.body);
  const auto last = json::parse(events.back());
  ASSERT_TRUE(last);
  const json::Value& completed = *last->find("response");
  const ClientResponse kept = bench.get(std::string(kResponses) + "/" + *completed.find("id")->as_string());
  EXPECT_EQ(parsed(kept), completed);
}

TEST(Responses, WhatIsNotToBeStoredIsNot) {
  ApiBench bench;
  const ClientResponse created = bench.post(kResponses, body_of(R"("[script:hello]")", R"(,"store":false)"));
  EXPECT_EQ(bench.get(std::string(kResponses) + "/" + id_of(created)).status, 404);
}

TEST(Responses, APreviousResponseIsTheBeginningOfTheNextPrompt) {
  ApiBench bench;
  const ClientResponse first = bench.post(kResponses, body_of(R"("[script:hello]")"));
  const ClientResponse second =
      bench.post(kResponses, body_of(R"("And now [script:unicode]")", R"(,"previous_response_id":")" + id_of(first) + "\""));
  ASSERT_EQ(second.status, 200) << second.body;
  const ClientResponse third = bench.post(
      kResponses, body_of(R"([{"role":"user","content":"Again [script:hello]"}])", R"(,"previous_response_id":")" + id_of(second) + "\""));
  ASSERT_EQ(third.status, 200) << third.body;
  const std::string whole = body_of(
      R"([{"role":"user","content":"[script:hello]"},{"role":"assistant","content":"Hello! How can I help you today?"},
          {"role":"user","content":"And now [script:unicode]"},{"role":"assistant","content":"Zażółć 你好 🙂🙃 done"},
          {"role":"user","content":"Again [script:hello]"}])");
  const auto tokens = [](const ClientResponse& response) {
    return parsed(response).find("usage")->find("input_tokens")->as_number()->as_uint64();
  };
  EXPECT_EQ(tokens(third), tokens(bench.post(kResponses, whole)));
}

TEST(Responses, AToolTurnContinuesByItsId) {
  ApiBench bench;
  const std::string tools = R"(,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object"}}])";
  const ClientResponse first = bench.post(kResponses, body_of(R"("[script:call]")", tools));
  const json::Value body = parsed(first);
  const json::Value& call = body.find("output")->as_array()->back();
  ASSERT_EQ(*call.find("type")->as_string(), "function_call") << first.body;
  const std::string output =
      R"([{"type":"function_call_output","call_id":")" + *call.find("call_id")->as_string() + R"(","output":"[script:hello]"}])";
  const ClientResponse second = bench.post(kResponses, body_of(output, tools + R"(,"previous_response_id":")" + id_of(first) + "\""));
  EXPECT_EQ(second.status, 200) << second.body;
  EXPECT_NE(second.body.find("Hello! How can I help you today?"), std::string::npos) << second.body;
}

TEST(Responses, AnUnknownPreviousResponseIsRefused) {
  ApiBench bench;
  const ClientResponse unknown = bench.post(kResponses, body_of(R"("hi")", R"(,"previous_response_id":"resp_none")"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_NE(unknown.body.find("Previous response with id 'resp_none' not found."), std::string::npos) << unknown.body;
  EXPECT_EQ(bench.post(kResponses, body_of(R"("hi")", R"(,"previous_response_id":7)")).status, 400);
}

TEST(Responses, OthersDoNotSeeIt) {
  ApiBenchOptions options;
  options.server.keys = ApiKeys({"anna-key", "bert-key"});
  ApiBench bench(std::move(options));
  const std::string anna = "Authorization: Bearer anna-key\r\n";
  const std::string bert = "x-api-key: bert-key\r\n";
  const ClientResponse created = bench.post(kResponses, body_of(R"("[script:hello]")"), anna);
  const std::string id = id_of(created);
  EXPECT_EQ(bench.get(std::string(kResponses) + "/" + id, bert).status, 404);
  EXPECT_EQ(erase(bench, id, bert).status, 404);
  EXPECT_EQ(bench.post(kResponses, body_of(R"("hi")", R"(,"previous_response_id":")" + id + "\""), bert).status, 400);
  EXPECT_EQ(bench.get(std::string(kResponses) + "/" + id, anna).status, 200);
}

TEST(Responses, TheStoreIsBounded) {
  ApiBenchOptions options;
  options.server.responses = {.max_responses = 2, .max_bytes = 1 << 20};
  ApiBench bench(std::move(options));
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(id_of(bench.post(kResponses, body_of(R"("[script:hello]")"))));
  }
  EXPECT_EQ(bench.get(std::string(kResponses) + "/" + ids[0]).status, 404);
  EXPECT_EQ(bench.get(std::string(kResponses) + "/" + ids[2]).status, 200);
}

TEST(Responses, ARunningResponseIsCancelledByItsId) {
  Scripts scripts;
  scripts.before_forward = [] { std::this_thread::sleep_for(2ms); };
  ApiBench bench({.model = {.scripts = scripts}});
  LoopbackClient client(bench.server->port());
  client.request("POST", kResponses, body_of(R"("[script:endless]")", R"(,"stream":true)"));
  ASSERT_TRUE(client.receive_until("response.created"));
  const std::size_t at = client.unread().find("\"id\":\"resp_");
  ASSERT_NE(at, std::string::npos);
  const std::string id = client.unread().substr(at + 6, 37);
  EXPECT_EQ(bench.post(std::string(kResponses) + "/" + id + "/cancel", "").status, 200);
  EXPECT_TRUE(client.receive_until("the request was aborted"));
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
}

TEST(Responses, ACompleteOneCannotBeCancelled) {
  ApiBench bench;
  const std::string id = id_of(bench.post(kResponses, body_of(R"("[script:hello]")")));
  EXPECT_EQ(bench.post(std::string(kResponses) + "/" + id + "/cancel", "").status, 400);
  EXPECT_EQ(bench.post(std::string(kResponses) + "/resp_none/cancel", "").status, 404);
}

}  // namespace
}  // namespace deepinfer::server
