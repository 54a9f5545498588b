#include "server/completion.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "base/json.h"
#include "scripted_model.h"

namespace deepinfer::server {
namespace {

using namespace std::chrono_literals;
using State = Completion::State;

struct Finished {
  std::string events;  ///< data of all events, one a line
  std::string response;
  State state = State::running;
  CompletionStatistics statistics;
};

Finished run(const std::shared_ptr<const ServedModel>& model, const CompletionRequest& request) {
  std::binary_semaphore due(0);
  auto completion = Completion::start(model, request, [&due] { due.release(); });
  Finished out;
  if (!completion) {
    ADD_FAILURE() << completion.error().message;
    return out;
  }
  while ((out.state = (*completion)->advance([&out](const recipe::Event& event) { out.events += std::string(event.data) + "\n"; })) ==
             State::running ||
         out.state == State::preparing) {
    EXPECT_TRUE(due.try_acquire_for(10s));
  }
  out.response = (*completion)->response();
  out.statistics = (*completion)->statistics();
  return out;
}

std::string content_of(const std::string& response) {
  const auto value = json::parse(response);
  return *value->find("choices")->as_array()->front().find("message")->find("content")->as_string();
}

TEST(Completion, TheReplyIsTheTextOfTheGeneratedTokens) {
  const auto model = scripted_model();
  const Finished reply = run(model, {.body = chat_body("hello")});
  EXPECT_EQ(reply.state, State::finished);
  EXPECT_EQ(content_of(reply.response), "Hello! How can I help you today?");
  EXPECT_EQ(reply.statistics.finish, "stop");
  EXPECT_EQ(reply.statistics.completion_tokens,
            nano_tokenizer().encode("Hello! How can I help you today?", tokenizer::AddedTokens::ignore).size());
  EXPECT_GT(reply.statistics.to_first_token, 0s);
}

TEST(Completion, CharactersAreNeverCutApart) {
  const auto model = scripted_model();
  const Finished reply = run(model, {.body = chat_body("unicode", R"(,"stream":true)")});
  EXPECT_EQ(content_of(reply.response), "Zażółć 你好 🙂🙃 done");
  EXPECT_EQ(reply.events.find("\uFFFD"), std::string::npos);
}

TEST(Completion, AStopSequenceEndsTheWorkOfTheEngine) {
  const auto model = scripted_model();
  const Finished reply = run(model, {.body = chat_body("stop", R"(,"stop":["STOP"])")});
  EXPECT_EQ(content_of(reply.response), "one two ");
  EXPECT_EQ(reply.statistics.finish, "stop");
  EXPECT_TRUE(eventually([&] { return model->engine->stats().num_blocks_used == 0; }));
}

TEST(Completion, MaxTokensEndsTheReplyByLength) {
  const auto model = scripted_model();
  const Finished reply = run(model, {.body = chat_body("endless", R"(,"max_tokens":7)")});
  EXPECT_EQ(reply.statistics.completion_tokens, 7U);
  EXPECT_EQ(reply.statistics.finish, "length");
}

TEST(Completion, MaxTokensHasASecondNameInChat) {
  const auto model = scripted_model();
  const auto num_tokens = [&model](const std::string& more) {
    return run(model, {.body = chat_body("endless", more)}).statistics.completion_tokens;
  };
  EXPECT_EQ(num_tokens(R"(,"max_completion_tokens":9)"), 9U);
  EXPECT_EQ(num_tokens(R"(,"max_completion_tokens":9,"max_tokens":5)"), 5U);
  EXPECT_EQ(num_tokens(R"(,"max_completion_tokens":9,"max_tokens":null)"), 9U);
  const auto refused = Completion::start(model, {.body = chat_body("hello", R"(,"max_completion_tokens":0)")}, [] {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("Invalid max_tokens value"), std::string::npos);
}

TEST(Completion, WithoutMaxTokensAReplyEndsWithTheContext) {
  const auto model = scripted_model();
  const Finished reply = run(model, {.body = chat_body("endless")});
  EXPECT_EQ(reply.statistics.finish, "length");
  EXPECT_EQ(reply.statistics.prompt_tokens + reply.statistics.completion_tokens, static_cast<std::uint64_t>(kScriptedContext));
}

TEST(Completion, AMaxTokensBeyondTheContextIsRefused) {
  const auto model = scripted_model();
  const auto refused = Completion::start(model, {.body = chat_body("endless", R"(,"max_tokens":393216)")}, [] {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_NE(refused.error().body.find("This model's maximum context length is 2048 tokens."), std::string::npos) << refused.error().body;
}

TEST(Completion, EosIsATokenLikeOthersWhenIgnored) {
  const auto model = scripted_model();
  const Finished reply = run(model, {.body = chat_body("hello", R"(,"max_tokens":30,"ignore_eos":true)")});
  EXPECT_EQ(reply.statistics.completion_tokens, 30U);
}

TEST(Completion, WhatConversionRefusesIsRefusedWithItsOwnBody) {
  const auto model = scripted_model();
  const auto refused = Completion::start(model, {.body = R"({"model":"other","messages":[]})"}, [] {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_NE(refused.error().body.find("The supported API model names are DeepSeek-V4.1-Flash, nano, but you passed other."),
            std::string::npos);
}

TEST(Completion, AnUnreadableBodyIsRefusedInTheFormOfItsApi) {
  const auto model = scripted_model();
  const auto chat = Completion::start(model, {.api = recipe::Api::chat, .body = "{"}, [] {});
  const auto messages = Completion::start(model, {.api = recipe::Api::messages, .body = "{"}, [] {});
  ASSERT_FALSE(chat);
  ASSERT_FALSE(messages);
  EXPECT_TRUE(chat.error().body.starts_with(R"({"error":)")) << chat.error().body;
  EXPECT_TRUE(messages.error().body.starts_with(R"({"type":"error","error":)")) << messages.error().body;
}

TEST(Completion, AFullQueueIsRefusedAsTooManyRequests) {
  std::binary_semaphore gate(0);
  Scripts scripts;
  scripts.before_forward = [&gate] { static_cast<void>(gate.try_acquire_for(20ms)); };
  const auto model = scripted_model({.scripts = scripts, .max_requests = 1, .max_queue = 0});
  const std::string body = chat_body("endless");
  auto first = Completion::start(model, {.body = body}, [] {});
  ASSERT_TRUE(first);
  const auto second = Completion::start(model, {.body = body}, [] {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().status, 429);
  (*first)->cancel();
  EXPECT_EQ((*first)->state(), State::failed);
  EXPECT_EQ((*first)->statistics().finish, "cancelled");
  first->reset();
  EXPECT_TRUE(eventually([&] { return Completion::start(model, {.body = body}, [] {}).has_value(); }));
}

TEST(Completion, DestructionEndsTheWorkAndTheWakeUps) {
  const auto model = scripted_model();
  const std::string body = chat_body("endless");
  for (int i = 0; i < 20; ++i) {
    auto is_alive = std::make_unique<std::atomic<bool>>(true);
    auto completion = Completion::start(model, {.body = body}, [raw = is_alive.get()] { EXPECT_TRUE(*raw); });
    ASSERT_TRUE(completion);
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
    completion->reset();
    is_alive.reset();
  }
  EXPECT_TRUE(eventually([&] { return model->engine->stats().num_blocks_used == 0 && model->engine->stats().num_running == 0; }));
}

TEST(Completion, AFailureOfTheModelIsTheFailureOfItsRequestOnly) {
  const auto model = scripted_model();
  const Finished bad = run(model, {.body = chat_body("bad")});
  EXPECT_EQ(bad.state, State::failed);
  EXPECT_EQ(bad.statistics.finish, "failed");
  EXPECT_EQ(run(model, {.body = chat_body("hello")}).state, State::finished);
}

TEST(Completion, TheSameSeedGivesTheSameReply) {
  const auto model = scripted_model();
  const std::string body = chat_body("hello", R"(,"seed":7,"temperature":1.5)");
  EXPECT_EQ(content_of(run(model, {.body = body}).response), content_of(run(model, {.body = body}).response));
}

}  // namespace
}  // namespace deepinfer::server
