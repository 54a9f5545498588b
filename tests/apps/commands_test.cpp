// The commands on the bundled nano model, as a user runs them.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/json.h"
#include "program.h"

namespace deepinfer::apps {
namespace {

std::string temporary(const std::string& name) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / ("deepinfer-" + std::to_string(::getpid()) + "-" + name);
  std::filesystem::remove_all(path);
  return path.string();
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string content_of(const std::string& response) {
  const auto value = json::parse(response);
  const json::Value* const choices = value ? value->find("choices") : nullptr;
  return choices == nullptr ? "no choices: " + response : *choices->as_array()->front().find("message")->find("content")->as_string();
}

const std::vector<std::string> kGreedy = {"--thinking", "off", "--temperature", "0"};

std::vector<std::string> with_greedy(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), kGreedy.begin(), kGreedy.end());
  return arguments;
}

TEST(Run, TheAnswerIsOnStdoutAndFiguresAreOnStderr) {
  const Ran ran = run_program(with_greedy({"run", "--prompt", "What is the capital of France?"}));
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("Paris"), std::string::npos) << ran.out;
  EXPECT_NE(ran.err.find("prompt tokens"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("tokens/s"), std::string::npos) << ran.err;
}

TEST(Run, StreamedTextIsTheTextOfTheResponse) {
  const Ran streamed = run_program(with_greedy({"run", "--prompt", "Tell me a story about a fox.", "--max-tokens", "60"}));
  const Ran whole = run_program(with_greedy({"run", "--prompt", "Tell me a story about a fox.", "--max-tokens", "60", "--json"}));
  EXPECT_EQ(streamed.out, content_of(whole.out) + "\n");
}

TEST(Run, StdinIsTheQuestionWhenNoneIsGiven) {
  const Ran piped = run_program(with_greedy({"run"}), {.input = "What is the capital of France?\n"});
  const Ran given = run_program(with_greedy({"run", "--prompt", "What is the capital of France?"}));
  EXPECT_EQ(piped.out, given.out);
}

TEST(Run, MessagesAreReadFromAFile) {
  const std::string file = temporary("messages.json");
  write(file, R"({"messages":[{"role":"user","content":"What is the capital of France?"}]})");
  EXPECT_NE(run_program(with_greedy({"run", "--messages", file})).out.find("Paris"), std::string::npos);
}

TEST(Run, CallsArePrintedAsLines) {
  const std::string file = temporary("tools.json");
  write(file, R"([{"type":"function","function":{"name":"get_weather","description":"Get the current weather in a city",
                 "parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}])");
  const Ran ran = run_program(with_greedy({"run", "--prompt", "What is the weather in Paris?", "--tools", file}));
  EXPECT_NE(ran.out.find(R"({"name":"get_weather","arguments":"{\"city\": \"Paris\"}"})"), std::string::npos) << ran.out;
}

TEST(Run, TheNumberOfThreadsDoesNotChangeTheAnswer) {
  const Ran one = run_program(with_greedy({"run", "--prompt", "Tell me a story about a cat.", "--max-tokens", "40", "--threads", "1"}));
  const Ran three = run_program(with_greedy({"run", "--prompt", "Tell me a story about a cat.", "--max-tokens", "40", "--threads", "3"}));
  EXPECT_EQ(one.out, three.out);
}

TEST(Run, StrictOfficialTakesWhatTheOfficialPackageTakes) {
  const std::string messages = temporary("quoted.json");
  write(messages, R"([{"role":"user","content":"Hi"},{"role":"tool","content":"1","tool_call_id":"c"}])");
  const std::string call =
      R"({"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"a\"b","arguments":"{}"}}]},)";
  std::string text = text_of(messages);
  write(messages, text.insert(text.find(R"({"role":"tool")"), call));
  const Ran improved = run_program(with_greedy({"run", "--messages", messages, "--max-tokens", "2"}));
  EXPECT_EQ(improved.exit_code, 2);
  EXPECT_NE(improved.err.find("name"), std::string::npos) << improved.err;
  EXPECT_EQ(run_program(with_greedy({"run", "--messages", messages, "--max-tokens", "2", "--strict-official"})).exit_code, 0);
}

TEST(Run, APromptLongerThanTheContextIsOneSentence) {
  const Ran ran = run_program({"run", "--max-model-len", "256"}, {.input = std::string(4000, 'x')});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.err.find("maximum context length is 256 tokens"), std::string::npos) << ran.err;
}

TEST(Run, AnImageGoesWithThePromptToAModelThatSees) {
  const std::string image = DEEPINFER_TEST_DATA "/recipe/images/waves.png";
  const std::vector<std::string> tiny = {"--model",      DEEPINFER_TEST_DATA "/tiny", "--max-tokens", "4",
                                         "--ignore-eos", "--max-model-len",           "512"};
  std::vector<std::string> arguments = with_greedy({"run", "--prompt", "What is it?"});
  arguments.insert(arguments.end(), tiny.begin(), tiny.end());
  const Ran without = run_program(arguments);
  arguments.insert(arguments.end(), {"--image", image});
  const Ran with = run_program(arguments);
  EXPECT_EQ(with.exit_code, 0) << with.err;
  EXPECT_NE(with.out, without.out);
  const Ran blind = run_program({"run", "--prompt", "What is it?", "--image", image});
  EXPECT_EQ(blind.exit_code, 2);
  EXPECT_NE(blind.err.find("the model nano does not take images: its configuration has no vision_config"), std::string::npos) << blind.err;
  const Ran text = run_program({"run", "--prompt", "What is it?", "--image", DEEPINFER_TEST_DATA "/tiny/config.json"});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_NE(text.err.find("config.json is no image"), std::string::npos) << text.err;
}

TEST(Chat, AnImageIsShownWithTheNextMessage) {
  const std::string image = DEEPINFER_TEST_DATA "/recipe/images/waves.png";
  const std::string input = "/image " + image + "\nWhat is it?\n/stats\n/clear\nWhat is it?\n/stats\n/image nowhere\nAnd now?\n";
  const Ran ran = run_program(with_greedy({"chat", "--model", DEEPINFER_TEST_DATA "/tiny", "--max-tokens", "4", "--ignore-eos",
                                           "--max-model-len", "512"}),
                              {.input = input});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const auto stats = [&](std::size_t from) { return ran.err.find(" prompt tokens", from); };
  const std::size_t first = stats(0);
  const std::size_t second = stats(first + 1);
  ASSERT_NE(second, std::string::npos) << ran.err;
  const auto number_before = [&](std::size_t end) {
    std::size_t begin = end;
    for (; begin > 0 && std::isdigit(static_cast<unsigned char>(ran.err[begin - 1])) != 0; --begin) {
    }
    return std::stoi(ran.err.substr(begin, end - begin));
  };
  EXPECT_GT(number_before(first), number_before(second) + 20) << ran.err;
  EXPECT_NE(ran.err.find("nowhere"), std::string::npos) << ran.err;
}

TEST(Batch, LinesAreAnsweredInOrderAndAnInterruptedBatchGoesOn) {
  const std::string input = temporary("in.jsonl");
  const std::string output = temporary("out.jsonl");
  const std::string tail = R"("}],"thinking":{"type":"disabled"},"temperature":0,"max_tokens":20})";
  const std::string head = R"({"model":"nano","messages":[{"role":"user","content":")";
  write(input, head + "What is 2 plus 3?" + tail + "\nno json\n\n" + R"({"custom_id":"third","url":"/v1/chat/completions","body":)" + head +
                   "What is 4 plus 5?" + tail + "}\n");
  const Ran first = run_program({"batch", "--input", input, "--output", output});
  EXPECT_EQ(first.exit_code, 1);  // one line is wrong
  EXPECT_NE(first.err.find("3 requests, 1 refused or failed"), std::string::npos) << first.err;
  const std::vector<std::string> lines = lines_of(text_of(output));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(content_of(lines[0]), "");
  EXPECT_NE(lines[1].find("invalid JSON request"), std::string::npos);
  EXPECT_TRUE(lines[2].starts_with(R"({"custom_id":"third","response":{"status_code":200,"body":{)")) << lines[2];

  write(output, lines[0] + "\n" + lines[1].substr(0, 10));  // killed in the middle of a line
  const Ran second = run_program({"batch", "--input", input, "--output", output});
  EXPECT_NE(second.err.find("1 of 3 requests were done before"), std::string::npos) << second.err;
  const std::vector<std::string> resumed = lines_of(text_of(output));
  ASSERT_EQ(resumed.size(), 3U);
  EXPECT_EQ(resumed[0], lines[0]);
  EXPECT_EQ(resumed[1], lines[1]);

  write(output, "a\nb\nc\nd\n");
  EXPECT_EQ(run_program({"batch", "--input", input, "--output", output}).exit_code, 2);
}

TEST(Batch, StrictOfficialRefusesSeveralChoices) {
  const std::string input = temporary("strict.jsonl");
  write(input, R"({"model":"nano","messages":[{"role":"user","content":"Hi"}],"thinking":{"type":"disabled"},"max_tokens":2,"n":2})");
  EXPECT_EQ(run_program({"batch", "--input", input, "--output", "-"}).exit_code, 0);
  const Ran strict = run_program({"batch", "--input", input, "--output", "-", "--strict-official"});
  EXPECT_EQ(strict.exit_code, 1);
  EXPECT_NE(strict.out.find("only n = 1 is supported"), std::string::npos) << strict.out;
}

TEST(Batch, EveryApiThatGeneratesIsAnsweredAndAnUnknownOneRefused) {
  const std::string input = temporary("apis.jsonl");
  const std::string output = temporary("apis_out.jsonl");
  const auto line = [](const std::string& url, const std::string& body) {
    return R"({"custom_id":")" + url + R"(","url":")" + url + R"(","body":{"model":"nano",)" + body + "}}\n";
  };
  write(input, line("/v1/completions", R"("prompt":"Once","max_tokens":3,"n":2)") +
                   line("/v1/messages", R"("max_tokens":3,"messages":[{"role":"user","content":"Hi"}])") +
                   line("/v1/responses", R"("max_output_tokens":3,"input":"Hi")") + line("/v1/images", R"("prompt":"x")"));
  const Ran ran = run_program({"batch", "--input", input, "--output", output});
  EXPECT_NE(ran.err.find("4 requests, 1 refused or failed"), std::string::npos) << ran.err;
  const std::vector<std::string> lines = lines_of(text_of(output));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_NE(lines[0].find(R"("object":"text_completion")"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(R"("completion_tokens":6)"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find(R"("type":"message")"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find(R"("object":"response")"), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find(R"("status_code":400)"), std::string::npos) << lines[3];
}

TEST(Chat, AConversationRemembersAndCommandsWork) {
  const Ran ran =
      run_program(with_greedy({"chat"}), {.input = "Hello\n/stats\n/nonsense\n/system Be brief.\nHello again\n/quit\nnever read\n"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.err.find("prompt tokens"), std::string::npos);
  EXPECT_NE(ran.err.find("There is no /nonsense."), std::string::npos);
  EXPECT_EQ(ran.err.find("never read"), std::string::npos);
  EXPECT_GE(lines_of(ran.out).size(), 2U) << ran.out;
}

/// Two turns of one conversation: the second begins with two blocks of the first.
TEST(Bench, ATraceIsReplayedAndItsFiguresAreOneObject) {
  const std::string trace = temporary("trace.jsonl");
  write(trace,
        "{\"timestamp\": 0, \"input_length\": 4500, \"output_length\": 40, \"hash_ids\": [0, 1, 2, 3, 4, 5, 6, 7, 8]}\n"
        "{\"timestamp\": 9, \"input_length\": 5000, \"output_length\": 40, \"hash_ids\": [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]}\n");
  const Ran ran = run_program({"bench", "serve", "--trace", trace, "--max-requests", "1", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const auto figures = json::parse(ran.out);
  ASSERT_TRUE(figures) << ran.out;
  const auto number = [&](std::string_view name) { return figures->find(name)->as_number()->as_double(); };
  EXPECT_EQ(number("prompt_tokens"), 4500 / 16 + 5000 / 16);
  EXPECT_EQ(number("cached_tokens"), 256);
  EXPECT_EQ(number("hit_rate"), number("ideal_hit_rate"));
  EXPECT_EQ(number("output_tokens"), 4);
  EXPECT_GT(number("resident_bytes_half"), 0);
  EXPECT_GE(number("ttft_p99_ms"), number("ttft_p50_ms"));
}

TEST(Inspect, TheBundledModelIsDescribedAndWhole) {
  const Ran ran = run_program({"inspect"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("hidden"), std::string::npos) << ran.out;
}

TEST(Inspect, ThePlanSaysWhereTheEngramTablesLie) {
  EXPECT_EQ(run_program({"inspect"}).out.find("Engram tables in"), std::string::npos);
  const Ran ran = run_program({"inspect", "--engram-memory", "host"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("Engram tables in host memory"), std::string::npos) << ran.out;
}

TEST(Run, EngramMemoryIsAPlaceAndChangesNoToken) {
  const Ran here = run_program(with_greedy({"run", "--prompt", "Hello", "--max-tokens", "8"}));
  const Ran there = run_program(with_greedy({"run", "--prompt", "Hello", "--max-tokens", "8", "--engram-memory", "host"}));
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_EQ(there.out, here.out);
  const Ran nowhere = run_program({"run", "--prompt", "Hello", "--engram-memory", "elsewhere"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_NE(nowhere.err.find("--engram-memory"), std::string::npos) << nowhere.err;
}

TEST(Inspect, ADirectoryWithoutACheckpointFails) {
  const std::string directory = temporary("empty");
  std::filesystem::create_directory(directory);
  const Ran ran = run_program({"inspect", directory});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_NE(ran.err.find(directory), std::string::npos);
}

TEST(MakeDummy, AWrittenCheckpointCanBeInspectedAndRun) {
  const std::string directory = temporary("dummy");
  const Ran made = run_program({"make-dummy", "--config", DEEPINFER_MODELS "/nano/config.json", "--tokenizer",
                                DEEPINFER_MODELS "/nano/tokenizer.json", "--set", "n_routed_experts=8", "--output", directory});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(run_program({"inspect", directory}).exit_code, 0);
  const Ran ran = run_program({"run", "--model", directory, "--prompt", "Hello", "--max-tokens", "5", "--ignore-eos"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const Ran again = run_program({"make-dummy", "--config", DEEPINFER_MODELS "/nano/config.json", "--output", directory});
  EXPECT_NE(again.exit_code, 0);
  std::filesystem::remove_all(directory);
}

TEST(MakeDummy, DescribingWritesNothing) {
  const Ran ran = run_program({"make-dummy", "--config", DEEPINFER_MODELS "/nano/config.json", "--describe"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out, "");
}

}  // namespace
}  // namespace deepinfer::apps
