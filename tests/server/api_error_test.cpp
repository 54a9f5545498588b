#include "server/api_error.h"

#include <gtest/gtest.h>

namespace deepinfer::server {
namespace {

TEST(ApiError, ThePathDecidesTheForm) {
  EXPECT_EQ(error_form("/v1/messages"), ErrorForm::anthropic);
  EXPECT_EQ(error_form("/v1/messages/count_tokens"), ErrorForm::anthropic);
  EXPECT_EQ(error_form("/v1/chat/completions"), ErrorForm::openai);
  EXPECT_EQ(error_form(""), ErrorForm::openai);
}

TEST(ApiError, TheOpenAiFormHasMessageTypeParamAndCode) {
  EXPECT_EQ(error_body(ErrorForm::openai, 404, "no \"x\""),
            R"({"error":{"message":"no \"x\"","type":"not_found_error","param":null,"code":"not_found_error"}})");
  EXPECT_EQ(error_body(ErrorForm::openai, 413, "m"),
            R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":"invalid_request_error"}})");
}

TEST(ApiError, TheAnthropicFormHasItsOwnTypes) {
  EXPECT_EQ(error_body(ErrorForm::anthropic, 413, "m"), R"({"type":"error","error":{"type":"request_too_large","message":"m"}})");
  EXPECT_EQ(error_body(ErrorForm::anthropic, 401, "m"), R"({"type":"error","error":{"type":"authentication_error","message":"m"}})");
}

TEST(ApiError, BusyAnswersSayWhenToTryAgain) {
  const auto has_retry = [](int status) {
    const Response response = error_response(ErrorForm::openai, status, "m");
    return response.headers.size() == 1 && response.headers[0].first == "Retry-After";
  };
  EXPECT_TRUE(has_retry(429));
  EXPECT_TRUE(has_retry(503));
  EXPECT_FALSE(has_retry(400));
}

}  // namespace
}  // namespace deepinfer::server
