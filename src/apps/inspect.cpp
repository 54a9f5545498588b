// deepinfer inspect: what a checkpoint is, whether it is whole, and what it needs on given devices.
#include "model/deepseek_v41/inspect.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/model_flags.h"

namespace deepinfer::apps {
namespace {

struct Flags {
  std::filesystem::path directory;
  std::vector<std::string> devices;  ///< NAME or NAME=BYTES
  model::MemoryLimits limits;
  std::string values = "auto";
};

/// "cuda:0=80GiB" → name and memory of one device.
Result<model::DevicePlan> parse_device(const std::string& text, model::MemoryLimits limits) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    std::string bytes = text.substr(equals + 1);
    const CLI::AsSizeValue as_size(false);
    std::uint64_t value = 0;
    if (!as_size(bytes).empty() || !CLI::detail::lexical_cast(bytes, value)) {
      return fail(ErrorKind::invalid_argument, "--device " + text + ": the memory must be a size such as 80GiB");
    }
    limits.memory_bytes = value;
  }
  return model::DevicePlan{.device = text.substr(0, equals), .limits = limits};
}

int inspect(const Flags& flags) {
  const std::filesystem::path directory = model_directory(flags.directory);
  model::InspectOptions options;
  options.values = flags.values == "all"    ? model::ValueCheck::always
                   : flags.values == "none" ? model::ValueCheck::never
                                            : model::ValueCheck::by_size;
  for (const std::string& text : flags.devices) {
    Result<model::DevicePlan> device = parse_device(text, flags.limits);
    if (!device) {
      return report(device.error());
    }
    device->limits.rank = {.rank = static_cast<std::int32_t>(options.devices.size()),
                           .num_ranks = static_cast<std::int32_t>(flags.devices.size())};
    options.devices.push_back(std::move(*device));
  }
  if (options.devices.empty()) {
    options.devices.push_back({.device = "one device", .limits = flags.limits});
  }
  const model::InspectReport found = model::inspect_report(directory, options);
  std::fputs(found.text.c_str(), stdout);
  if (!found.ok) {
    print_error(directory.string() + " cannot be loaded as it is; the report on stdout lists every problem");
  }
  return found.ok ? kDone : kFailed;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  CLI::App* const command =
      app.add_subcommand("inspect", "prints configuration, tensors, sizes, memory plan and every problem of a checkpoint");
  command->footer(
      "Examples:\n  deepinfer inspect models/nano\n  deepinfer inspect DIR --device cuda:0=80GiB --device cuda:1=80GiB --max-requests 64");
  const auto flags = std::make_shared<Flags>();
  command->add_option("directory", flags->directory, "checkpoint directory (default: the bundled model nano)");
  command->add_option("--device", flags->devices, "a device of the memory plan, as NAME or NAME=MEMORY; several share the experts");
  command->add_option("--max-requests", flags->limits.max_requests, "requests at once in the memory plan")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--max-batched-tokens", flags->limits.max_batched_tokens, "tokens of one step in the memory plan")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-model-len", flags->limits.max_model_len, "longest request in the memory plan; 0: what the model was made for")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--engram-memory",
          [flags](const std::string& place) {
            flags->limits.engram_tables = place == "host" ? model::EngramTables::in_host_memory : model::EngramTables::in_memory;
          },
          "where the Engram tables lie in the memory plan: device or host")
      ->check(CLI::IsMember({"device", "host"}))
      ->default_str("device");
  command
      ->add_option("--check-values", flags->values,
                   "read every value and look for codes that mean nothing: auto (small checkpoints), all, none")
      ->check(CLI::IsMember({"auto", "all", "none"}))
      ->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return inspect(*flags); }; });
}

}  // namespace deepinfer::apps
