// deepinfer make-dummy: a checkpoint with random weights, written or only described.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/progress.h"
#include "model/deepseek_v41/dummy.h"

namespace deepinfer::apps {
namespace {

struct Flags {
  model::DummyOptions options;
  std::filesystem::path output;
  std::vector<std::string> overrides;  ///< KEY=VALUE
  bool describes_only = false;
};

int make_dummy(const Flags& flags) {
  model::DummyOptions options = flags.options;
  for (const std::string& text : flags.overrides) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      print_error("--set " + text + ": write KEY=VALUE, for example --set num_hidden_layers=4");
      return kWrongArguments;
    }
    options.overrides.push_back({.key = text.substr(0, equals), .value = text.substr(equals + 1)});
  }
  if (flags.output.empty() && !flags.describes_only) {
    print_error("say where to write with --output DIR, or add --describe");
    return kWrongArguments;
  }
  const auto plan = model::plan_dummy(options);
  if (!plan) {
    return report(plan.error());
  }
  std::fputs(model::describe_dummy(*plan).c_str(), flags.describes_only ? stdout : stderr);
  if (flags.describes_only) {
    return kDone;
  }
  Progress progress("writing " + flags.output.string());
  const auto written = model::write_dummy(
      *plan, flags.output, [&progress](const model::DummyProgress& now) { progress.show(now.written_bytes, now.total_bytes, now.file); });
  return written ? kDone : report(written.error());
}

}  // namespace

void add_make_dummy(CLI::App& app, Action& action) {
  CLI::App* const command = app.add_subcommand("make-dummy", "writes or describes a checkpoint with random weights");
  command->footer(
      "Example:\n  deepinfer make-dummy --config models/configs/deepseek-v4.1-flash.json --set num_hidden_layers=8 --output /tmp/dummy");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--config", flags->options.config_file, "config.json of the model to imitate")->required();
  command->add_option("--output", flags->output, "directory to write; must not hold a checkpoint");
  command->add_option("--set", flags->overrides, "changes a value of the configuration: KEY=JSON; may be repeated");
  command->add_option("--seed", flags->options.seed, "same seed, same bytes")->capture_default_str();
  command->add_option("--shard-size", flags->options.shard_bytes, "largest file, for example 4GiB")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("10GiB");
  command->add_option("--tokenizer", flags->options.tokenizer_file, "tokenizer.json to copy into the checkpoint");
  command->add_flag("--describe", flags->describes_only, "print what would be written, write nothing");
  command->callback([flags, &action] { action = [flags] { return make_dummy(*flags); }; });
}

}  // namespace deepinfer::apps
