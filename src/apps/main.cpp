// The deepinfer command: subcommands, flags, environment, exit codes. The work is in one file per subcommand.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/environment.h"
#include "apps/exit_code.h"

namespace deepinfer::apps {
namespace {

/// The parser's own words are enough, but must end up as one sentence that says where help is.
int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return app.exit(error);  // --help and --version
  }
  std::string command = "deepinfer";
  for (const CLI::App* at = &app; at != nullptr;) {
    const auto inner = at->get_subcommands();
    at = inner.empty() ? nullptr : inner.front();
    command += at == nullptr ? "" : " " + at->get_name();
  }
  std::string message = error.what();
  const std::vector<std::string> unused = app.remaining(true);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && !unused.empty() && !unused.front().starts_with('-')) {
    message = "There is no command '" + unused.front() + "'";
  }
  std::ranges::replace(message, '\n', ' ');
  print_error(message + " (see '" + command + " --help')");
  return kWrongArguments;
}

int run(int argc, char** argv) {
  CLI::App app("DeepSeek-V4.1-Flash inference, from HTTP request to token in one program.", "deepinfer");
  app.set_version_flag("--version", std::string("deepinfer " DEEPINFER_VERSION " (" DEEPINFER_COMMIT ")"));
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  app.footer(
      "Examples:\n  deepinfer run --prompt \"What is the capital of France?\"\n  deepinfer serve --port 8000\n\n"
      "'deepinfer COMMAND --help' describes a command.");
  Action action;
  add_run(app, action);
  add_chat(app, action);
  add_batch(app, action);
  add_serve(app, action);
  add_bench(app, action);
  add_inspect(app, action);
  add_make_dummy(app, action);
  add_tokenizer(app, action);
  add_recipe(app, action);
  add_grammar(app, action);
  add_model(app, action);
  const std::vector<std::string> warnings = apply_environment(app, read_environment());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error);
  }
  for (const std::string& warning : warnings) {
    print_error("warning: " + warning);
  }
  return action();
}

}  // namespace
}  // namespace deepinfer::apps

int main(int argc, char** argv) {
  try {
    return deepinfer::apps::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, or a library that throws where it should not
    deepinfer::apps::print_error(error.what());
    return deepinfer::apps::kFailed;
  }
}
