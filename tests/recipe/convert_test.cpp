#include "recipe/convert.h"

#include <gtest/gtest.h>

#include "recipe/base64.h"
#include "recipe/data_url.h"
#include "recipe/render.h"
#include "recipe/uri_reference.h"

namespace deepinfer::recipe {
namespace {

RequestError error_of(Api api, std::string_view body) {
  const auto request = convert(api, body, {});
  EXPECT_FALSE(request.has_value()) << body;
  return request ? RequestError{} : request.error();
}

TEST(Convert, ABodyThatIsNoJsonSaysWhere) {
  const RequestError error = error_of(Api::chat, "{\"model\":\n nope}");
  EXPECT_EQ(error.stage, RequestError::Stage::json);
  EXPECT_EQ(error.status, 400);
  EXPECT_NE(error.message.find("line 2"), std::string::npos) << error.message;
  EXPECT_NE(error.body.find("invalid JSON request"), std::string::npos) << error.body;
}

TEST(Convert, AMisfitNamesItsMember) {
  const RequestError error =
      error_of(Api::chat, R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":[{"type":"text","text":5}]}]})");
  EXPECT_EQ(error.stage, RequestError::Stage::body);
  EXPECT_EQ(error.message, "invalid request body: `messages[0].content[0].text`: expected a string, not a number");
}

TEST(Convert, BytesThatAreNoTextAreNoJson) {
  EXPECT_EQ(error_of(Api::responses, "{\"model\":\"\xff\"}").stage, RequestError::Stage::json);
  EXPECT_EQ(error_of(Api::messages, "{\"a\":1e999}").stage, RequestError::Stage::json);
  EXPECT_EQ(error_of(Api::messages, "{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}").stage, RequestError::Stage::json);
}

TEST(Convert, TheJsonWordIsAskedForBeforeThePrefix) {
  const std::string_view without = R"({"model":"DeepSeek-V4.1-Flash","response_format":{"type":"json_object"},
      "messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","prefix":true}]})";
  EXPECT_NE(error_of(Api::chat, without).body.find("must contain the word 'json'"), std::string::npos);
  const std::string_view with = R"({"model":"DeepSeek-V4.1-Flash","response_format":{"type":"json_object"},
      "messages":[{"role":"user","content":"json"},{"role":"assistant","content":"y","prefix":true}]})";
  EXPECT_NE(error_of(Api::chat, with).body.find("should not be used with prefix"), std::string::npos);
}

TEST(Convert, AListWithAnUnknownTypeIsAToolThatIsPassedOver) {
  EXPECT_TRUE(convert(Api::responses, R"({"model":"DeepSeek-V4.1-Flash","input":"x","tools":[["city"]]})", {}).has_value());
  for (const std::string_view tool : {"[]", "[5]", R"(["function"])", "5"}) {
    const std::string body = R"({"model":"DeepSeek-V4.1-Flash","input":"x","tools":[)" + std::string(tool) + "]}";
    EXPECT_EQ(error_of(Api::responses, body).stage, RequestError::Stage::body) << body;
  }
}

/// Calls and outputs of the whole input are compared by their ids before their order is looked at.
TEST(Convert, IdsOfCallsAreUsedOnce) {
  const auto message_of = [](const std::string& items) {
    const std::string call_a = R"({"type":"function_call","call_id":"a","name":"f","arguments":"{}"})";
    const std::string call_b = R"({"type":"function_call","call_id":"b","name":"f","arguments":"{}"})";
    const std::string output_a = R"({"type":"function_call_output","call_id":"a","output":"1"})";
    std::string input = R"({"type":"message","role":"user","content":"x"})";
    for (const char item : items) {
      input += "," + (item == 'A' ? call_a : item == 'B' ? call_b : output_a);
    }
    return error_of(Api::responses, R"({"model":"DeepSeek-V4.1-Flash","input":[)" + input + "]}").body;
  };
  EXPECT_NE(message_of("ABxA").find("Duplicate 'call_id': a."), std::string::npos) << message_of("ABxA");
  EXPECT_NE(message_of("AxBx").find("Duplicate tool output for call_id: a."), std::string::npos) << message_of("AxBx");
  EXPECT_NE(message_of("Bx").find("No tool call found for tool output with call_id a."), std::string::npos) << message_of("Bx");
}

TEST(Convert, AliasesServeTheirVersion) {
  ConvertOptions options;
  options.model_versions.emplace("nano", ModelVersion::v4_1);
  const auto request = convert(Api::chat, R"({"model":"nano","messages":[{"role":"user","content":"x"}]})", options);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->model, "nano");
  EXPECT_EQ(request->version, ModelVersion::v4_1);
}

TEST(Convert, SystemMessagesWithoutTextMayLeaveNoMessageAtAll) {
  for (const Conformance conformance : {Conformance::official, Conformance::improved}) {
    for (const ModelVersion version : {ModelVersion::v4, ModelVersion::v4_1}) {
      ConvertOptions options;
      options.conformance = conformance;
      options.model_versions.emplace("nano", version);
      const auto request = convert(Api::chat, R"({"model":"nano","messages":[{"role":"system","content":""}]})", options);
      ASSERT_TRUE(request.has_value()) << request.error().message;
      EXPECT_TRUE(render(request->conversation, request->version).text.ends_with("<｜Assistant｜><think>"));
    }
  }
  const auto json = convert(
      Api::chat, R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"system","content":""}],"response_format":{"type":"json_object"}})",
      {});
  EXPECT_NE(json.error().message.find("word 'json'"), std::string::npos) << json.error().message;
}

TEST(Convert, TheWordJsonIsLookedForBeforePrefixMessages) {
  const std::string begin =
      R"({"model":"DeepSeek-V4.1-Flash","response_format":{"type":"json_object"},"messages":[{"role":"user","content":")";
  const std::string end = R"("},{"role":"assistant","content":"x","prefix":true}]})";
  EXPECT_NE(error_of(Api::chat, begin + "hi" + end).message.find("word 'json'"), std::string::npos);
  EXPECT_NE(error_of(Api::chat, begin + "json" + end).message.find("should not be used with prefix"), std::string::npos);
}

TEST(Convert, MaxTokensIsLoweredToTheContext) {
  const auto request = convert(Api::chat, R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"x"}]})", {});
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(resolve_max_tokens(*request, 10, 100), 90U);
  EXPECT_EQ(resolve_max_tokens(*request, 10, 1000000), 65536U);
  EXPECT_EQ(resolve_max_tokens(*request, 100, 100), 1U);
  EXPECT_FALSE(resolve_max_tokens(*request, 101, 100).has_value());
}

TEST(DataUrl, ReadsWhatBrowsersRead) {
  const auto url = parse_data_url(" DATA: image/PNG ;charset=x; base64,aGVs\nbG8=#x");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->media_type, "image/png");
  EXPECT_TRUE(url->is_base64);
  EXPECT_EQ(decode_body(*url), "hello");
  EXPECT_EQ(decode_body(*parse_data_url("data:,a%20b%4")), "a b%4");
  EXPECT_EQ(parse_data_url("data:,x")->media_type, "text/plain");
  EXPECT_FALSE(parse_data_url("data:image/png;base64#,x").has_value());
  EXPECT_FALSE(parse_data_url("http://x").has_value());
}

TEST(Base64, RoundTripsAndTellsStrictFromForgiving) {
  std::string bytes;
  for (int length = 0; length < 70; ++length) {
    const std::string text = encode_base64(bytes);
    EXPECT_EQ(decode_forgiving_base64(text), bytes);
    EXPECT_TRUE(is_strict_base64(text));
    bytes.push_back(static_cast<char>(length * 37));
  }
  EXPECT_EQ(decode_forgiving_base64("aGk"), "hi");
  EXPECT_FALSE(is_strict_base64("aGk"));
  EXPECT_EQ(decode_forgiving_base64("aGl="), "hi");
  EXPECT_FALSE(is_strict_base64("aGl="));
  EXPECT_FALSE(decode_forgiving_base64("a").has_value());
  EXPECT_FALSE(decode_forgiving_base64("aGk==").has_value());
}

TEST(UriReference, ResolvesAsRfc3986Says) {
  constexpr std::string_view kBase = "http://a/b/c/d;p?q";
  for (const auto& [reference, target] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{{"g:h", "g:h"},
                                                                            {"g", "http://a/b/c/g"},
                                                                            {"./g", "http://a/b/c/g"},
                                                                            {"g/", "http://a/b/c/g/"},
                                                                            {"/g", "http://a/g"},
                                                                            {"//g", "http://g"},
                                                                            {"?y", "http://a/b/c/d;p?y"},
                                                                            {"g?y", "http://a/b/c/g?y"},
                                                                            {"", "http://a/b/c/d;p?q"},
                                                                            {"..", "http://a/b/"},
                                                                            {"../../g", "http://a/g"},
                                                                            {"../../../g", "http://a/g"},
                                                                            {"g/./h", "http://a/b/c/g/h"},
                                                                            {"g/../h", "http://a/b/c/h"}}) {
    EXPECT_EQ(resolve_uri(kBase, reference), target) << reference;
  }
  EXPECT_EQ(resolve_uri("", "HTTP://A/%61"), "http://a/a");
  for (const char* text : {"a b", "::", "http://[", "#a#b", "%4", "é"}) {
    EXPECT_FALSE(is_uri_reference(text)) << text;
  }
}

}  // namespace
}  // namespace deepinfer::recipe
