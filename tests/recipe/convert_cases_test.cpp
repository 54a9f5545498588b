// The recorded answers of the official package to conversion, rendering and encoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "recipe/official_answers.h"
#include "recipe/probe.h"
#include "recipe/test_files.h"
#include "recipe/test_tokenizer.h"

namespace deepinfer::recipe {
namespace {

using testing::deepseek_v41;
using testing::json_difference;
using testing::read_json_lines;
using testing::recipe_data;

constexpr json::ParseLimits kLimits{.max_depth = 512};

std::string text_of(const json::Value& value, std::string_view key) {
  const json::Value* member = value.find(key);
  return member != nullptr && member->as_string() != nullptr ? *member->as_string() : "";
}

/// Texts of third-party validators differ: what comes after these beginnings does not count.
std::string without_validator_text(const std::string& body) {
  for (const std::string_view begin :
       {R"({"error":{"message":"Invalid json schema: )", R"({"error":{"message":"Invalid tool parameters schema : )"}) {
    if (body.starts_with(begin)) {
      return std::string(begin);
    }
  }
  constexpr std::string_view kFunction = R"({"error":{"message":"Invalid schema for function ')";
  const std::size_t end = body.find("': ", kFunction.size());
  const bool is_validator_text =
      body.starts_with(kFunction) && end != std::string::npos && !body.substr(end + 3).starts_with("schema must be a JSON Schema");
  return is_validator_text ? body.substr(0, end + 3) : body;
}

/// Rules of the probe protocol, section 1.
std::optional<std::string> difference(const json::Value& expected, const json::Value& answer) {
  const json::Value* error = expected.find("error");
  const json::Value* own_error = answer.find("error");
  if (error == nullptr || own_error == nullptr) {
    return json_difference(expected, answer, "answer");
  }
  if (text_of(*error, "stage") != text_of(*own_error, "stage")) {
    return "stage " + text_of(*own_error, "stage") + " instead of " + text_of(*error, "stage");
  }
  if (text_of(*error, "stage") != "convert") {
    return text_of(*own_error, "message").empty() ? std::optional<std::string>("an error without a message") : std::nullopt;
  }
  const std::string body = without_validator_text(text_of(*error, "body"));
  const std::string own_body = without_validator_text(text_of(*own_error, "body"));
  return body == own_body ? json_difference(*error->find("status"), *own_error->find("status"), "status")
                          : std::optional<std::string>("`" + own_body + "` instead of `" + body + "`");
}

void expect_official_answers(std::string_view file) {
  constexpr std::array<std::string_view, 3> kOperations{"convert", "render", "encode"};
  constexpr int kShown = 5;
  int num_wrong = 0;
  int num_cases = 0;
  for (const json::Value& record : read_json_lines(recipe_data("oracle") / file)) {
    if (std::ranges::find(kOperations, text_of(record, "op")) == kOperations.end()) {
      continue;
    }
    ++num_cases;
    const std::string line = answer_probe_line({.tokenizer = &deepseek_v41()}, json::to_text(*record.find("input")));
    const Result<json::Value> answer = json::parse(line, kLimits);
    ASSERT_TRUE(answer.has_value()) << line;
    const std::optional<std::string> problem = difference(*record.find("expected"), *answer);
    if (problem && ++num_wrong <= kShown) {
      ADD_FAILURE() << text_of(record, "name") << ": " << *problem << "\n" << json::to_text(*record.find("input")).substr(0, 1000);
    }
  }
  EXPECT_EQ(num_wrong, 0) << "of " << num_cases;
  EXPECT_GT(num_cases, 0);
}

TEST(OfficialCases, ChatRequestsConvertEqually) { expect_official_answers("convert_chat.jsonl.gz"); }
TEST(OfficialCases, MessagesRequestsConvertEqually) { expect_official_answers("convert_messages.jsonl.gz"); }
TEST(OfficialCases, ResponsesRequestsConvertEqually) { expect_official_answers("convert_responses.jsonl.gz"); }
TEST(OfficialCases, PromptsAreEqual) { expect_official_answers("render.jsonl.gz"); }
TEST(OfficialCases, EncodingsAreEqual) { expect_official_answers("encode.jsonl.gz"); }
TEST(OfficialCases, RandomRequestsAreEqual) { expect_official_answers("random.jsonl.gz"); }
TEST(OfficialCases, OlderGoldensAreEqual) { expect_official_answers("older_goldens.jsonl.gz"); }
TEST(OfficialCases, OlderPromptsAreEqual) { expect_official_answers("older_render_cases.jsonl.gz"); }
TEST(OfficialCases, OlderValidationsAreEqual) { expect_official_answers("older_validation_cases.jsonl.gz"); }

}  // namespace
}  // namespace deepinfer::recipe
