// deepinfer recipe probe and bench: conversion, rendering and reply parsing without a model.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/files.h"
#include "apps/lines.h"
#include "apps/recipe_bench.h"
#include "recipe/probe.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::apps {
namespace {

struct Flags {
  std::filesystem::path tokenizer;
  std::filesystem::path added_tokens;
  std::filesystem::path jobs;
  bool is_improved = false;
};

/// nullopt: no tokenizer wanted.
Result<std::optional<tokenizer::Tokenizer>> load_tokenizer(const Flags& flags) {
  if (flags.tokenizer.empty()) {
    return std::nullopt;
  }
  const Result<std::string> text = read_file(flags.tokenizer);
  if (!text) {
    return std::unexpected(text.error());
  }
  std::string added;
  if (!flags.added_tokens.empty()) {
    Result<std::string> overlay = read_file(flags.added_tokens);
    if (!overlay) {
      return std::unexpected(std::move(overlay.error()));
    }
    added = std::move(*overlay);
  }
  auto parsed = tokenizer::Tokenizer::parse(*text, added);
  if (!parsed) {
    return fail(std::move(parsed.error()), flags.tokenizer.string());
  }
  return std::move(*parsed);
}

int probe(const Flags& flags) {
  const auto tokenizer = load_tokenizer(flags);
  if (!tokenizer) {
    return report(tokenizer.error());
  }
  const auto conformance = flags.is_improved ? recipe::Conformance::improved : recipe::Conformance::official;
  const recipe::ProbeContext context{.conformance = conformance, .tokenizer = *tokenizer ? &**tokenizer : nullptr};
  answer_lines([&context](std::string_view line) { return recipe::answer_probe_line(context, line); });
  return kDone;
}

int bench(const Flags& flags) {
  const auto tokenizer = load_tokenizer(flags);
  const Result<json::Value> jobs = read_json_file(flags.jobs);
  if (!tokenizer || !jobs) {
    return report(tokenizer ? jobs.error() : tokenizer.error());
  }
  const Result<std::string> figures = run_recipe_jobs(*jobs, *tokenizer ? &**tokenizer : nullptr);
  if (!figures) {
    return report(figures.error());
  }
  print_line(*figures);
  return kDone;
}

void add_tokenizer_flags(CLI::App& command, Flags& flags) {
  command.add_option("--tokenizer", flags.tokenizer, "tokenizer.json for token ids");
  command.add_option("--added-tokens", flags.added_tokens, "JSON file with added tokens that replace or complete the tokenizer's");
}

}  // namespace

void add_recipe(CLI::App& app, Action& action) {
  CLI::App* const recipe = app.add_subcommand("recipe", "test interfaces of the API protocol");
  recipe->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();

  CLI::App* const probe_command = recipe->add_subcommand("probe", "answers lines of JSON: convert, render, encode, stream, image");
  probe_command->footer("Example:\n  deepinfer recipe probe --tokenizer models/nano/tokenizer.json < requests.jsonl");
  add_tokenizer_flags(*probe_command, *flags);
  probe_command->add_flag("--improved", flags->is_improved, "answer as the server does by default, not as the official package (docs/recipe.md)");
  probe_command->callback([flags, &action] { action = [flags] { return probe(*flags); }; });

  CLI::App* const bench_command = recipe->add_subcommand("bench", "times conversion, rendering, encoding and reply parsing in one thread");
  bench_command->footer("Example:\n  deepinfer recipe bench --tokenizer models/nano/tokenizer.json jobs.json");
  add_tokenizer_flags(*bench_command, *flags);
  bench_command->add_option("jobs", flags->jobs, "JSON file {\"jobs\": [...]}")->required();
  bench_command->callback([flags, &action] { action = [flags] { return bench(*flags); }; });
}

}  // namespace deepinfer::apps
