// What a user can type wrong: one sentence on stderr that says what to change, and the right exit code.
#include <gtest/gtest.h>

#include "program.h"

namespace deepinfer::apps {
namespace {

/// One sentence, nothing on stdout.
void expect_error(const std::vector<std::string>& arguments, int exit_code, const std::vector<std::string>& parts,
                  const RunOptions& options = {}) {
  const Ran ran = run_program(arguments, options);
  std::string command;
  for (const std::string& argument : arguments) {
    command += " " + argument;
  }
  EXPECT_EQ(ran.exit_code, exit_code) << command << "\n" << ran.err;
  EXPECT_EQ(ran.out, "") << command;
  EXPECT_EQ(lines_of(ran.err).size(), 1U) << command << "\n" << ran.err;
  for (const std::string& part : parts) {
    EXPECT_NE(ran.err.find(part), std::string::npos) << command << "\n" << ran.err;
  }
}

TEST(Arguments, WithoutASubcommandHelpIsPointedAt) { expect_error({}, 2, {"subcommand", "deepinfer --help"}); }

TEST(Arguments, AnUnknownSubcommandOrFlagIsNamed) {
  expect_error({"fly"}, 2, {"fly"});
  expect_error({"run", "--fast"}, 2, {"--fast", "deepinfer run --help"});
}

TEST(Arguments, AValueOutOfRangeIsNamedWithItsFlag) {
  expect_error({"run", "--prompt", "x", "--temperature", "3"}, 2, {"--temperature"});
  expect_error({"run", "--prompt", "x", "--temperature", "hot"}, 2, {"--temperature"});
  expect_error({"run", "--prompt", "x", "--threads", "-1"}, 2, {"--threads"});
  expect_error({"run", "--prompt", "x", "--max-tokens", "0"}, 2, {"--max-tokens"});
  expect_error({"run", "--prompt", "x", "--thinking", "maybe"}, 2, {"--thinking"});
  expect_error({"run", "--prompt", "x", "--min-p", "1.5"}, 2, {"--min-p"});
  expect_error({"run", "--prompt", "x", "--presence-penalty", "3"}, 2, {"--presence-penalty"});
  expect_error({"run", "--prompt", "x", "--repetition-penalty", "0"}, 2, {"--repetition-penalty"});
  expect_error({"serve", "--request-timeout", "-1"}, 2, {"--request-timeout"});
  expect_error({"serve", "--port", "70000"}, 2, {"--port"});
  expect_error({"serve", "--max-body", "much"}, 2, {"--max-body"});
}

TEST(Arguments, PromptAndMessagesExcludeEachOther) { expect_error({"run", "--prompt", "x", "--messages", "y"}, 2, {"--messages"}); }

TEST(Arguments, StrictOfficialExcludesWhatTheOfficialPackageIgnores) {
  for (const char* const flag : {"--top-k", "--min-p", "--presence-penalty", "--frequency-penalty", "--repetition-penalty"}) {
    expect_error({"run", "--prompt", "x", "--strict-official", flag, "1"}, 2, {flag, "--strict-official"});
  }
  expect_error({"chat", "--strict-official", "--ignore-eos"}, 2, {"--ignore-eos", "--strict-official"});
}

TEST(Arguments, AnEmptyPromptIsRefused) { expect_error({"run"}, 2, {"prompt on stdin is empty"}); }

TEST(Arguments, AMissingModelIsNamed) {
  expect_error({"run", "--model", "/no/such/model", "--prompt", "x"}, 1, {"/no/such/model", "--model"});
  expect_error({"model", "probe", "--model", "/no/such/model"}, 1, {"/no/such/model"});
}

TEST(Arguments, AMissingFileIsNamed) {
  expect_error({"run", "--messages", "/no/such/file"}, 1, {"/no/such/file"});
  expect_error({"batch", "--input", "/no/such/file", "--output", "-"}, 1, {"/no/such/file"});
  expect_error({"tokenizer", "probe", "--tokenizer", "/no/such/file"}, 1, {"/no/such/file"});
  expect_error({"serve", "--api-key-file", "/no/such/file"}, 1, {"/no/such/file"});
  expect_error({"serve", "--admin-key-file", "/no/such/file"}, 1, {"/no/such/file"});
}

TEST(Arguments, ATraceThatIsNoneIsNamedWithItsLine) {
  expect_error({"bench", "serve"}, 2, {"--trace"});
  expect_error({"bench", "serve", "--trace", "/dev/null"}, 2, {"/dev/null", "no request"});
  expect_error({"bench", "serve", "--trace", "/nowhere"}, 1, {"/nowhere"});
}

TEST(Arguments, ADeviceThatIsNotThereIsNamed) {
  expect_error({"run", "--prompt", "x", "--device", "cuda:0"}, 2, {"--device cuda:0", "cpu"});
}

TEST(Arguments, AnOpenAddressNeedsKeys) { expect_error({"serve", "--host", "0.0.0.0", "--port", "0"}, 2, {"0.0.0.0", "--api-key-file"}); }

TEST(Arguments, TlsNeedsACertificateAndItsKey) {
  expect_error({"serve", "--tls-cert-file", "/no/such/file"}, 2, {"--tls-key-file"});
  expect_error({"serve", "--tls-cert-file", "/no/such/file", "--tls-key-file", "/no/such/key", "--port", "0"}, 2,
               {"/no/such/file", "--tls-cert-file"});
}

TEST(Arguments, MakeDummyNeedsAPlaceToWrite) {
  expect_error({"make-dummy", "--config", DEEPINFER_MODELS "/nano/config.json"}, 2, {"--output"});
  expect_error({"make-dummy", "--config", DEEPINFER_MODELS "/nano/config.json", "--output", "/tmp/x", "--set", "nonsense"}, 2,
               {"--set", "KEY=VALUE"});
}

TEST(Arguments, EveryCommandHasHelpWithAnExample) {
  const std::vector<std::vector<std::string>> commands = {{},
                                                          {"run"},
                                                          {"chat"},
                                                          {"batch"},
                                                          {"serve"},
                                                          {"bench", "serve"},
                                                          {"inspect"},
                                                          {"make-dummy"},
                                                          {"tokenizer", "probe"},
                                                          {"recipe", "probe"},
                                                          {"recipe", "bench"},
                                                          {"grammar", "probe"},
                                                          {"model", "probe"}};
  for (std::vector<std::string> command : commands) {
    command.emplace_back("--help");
    const Ran ran = run_program(command);
    EXPECT_EQ(ran.exit_code, 0);
    EXPECT_NE(ran.out.find("Example"), std::string::npos) << ran.out;
  }
}

TEST(Arguments, TheVersionIsTold) {
  const Ran ran = run_program({"--version"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_TRUE(ran.out.starts_with("deepinfer ")) << ran.out;
}

TEST(Environment, AnOfficialVariableSetsTheDefaultOfItsFlag) {
  const Ran ran = run_program({"run", "--prompt", "x"}, {.environment = {"DEEPINFER_ACCELERATOR=nvidia"}});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.err.find("--device cuda"), std::string::npos) << ran.err;
}

TEST(Environment, AFlagWinsOverItsVariable) {
  const Ran ran = run_program({"model", "probe", "--device", "cpu"}, {.environment = {"DEEPINFER_ACCELERATOR=nvidia"}});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST(Environment, AVariableWithoutEffectIsAWarning) {
  const Ran ran = run_program({"tokenizer", "probe"},
                              {.environment = {"DEEPINFER_NO_SUCH_THING=1", "DEEPINFER_BATCH_INVARIANT=1", "DEEPINFER_THREADS=many"}});
  EXPECT_EQ(ran.exit_code, 0);
  const std::vector<std::string> lines = lines_of(ran.err);
  ASSERT_EQ(lines.size(), 3U) << ran.err;
  EXPECT_NE(lines[0].find("warning: DEEPINFER_BATCH_INVARIANT has no effect"), std::string::npos);
  EXPECT_NE(lines[1].find("warning: DEEPINFER_NO_SUCH_THING has no effect"), std::string::npos);
  EXPECT_NE(lines[2].find("use --threads"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::apps
