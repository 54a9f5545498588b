// deepinfer tokenizer probe: text to ids and back, line by line.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/lines.h"
#include "apps/model_flags.h"
#include "tokenizer/probe.h"

namespace deepinfer::apps {
namespace {

int probe(const std::filesystem::path& file) {
  const auto tokenizer = tokenizer::Tokenizer::load(file.empty() ? model_directory({}) / "tokenizer.json" : file);
  if (!tokenizer) {
    return report(tokenizer.error());
  }
  const tokenizer::EngramVocabulary engram = tokenizer::compress_vocabulary(*tokenizer);
  answer_lines([&](std::string_view line) { return tokenizer::answer_probe_line(*tokenizer, engram, line); });
  return kDone;
}

}  // namespace

void add_tokenizer(CLI::App& app, Action& action) {
  CLI::App* const tokenizer = app.add_subcommand("tokenizer", "test interface of the tokenizer");
  tokenizer->require_subcommand(1);
  CLI::App* const command = tokenizer->add_subcommand("probe", "answers lines of JSON: encode, decode, stream, engram");
  command->footer("Example:\n  echo '{\"op\":\"encode\",\"text\":\"Hello\",\"special\":true}' | deepinfer tokenizer probe");
  const auto file = std::make_shared<std::filesystem::path>();
  command->add_option("--tokenizer", *file, "tokenizer.json (default: the bundled model's)");
  command->callback([file, &action] { action = [file] { return probe(*file); }; });
}

}  // namespace deepinfer::apps
