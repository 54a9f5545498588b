// deepinfer model probe: the model without text, line by line.
#include <CLI/CLI.hpp>
#include <memory>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/lines.h"
#include "apps/model_flags.h"
#include "apps/model_probe.h"

namespace deepinfer::apps {
namespace {

int probe(const ModelFlags& flags) {
  const auto session = ModelProbe::open(flags);
  if (!session) {
    return report(session.error());
  }
  answer_lines([&session](std::string_view line) { return (*session)->answer(line); });
  return kDone;
}

}  // namespace

void add_model(CLI::App& app, Action& action) {
  CLI::App* const model = app.add_subcommand("model", "test interface of the model");
  model->require_subcommand(1);
  CLI::App* const command = model->add_subcommand("probe", "answers lines of JSON: forward, generate, score, layers, stats");
  command->footer("Example:\n  echo '{\"op\":\"generate\",\"ids\":[0,8167,3046,8168,8180],\"max_tokens\":20}' | deepinfer model probe");
  const auto flags = std::make_shared<ModelFlags>();
  add_model_flags(*command, *flags);
  command->callback([flags, &action] { action = [flags] { return probe(*flags); }; });
}

}  // namespace deepinfer::apps
