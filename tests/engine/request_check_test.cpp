// What is refused, and with which sentence.
#include "engine/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepinfer::engine {
namespace {

constexpr RequestLimits kLimits{.vocab_size = 100, .max_model_len = 10};

GenerationRequest valid() { return {.prompt = {{1}, {99}}, .max_tokens = 3}; }

std::string refusal(const GenerationRequest& request) {
  const auto checked = check_request(request, kLimits);
  if (checked) {
    return "accepted";
  }
  EXPECT_EQ(checked.error().kind, ErrorKind::invalid_argument);
  return checked.error().message;
}

TEST(RequestCheck, AcceptsWhatFits) {
  EXPECT_EQ(refusal(valid()), "accepted");
  GenerationRequest request = valid();
  request.prompt.assign(10, TokenId{0});
  request.max_tokens = std::numeric_limits<std::int32_t>::max();
  request.sampling = {.temperature = 0.0, .top_p = 1e-9, .top_k = 1, .num_top_logprobs = 1000};
  EXPECT_EQ(refusal(request), "accepted");
}

TEST(RequestCheck, NamesWhatIsWrongWithThePrompt) {
  GenerationRequest request = valid();
  request.prompt.clear();
  EXPECT_EQ(refusal(request), "the prompt is empty; give at least one token");
  request.prompt.assign(14, TokenId{0});
  EXPECT_EQ(refusal(request), "the prompt has 14 tokens, but the context holds 10; shorten it by 4");
  request.prompt = {{3}, {100}};
  EXPECT_EQ(refusal(request), "token 1 of the prompt is 100; token ids go from 0 to 99");
  request.prompt = {{-1}};
  EXPECT_EQ(refusal(request), "token 0 of the prompt is -1; token ids go from 0 to 99");
}

TEST(RequestCheck, NamesTheParameterAndItsRange) {
  const auto with = [](auto change) {
    GenerationRequest request = valid();
    change(request);
    return refusal(request);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(with([](auto& r) { r.sampling.temperature = -0.5; }), "temperature is -0.500000; it must be a number of at least 0");
  EXPECT_EQ(with([&](auto& r) { r.sampling.temperature = nan; }), "temperature is nan; it must be a number of at least 0");
  EXPECT_EQ(with([](auto& r) { r.sampling.temperature = HUGE_VAL; }), "temperature is inf; it must be a number of at least 0");
  EXPECT_EQ(with([](auto& r) { r.sampling.top_p = 0.0; }), "top_p is 0.000000; it must be above 0 and at most 1");
  EXPECT_EQ(with([&](auto& r) { r.sampling.top_p = nan; }), "top_p is nan; it must be above 0 and at most 1");
  EXPECT_EQ(with([](auto& r) { r.sampling.top_k = 0; }), "top_k is 0; it must be at least 1, or -1 for all tokens");
  EXPECT_EQ(with([&](auto& r) { r.sampling.min_p = nan; }), "min_p is nan; it must be from 0 to 1");
  EXPECT_EQ(with([](auto& r) { r.sampling.adjustments.repetition_penalty = 0.0F; }),
            "repetition_penalty is 0.000000; it must be a number above 0");
  EXPECT_EQ(with([](auto& r) { r.sampling.adjustments.presence_penalty = HUGE_VALF; }),
            "presence_penalty and frequency_penalty must be finite numbers");
  EXPECT_EQ(with([](auto& r) {
              r.sampling.adjustments.bias = {{TokenId{100}, 1.0F}};
            }),
            "logit_bias names token 100; token ids go from 0 to 99");
  EXPECT_EQ(with([](auto& r) {
              r.sampling.adjustments.bias = {{TokenId{5}, HUGE_VALF}};
            }),
            "the logit_bias of token 5 must be a finite number");
  EXPECT_EQ(with([](auto& r) { r.sampling.num_top_logprobs = 1001; }),
            "the number of top log probabilities is 1001; it must be from 0 to 1000");
  EXPECT_EQ(with([](auto& r) { r.max_tokens = -1; }), "max_tokens is -1; it must be at least 1, or 0 for the rest of the context");
  EXPECT_EQ(with([](auto& r) { r.stop_strings = {"x", ""}; }), "a stop string is empty; give at least one character");
}

TEST(RequestCheck, TheTotalIsBoundedByThePromptAndByTheContext) {
  GenerationRequest request = valid();
  EXPECT_EQ(max_total_tokens(request, kLimits), 5);
  request.max_tokens = 0;
  EXPECT_EQ(max_total_tokens(request, kLimits), 11);
  request.max_tokens = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(max_total_tokens(request, kLimits), 11);
}

}  // namespace
}  // namespace deepinfer::engine
