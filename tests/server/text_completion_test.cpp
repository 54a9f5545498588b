// POST /v1/completions: plain prompts, fill in the middle, echo, n, log probabilities.
#include <gtest/gtest.h>

#include <map>

#include "api_bench.h"

namespace deepinfer::server {
namespace {

constexpr const char* kCompletions = "/v1/completions";

/// `prompt` is JSON; `more` further members, each with a leading comma.
std::string text_body(const std::string& prompt, const std::string& more = "") {
  return R"({"model":"nano","max_tokens":200,"prompt":)" + prompt + more + "}";
}

json::Value answer(const ApiBench& bench, const std::string& body) {
  const ClientResponse response = bench.post(kCompletions, body);
  EXPECT_EQ(response.status, 200) << response.body;
  auto value = json::parse(response.body);
  EXPECT_TRUE(value);
  return value ? std::move(*value) : json::Value();
}

const json::Value& choice_of(const json::Value& body, std::size_t index = 0) { return body.find("choices")->as_array()->at(index); }
std::string text_of(const json::Value& body, std::size_t index = 0) { return *choice_of(body, index).find("text")->as_string(); }
std::uint64_t usage_of(const json::Value& body, const char* name) {
  return body.find("usage")->find(name)->as_number()->as_uint64().value();
}

TEST(TextCompletion, APromptIsContinued) {
  ApiBench bench;
  const json::Value body = answer(bench, text_body(R"("[script:hello]")"));
  EXPECT_EQ(*body.find("object")->as_string(), "text_completion");
  EXPECT_TRUE(body.find("id")->as_string()->starts_with("cmpl-"));
  EXPECT_EQ(text_of(body), "Hello! How can I help you today?");
  EXPECT_EQ(*choice_of(body).find("finish_reason")->as_string(), "stop");
  EXPECT_TRUE(choice_of(body).find("logprobs")->is_null());
  const std::size_t num_prompt = 1 + nano_tokenizer().encode("[script:hello]", tokenizer::AddedTokens::recognise).size();
  EXPECT_EQ(usage_of(body, "prompt_tokens"), num_prompt);  // with the begin-of-sentence token
  EXPECT_EQ(usage_of(body, "total_tokens"), num_prompt + usage_of(body, "completion_tokens"));
}

TEST(TextCompletion, IdsAreTakenAsTheyAre) {
  ApiBench bench;
  json::Array ids;
  for (const TokenId id : nano_tokenizer().encode("[script:hello]", tokenizer::AddedTokens::recognise)) {
    ids.emplace_back(id.value);
  }
  const json::Value body = answer(bench, text_body(json::to_text(ids)));
  EXPECT_EQ(text_of(body), "Hello! How can I help you today?");
  EXPECT_EQ(usage_of(body, "prompt_tokens"), ids.size());
}

TEST(TextCompletion, PromptsTimesNAreChoicesInOrder) {
  ApiBench bench;
  const json::Value body = answer(bench, text_body(R"(["[script:hello]","[script:unicode]"])", R"(,"n":2)"));
  ASSERT_EQ(body.find("choices")->as_array()->size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choice_of(body, i).find("index")->as_number()->as_uint64(), i);
    EXPECT_EQ(text_of(body, i), i < 2 ? "Hello! How can I help you today?" : "Zażółć 你好 🙂🙃 done");
  }
}

TEST(TextCompletion, AStreamIsTheSameTextInPieces) {
  ApiBench bench;
  std::vector<std::string> events =
      events_of(bench
                    .post(kCompletions, text_body(R"(["[script:hello]","[script:unicode]"])",
                                                  R"(,"stream":true,"stream_options":{"include_usage":true})"))
                    .body);
  ASSERT_GE(events.size(), 4U);  // at least one of each choice, the usage and the end
  EXPECT_EQ(events.back(), "[DONE]");
  events.pop_back();
  const auto last = json::parse(events.back());
  EXPECT_TRUE(last->find("choices")->as_array()->empty());
  EXPECT_GT(usage_of(*last, "completion_tokens"), 5U);
  events.pop_back();
  std::map<std::uint64_t, std::string> texts;
  std::map<std::uint64_t, std::string> finishes;
  for (const std::string& event : events) {
    const auto chunk = json::parse(event);
    const json::Value& choice = choice_of(*chunk);
    const std::uint64_t index = choice.find("index")->as_number()->as_uint64().value();
    EXPECT_FALSE(finishes.contains(index)) << "nothing comes after the finish";
    texts[index] += *choice.find("text")->as_string();
    if (!choice.find("finish_reason")->is_null()) {
      finishes[index] = *choice.find("finish_reason")->as_string();
    }
    EXPECT_TRUE(chunk->find("usage")->is_null());
  }
  EXPECT_EQ(texts[0], "Hello! How can I help you today?");
  EXPECT_EQ(texts[1], "Zażółć 你好 🙂🙃 done");
  EXPECT_EQ(finishes[0], "stop");
  EXPECT_EQ(finishes[1], "stop");
}

TEST(TextCompletion, TheMiddleIsFilledInBetweenPlainTexts) {
  ApiBench bench;
  const json::Value body = answer(bench, text_body(R"("a <｜User｜> [script:hello]")", R"(,"suffix":"b <｜fim▁end｜>")"));
  EXPECT_EQ(text_of(body), "Hello! How can I help you today?");
  const auto plain = [](std::string_view text) { return nano_tokenizer().encode(text, tokenizer::AddedTokens::ignore).size(); };
  EXPECT_EQ(usage_of(body, "prompt_tokens"), 4 + plain("a <｜User｜> [script:hello]") + plain("b <｜fim▁end｜>"));
}

TEST(TextCompletion, EchoPutsThePromptFirst) {
  ApiBench bench;
  EXPECT_EQ(text_of(answer(bench, text_body(R"("[script:hello]")", R"(,"echo":true)"))), "[script:hello]Hello! How can I help you today?");
  const json::Value nothing = answer(bench, R"({"model":"nano","prompt":"[script:hello]","max_tokens":0,"echo":true})");
  EXPECT_EQ(text_of(nothing), "[script:hello]");
  EXPECT_EQ(*choice_of(nothing).find("finish_reason")->as_string(), "length");
  EXPECT_EQ(usage_of(nothing, "completion_tokens"), 0U);
  const ClientResponse stream = bench.post(kCompletions, text_body(R"("[script:hello]")", R"(,"echo":true,"stream":true)"));
  std::string text;
  for (const std::string& event : events_of(stream.body)) {
    if (const auto chunk = json::parse(event)) {
      text += text_of(*chunk);
    }
  }
  EXPECT_EQ(text, "[script:hello]Hello! How can I help you today?");
}

TEST(TextCompletion, AStopStringIsNotPartOfTheText) {
  ApiBench bench;
  for (const char* const stop : {R"("STOP")", R"(["never","STOP"])"}) {
    const json::Value body = answer(bench, text_body(R"("[script:stop]")", std::string(",\"stop\":") + stop));
    EXPECT_EQ(text_of(body), "one two ");
    EXPECT_EQ(*choice_of(body).find("finish_reason")->as_string(), "stop");
  }
  EXPECT_EQ(text_of(answer(bench, text_body(R"("[script:unicode]")", R"(,"stop":"好 🙂")"))), "Zażółć 你");
}

TEST(TextCompletion, MaxTokensIsExactAndHasTheDefaultOfTheApi) {
  ApiBench bench;
  const json::Value body = answer(bench, R"({"model":"nano","prompt":"[script:endless]","max_tokens":7})");
  EXPECT_EQ(usage_of(body, "completion_tokens"), 7U);
  EXPECT_EQ(*choice_of(body).find("finish_reason")->as_string(), "length");
  EXPECT_EQ(usage_of(answer(bench, R"({"model":"nano","prompt":"[script:endless]"})"), "completion_tokens"), 16U);
}

TEST(TextCompletion, LogProbabilitiesStandBesideTheirTokens) {
  ApiBench bench;
  const json::Value body = answer(bench, text_body(R"("[script:unicode]")", R"(,"logprobs":2)"));
  const json::Value& logprobs = *choice_of(body).find("logprobs");
  const json::Array& tokens = *logprobs.find("tokens")->as_array();
  const json::Array& offsets = *logprobs.find("text_offset")->as_array();
  ASSERT_EQ(tokens.size(), usage_of(body, "completion_tokens"));
  ASSERT_EQ(offsets.size(), tokens.size());
  EXPECT_EQ(logprobs.find("token_logprobs")->as_array()->size(), tokens.size());
  EXPECT_EQ(offsets.front().as_number()->as_int64(), 0);
  for (const json::Value& top : *logprobs.find("top_logprobs")->as_array()) {
    EXPECT_EQ(top.as_object()->size(), 2U);
  }
}

/// tokens, token_logprobs, top_logprobs and text_offset of all chunks of a choice.
json::Object logprobs_of(const std::vector<std::string>& chunks) {
  json::Object out;
  for (const std::string& text : chunks) {
    const auto chunk = json::parse(text);
    const json::Value* const logprobs = chunk ? choice_of(*chunk).find("logprobs") : nullptr;
    if (logprobs == nullptr || logprobs->is_null()) {
      continue;
    }
    for (const auto& [name, part] : *logprobs->as_object()) {
      json::Value* const known = out.find(name);
      json::Array all = known == nullptr ? json::Array{} : *known->as_array();
      all.insert(all.end(), part.as_array()->begin(), part.as_array()->end());
      out.set(name, all);
    }
  }
  return out;
}

TEST(TextCompletion, EchoedPromptsHaveTheirLogProbabilities) {
  ApiBench bench;
  const std::string with = R"(,"echo":true,"logprobs":2,"temperature":0)";
  const json::Value body = answer(bench, text_body(R"("Zażółć [script:hello]")", with));
  EXPECT_EQ(text_of(body), "Zażółć [script:hello]Hello! How can I help you today?");
  const json::Object logprobs = logprobs_of({json::to_text(body)});
  const json::Array& tokens = *logprobs.find("tokens")->as_array();
  ASSERT_EQ(tokens.size(), usage_of(body, "prompt_tokens") - 1 + usage_of(body, "completion_tokens"));  // not the begin of sentence
  const json::Array& offsets = *logprobs.find("text_offset")->as_array();
  EXPECT_EQ(offsets.front().as_number()->as_int64(), 0);
  EXPECT_EQ(offsets.size(), tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NE((*logprobs.find("token_logprobs")->as_array())[i].as_number(), nullptr);
    EXPECT_EQ((*logprobs.find("top_logprobs")->as_array())[i].as_object()->size(), 2U);
  }

  const json::Value nothing = answer(bench, R"({"model":"nano","prompt":[5,6,7],"max_tokens":0)" + with + "}");
  EXPECT_EQ(text_of(nothing), nano_tokenizer().decode(std::vector{TokenId{5}, TokenId{6}, TokenId{7}}, tokenizer::SpecialTokens::keep));
  EXPECT_EQ(*choice_of(nothing).find("finish_reason")->as_string(), "length");
  EXPECT_EQ(usage_of(nothing, "completion_tokens"), 0U);
  const json::Object scores = logprobs_of({json::to_text(nothing)});
  ASSERT_EQ(scores.find("tokens")->as_array()->size(), 3U);
  EXPECT_TRUE(scores.find("token_logprobs")->as_array()->front().is_null()) << "nothing stands before the first id";
  EXPECT_NE((*scores.find("token_logprobs")->as_array())[2].as_number(), nullptr);

  const std::vector<std::string> chunks =
      events_of(bench.post(kCompletions, text_body(R"("Zażółć [script:hello]")", with + R"(,"stream":true)")).body);
  EXPECT_EQ(json::to_text(logprobs_of(chunks)), json::to_text(logprobs));
  EXPECT_TRUE(text_of(*json::parse(chunks.front())).starts_with("Zażółć [script:hello]")) << chunks.front();
}

TEST(TextCompletion, WrongMembersAreRefusedWithOneSentence) {
  ApiBench bench;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt":"x"})", "there is no model"},
      {R"([])", "expected an object"},
      {text_body("7"), "'prompt' must be a text or a list of token ids"},
      {text_body("[]"), "'prompt' holds no token id"},
      {text_body(R"(["a",[]])"), "'prompt[1]' holds no token id"},
      {text_body("[99999]"), "'prompt' holds something else than token ids from 0 to"},
      {text_body("[-1]"), "'prompt' holds something else than token ids"},
      {text_body("[1.5]"), "'prompt' holds something else than token ids"},
      {text_body("[1]", R"(,"suffix":"x")"), "'suffix' needs a prompt that is a text"},
      {text_body("\"x\"", R"(,"echo":true,"logprobs":1,"suffix":"y")"), "needs a prompt without 'suffix'"},
      {text_body("\"x\"", R"(,"temperature":-1)"), "valid range of temperature"},
      {text_body("\"x\"", R"(,"top_p":0)"), "valid range of top_p"},
      {text_body("\"x\"", R"(,"logprobs":21)"), "Invalid logprobs value"},
      {text_body("\"x\"", R"(,"stop":"")"), "Invalid 'stop'"},
      {text_body("\"x\"", R"(,"stop":[1])"), "'stop' must be a text or a list of texts"},
      {text_body("\"x\"", R"(,"best_of":3)"), "'best_of' must be equal to 'n'"},
      {text_body("\"x\"", R"(,"stream_options":{})"), "stream_options should be set along with stream = true"},
      {text_body("\"" + std::string(40'000, 'x') + "\""), "This model's maximum context length is 2048 tokens."},
      {R"({"model":"nano","prompt":"x","max_tokens":100000})", "This model's maximum context length is 2048 tokens."},
  };
  for (const auto& [body, message] : cases) {
    const ClientResponse response = bench.post(kCompletions, body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 200);
    EXPECT_NE(response.body.find(message), std::string::npos) << response.body;
  }
  bench.expect_normal_service();
}

TEST(TextCompletion, AFailureOfTheModelEndsTheRequest) {
  ApiBench bench;
  EXPECT_EQ(bench.post(kCompletions, text_body(R"(["[script:bad]","[script:endless]"])")).status, 500);
  EXPECT_TRUE(eventually([&] { return bench.is_quiet(); }));
  bench.expect_normal_service();
}

}  // namespace
}  // namespace deepinfer::server
