#include "server/request_extras.h"

#include <gtest/gtest.h>

#include <limits>

namespace deepinfer::server {
namespace {

Result<RequestExtras> read(const std::string& text) {
  const auto body = json::parse(text);
  EXPECT_TRUE(body) << text;
  return read_extras(*body);
}

TEST(RequestExtras, AbsentAndNullMembersChangeNothing) {
  for (const char* text :
       {"{}", R"({"top_k":null,"min_p":null,"logit_bias":null,"n":null,"ignore_eos":null,"presence_penalty":null})", "[]", "3"}) {
    const auto extras = read(text);
    ASSERT_TRUE(extras) << text;
    EXPECT_EQ(extras->num_choices, 1);
    EXPECT_EQ(extras->sampling.top_k, -1);
    EXPECT_EQ(extras->sampling.min_p, 0.0);
    EXPECT_FALSE(extras->sampling.adjustments.change_logits());
    EXPECT_FALSE(extras->ignore_eos);
  }
}

TEST(RequestExtras, EveryMemberIsRead) {
  const auto extras = read(R"({"top_k":40,"min_p":0.05,"presence_penalty":1,"frequency_penalty":-0.5,"repetition_penalty":1.1,
                              "logit_bias":{"5":-100,"17":2.5},"n":3,"ignore_eos":true,"seed":-1,"priority":-7,"time_limit":1.5,
                              "cache_salt":"tenant 5"})");
  ASSERT_TRUE(extras) << extras.error().message;
  EXPECT_EQ(extras->num_choices, 3);
  EXPECT_TRUE(extras->ignore_eos);
  EXPECT_EQ(extras->seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(extras->priority, -7);
  EXPECT_EQ(extras->time_limit, std::chrono::milliseconds(1500));
  EXPECT_EQ(extras->cache_salt, "tenant 5");
  EXPECT_EQ(extras->sampling.top_k, 40);
  EXPECT_EQ(extras->sampling.min_p, 0.05);
  const sampling::Adjustments& adjustments = extras->sampling.adjustments;
  EXPECT_EQ(adjustments.presence_penalty, 1.0F);
  EXPECT_EQ(adjustments.frequency_penalty, -0.5F);
  EXPECT_EQ(adjustments.repetition_penalty, 1.1F);
  const std::vector<sampling::LogitBias> bias = {{TokenId{5}, -100.0F}, {TokenId{17}, 2.5F}};
  EXPECT_EQ(adjustments.bias, bias);
  EXPECT_EQ(read(R"({"top_k":0})")->sampling.top_k, -1);
}

TEST(RequestExtras, WrongMembersAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"n":0})", "Invalid n value, it must be an integer in the range [1, 16]"},
      {R"({"n":17})", "Invalid n value, it must be an integer in the range [1, 16]"},
      {R"({"n":1.5})", "Invalid n value, it must be an integer in the range [1, 16]"},
      {R"({"top_k":99999999999})", "Invalid top_k value, it must be an integer in the range [-1, 2147483647]"},
      {R"({"top_k":"x"})", "Invalid top_k value, it must be an integer in the range [-1, 2147483647]"},
      {R"({"min_p":1.01})", "Invalid min_p value, the valid range of min_p is [0, 1]"},
      {R"({"min_p":1e999})", "Invalid min_p value, the valid range of min_p is [0, 1]"},
      {R"({"presence_penalty":-2.1})", "Invalid presence_penalty value, the valid range of presence_penalty is [-2, 2]"},
      {R"({"frequency_penalty":true})", "Invalid frequency_penalty value, the valid range of frequency_penalty is [-2, 2]"},
      {R"({"repetition_penalty":0})", "Invalid repetition_penalty value, the valid range of repetition_penalty is [0.01, 10]"},
      {R"({"logit_bias":[]})", "'logit_bias' must be an object of token ids and numbers"},
      {R"({"logit_bias":{"x":1}})", "'logit_bias' has a key that is no token id"},
      {R"({"logit_bias":{"-1":1}})", "'logit_bias' has a key that is no token id"},
      {R"({"logit_bias":{"99999999999999999999":1}})", "'logit_bias' has a key that is no token id"},
      {R"({"logit_bias":{"3":101}})", "Invalid logit_bias of token 3, the valid range is [-100, 100]"},
      {R"({"logit_bias":{"3":"a"}})", "Invalid logit_bias of token 3, the valid range is [-100, 100]"},
      {R"({"seed":1.5})", "Invalid seed value, it must be an integer in the range [-9223372036854775808, 9223372036854775807]"},
      {R"({"ignore_eos":1})", "'ignore_eos' must be a boolean"},
      {R"({"priority":101})", "Invalid priority value, it must be an integer in the range [-100, 100]"},
      {R"({"priority":"high"})", "Invalid priority value, it must be an integer in the range [-100, 100]"},
      {R"({"time_limit":0})", "'time_limit' must be more than 0 seconds; leave it out for no limit"},
      {R"({"time_limit":-1})", "Invalid time_limit value, the valid range of time_limit is [0, 86400]"},
      {R"({"time_limit":"5s"})", "Invalid time_limit value, the valid range of time_limit is [0, 86400]"},
      {R"({"cache_salt":5})", "'cache_salt' must be a string"},
  };
  for (const auto& [text, message] : cases) {
    const auto extras = read(text);
    ASSERT_FALSE(extras) << text;
    EXPECT_EQ(extras.error().message, message) << text;
  }
}

TEST(RequestExtras, ALongSaltIsRefused) {
  EXPECT_TRUE(read_extras(json::Object{{"cache_salt", std::string(256, 'x')}}));
  EXPECT_FALSE(read_extras(json::Object{{"cache_salt", std::string(257, 'x')}}));
}

TEST(RequestExtras, ABiasOfVeryManyTokensIsRefused) {
  json::Object bias;
  for (int i = 0; i < 1025; ++i) {
    bias.append(std::to_string(i), 1);
  }
  EXPECT_FALSE(read_extras(json::Object{{"logit_bias", std::move(bias)}}));
}

}  // namespace
}  // namespace deepinfer::server
