// deepinfer grammar probe: grammars, matchers and token masks, line by line (grammar_probe.md).
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/files.h"
#include "apps/lines.h"
#include "apps/model_flags.h"
#include "grammar/probe.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::apps {
namespace {

struct Flags {
  std::filesystem::path tokenizer;
  std::int32_t vocab_size = 0;
  std::vector<std::int32_t> end_ids;
  std::int32_t num_threads = 1;
  std::string clock = "cpu";
  std::filesystem::path limits;
};

int probe(const Flags& flags) {
  const auto tokenizer = tokenizer::Tokenizer::load(flags.tokenizer.empty() ? model_directory({}) / "tokenizer.json" : flags.tokenizer);
  if (!tokenizer) {
    return report(tokenizer.error());
  }
  grammar::ProbeOptions options{.vocab_size = flags.vocab_size,
                                .end_ids = {},
                                .num_threads = flags.num_threads,
                                .clock = flags.clock == "wall" ? grammar::ProbeClock::wall : grammar::ProbeClock::cpu,
                                .limits = {},
                                .version = DEEPINFER_VERSION};
  for (const std::int32_t id : flags.end_ids) {
    options.end_ids.push_back(TokenId{id});
  }
  if (!flags.limits.empty()) {
    const Result<std::string> overrides = read_file(flags.limits);
    if (!overrides) {
      return report(overrides.error());
    }
    auto limits = grammar::limits_from_json(*overrides, options.limits);
    if (!limits) {
      return report(limits.error());
    }
    options.limits = std::move(*limits);
  }
  grammar::ProbeSession session(*tokenizer, std::move(options));
  print_line(session.ready_line());
  answer_lines([&session](std::string_view line) { return session.answer(line); });
  return kDone;
}

}  // namespace

void add_grammar(CLI::App& app, Action& action) {
  CLI::App* const grammar = app.add_subcommand("grammar", "test interface of structured output");
  grammar->require_subcommand(1);
  CLI::App* const command = grammar->add_subcommand("probe", "answers lines of JSON about grammars, matchers and token masks");
  command->footer("Example:\n  deepinfer grammar probe --tokenizer models/nano/tokenizer.json < requests.jsonl");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--tokenizer", flags->tokenizer, "tokenizer.json (default: the bundled model's)");
  command->add_option("--vocab-size", flags->vocab_size, "rows of the logits; 0: the tokenizer's size")->capture_default_str();
  command->add_option("--eos", flags->end_ids, "ids that end a text, separated by commas (default: the tokenizer's own)")->delimiter(',');
  command->add_option("--threads", flags->num_threads, "threads that a compile or a batch may use")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--clock", flags->clock, "what times mean: cpu or wall")
      ->check(CLI::IsMember({"cpu", "wall"}))
      ->capture_default_str();
  command->add_option("--limits", flags->limits, "JSON file of limits that replace the defaults");
  command->callback([flags, &action] { action = [flags] { return probe(*flags); }; });
}

}  // namespace deepinfer::apps
