// The probes: a line for a line, whatever the line is.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "program.h"

namespace deepinfer::apps {
namespace {

/// The answers to some lines; the probe must end well.
std::vector<json::Value> answers(const std::vector<std::string>& arguments, const std::vector<std::string>& requests) {
  std::string input;
  for (const std::string& request : requests) {
    input += request + "\n";
  }
  const Ran ran = run_program(arguments, {.input = input});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  std::vector<json::Value> out;
  for (const std::string& line : lines_of(ran.out)) {
    const auto value = json::parse(line);
    EXPECT_TRUE(value) << line;
    out.push_back(value.value_or(json::Value()));
  }
  return out;
}

std::string text(const json::Value& value) { return json::to_text(value); }

TEST(TokenizerProbe, AnswersLineByLineAndSurvivesNonsense) {
  const auto got = answers({"tokenizer", "probe"}, {R"({"op":"encode","text":"Hello","special":true})", "nonsense",
                                                    R"({"op":"decode","ids":[3046],"skip_special":false})"});
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(text(got[0]), R"({"ids":[3046]})");
  EXPECT_NE(got[1].find("error"), nullptr);
  EXPECT_EQ(text(got[2]), R"({"text":"Hello"})");
}

TEST(RecipeProbe, ConvertsAndRenders) {
  const auto got = answers(
      {"recipe", "probe", "--tokenizer", DEEPINFER_MODELS "/nano/tokenizer.json"},
      {R"({"op":"render","api":"chat","body":"{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}","encode":true})"});
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(text(*got[0].find("ok")), "true") << text(got[0]);
}

TEST(RecipeBench, GivesFigures) {
  const std::string file = (std::filesystem::temp_directory_path() / ("deepinfer-jobs-" + std::to_string(::getpid()))).string();
  std::FILE* const jobs = std::fopen(file.c_str(), "w");
  std::fputs(R"({"jobs":[{"job":"encode","text":"Hello, world. 123"},
    {"job":"convert_render","api":"chat","body":"{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}"},
    {"job":"stream","api":"chat","body":"{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}","pieces":["a","</think>","b"]}]})",
             jobs);
  std::fclose(jobs);
  const Ran ran = run_program({"recipe", "bench", "--tokenizer", DEEPINFER_MODELS "/nano/tokenizer.json", file});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const auto figures = json::parse(ran.out);
  ASSERT_TRUE(figures) << ran.out;
  for (const char* name : {"encode_mb_s", "convert_render_us", "stream_us"}) {
    ASSERT_NE(figures->find(name), nullptr) << ran.out;
    EXPECT_GT(figures->find(name)->as_number()->as_double(), 0) << name;
  }
  std::filesystem::remove(file);
}

TEST(GrammarProbe, BeginsWithAReadyLine) {
  const auto got = answers({"grammar", "probe"}, {R"({"op":"compile","id":"a","kind":"regex","grammar":"[0-9]+"})"});
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(text(*got[0].find("ready")), "true");
  EXPECT_EQ(text(*got[1].find("ok")), "true") << text(got[1]);
}

const std::string kPrompt = "[0,8167,3046,8168,8180]";

TEST(ModelProbe, ForwardIsTheSameForEveryChunkSize) {
  const auto got =
      answers({"model", "probe"}, {R"({"op":"forward","ids":)" + kPrompt + "}", R"({"op":"forward","ids":)" + kPrompt + R"(,"chunk":2})",
                                   R"({"op":"forward","ids":[99999999]})", R"({"op":"forward"})", "[]"});
  ASSERT_EQ(got.size(), 5U);
  ASSERT_NE(got[0].find("logits"), nullptr) << text(got[0]);
  EXPECT_EQ(text(*got[0].find("logits")), text(*got[1].find("logits")));
  EXPECT_EQ(text(*got[0].find("state_sha256")), text(*got[1].find("state_sha256")));
  EXPECT_EQ(got[0].find("top")->as_array()->size(), 20U);
  for (std::size_t i = 2; i < got.size(); ++i) {
    EXPECT_NE(got[i].find("error"), nullptr) << text(got[i]);
  }
}

TEST(ModelProbe, CompanionsDoNotChangeAGeneration) {
  const std::string alone = R"({"op":"generate","ids":)" + kPrompt + R"(,"max_tokens":12)";
  const auto got = answers({"model", "probe"},
                           {alone + "}", alone + R"(,"batch_with":[[0,8167,3,8168,8180],[0,5,6,7]]})",
                            alone + R"(,"sampling":{"temperature":1.0,"seed":5}})", alone + R"(,"sampling":{"temperature":1.0,"seed":5}})",
                            R"({"op":"stats"})", R"({"op":"draft","ids":[0]})", alone + R"(,"speculative":false})"});
  ASSERT_EQ(got.size(), 7U);
  ASSERT_NE(got[0].find("ids"), nullptr) << text(got[0]);
  EXPECT_EQ(got[0].find("ids")->as_array()->front().as_number()->as_int64(), 3046);  // "Hello", as the stored sample
  EXPECT_EQ(text(*got[0].find("ids")), text(*got[1].find("ids")));
  EXPECT_EQ(text(*got[2].find("ids")), text(*got[3].find("ids")));
  EXPECT_EQ(text(*got[6].find("ids")), text(*got[0].find("ids")));
  for (const json::Value& step : *got[6].find("accepted")->as_array()) {
    EXPECT_EQ(text(step), "1");
  }
  EXPECT_EQ(text(*got[4].find("blocks_used")), "0") << text(got[4]);
  ASSERT_NE(got[5].find("draft"), nullptr) << text(got[5]);
  EXPECT_EQ(got[5].find("draft")->as_array()->size(), 5U);
  EXPECT_EQ(got[5].find("confidence")->as_array()->size(), 5U);
}

TEST(ModelProbe, ScoresArePredictionsOfTheTokensThatStandThere) {
  const auto got = answers({"model", "probe"}, {R"({"op":"score","ids":[0,8167,3046,8168,8180,3046,3,1379],"from":5})"});
  ASSERT_EQ(got.size(), 1U);
  ASSERT_NE(got[0].find("argmax"), nullptr) << text(got[0]);
  EXPECT_EQ(text(*got[0].find("argmax")), "[3046,3,1379]");
  EXPECT_EQ(got[0].find("logprob")->as_array()->size(), 3U);
}

}  // namespace
}  // namespace deepinfer::apps
