#include "apps/environment.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace deepinfer::apps {
namespace {

constexpr std::string_view kPrefix = "DEEPINFER_";

/// A variable that means a flag; `values` translates spellings that differ.
struct Counterpart {
  std::string_view variable;
  std::string_view flag;
  std::array<std::pair<std::string_view, std::string_view>, 3> values = {};
};

constexpr std::array kCounterparts = {
    Counterpart{"DEEPINFER_ACCELERATOR", "--device", {{{"nvidia", "cuda"}}}},
    Counterpart{"DEEPINFER_CPP_LOG_LEVEL", "--log-level", {{{"warn", "warning"}}}},
    Counterpart{"DEEPINFER_MODEL", "--model"},
    Counterpart{"DEEPINFER_DEVICE", "--device"},
    Counterpart{"DEEPINFER_THREADS", "--threads"},
    Counterpart{"DEEPINFER_MAX_BATCHED_TOKENS", "--max-batched-tokens"},
    Counterpart{"DEEPINFER_MAX_REQUESTS", "--max-requests"},
    Counterpart{"DEEPINFER_KV_MEMORY", "--kv-memory"},
    Counterpart{"DEEPINFER_MAX_MODEL_LEN", "--max-model-len"},
    Counterpart{"DEEPINFER_LOG_LEVEL", "--log-level"},
    Counterpart{"DEEPINFER_ENGRAM_FORCE_GPU_STORAGE", "--engram-memory", {{{"0", "auto"}, {"1", "device"}}}},
};

/// Variables of the official framework that change nothing here, with the reason.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWithoutEffect = {{
    {"DEEPINFER_BATCH_INVARIANT", "results never depend on the batch here"},
    {"DEEPINFER_JIT_CACHE_DIR", "no kernel is compiled at run time here"},
    {"DEEPINFER_SAMPLER_FORCE_TOPK", "use --top-k or the request's own settings"},
    {"DEEPINFER_ENFORCE_EAGER", "there are no graphs on the CPU"},
    {"DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "scheduling has no such mode here"},
    {"DEEPINFER_GC_INTERVAL_STEP", "there is no garbage collector here"},
    {"DEEPINFER_DISABLE_SYNC_GUARD", "there is no such guard here"},
    {"DEEPINFER_LOGGING_INTERVAL_STEP", "use --log-level"},
    {"DEEPINFER_NUM_STATE_SLOTS_RATIO", "use --max-requests"},
    {"DEEPINFER_INDEX_ATTN_MEMORY_LIMIT", "use --max-batched-tokens"},
}};

std::string translated(const Counterpart& counterpart, const std::string& value) {
  for (const auto& [theirs, ours] : counterpart.values) {
    if (!theirs.empty() && theirs == value) {
      return std::string(ours);
    }
  }
  return value;
}

/// Every subcommand, of any depth.
std::vector<CLI::App*> all_commands(CLI::App& app) {
  std::vector<CLI::App*> out{&app};
  for (CLI::App* const command : app.get_subcommands(nullptr)) {
    const std::vector<CLI::App*> inner = all_commands(*command);
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

std::optional<std::string> set_default(CLI::App& app, const Counterpart& counterpart, const std::string& value) {
  for (CLI::App* const command : all_commands(app)) {
    CLI::Option* const option = command->get_option_no_throw(std::string(counterpart.flag));
    if (option == nullptr) {
      continue;
    }
    try {
      option->default_val(translated(counterpart, value));
    } catch (const CLI::Error& error) {
      return std::string(counterpart.variable) + "=" + value + " is ignored: " + error.what() + "; use " + std::string(counterpart.flag);
    }
  }
  return std::nullopt;
}

}  // namespace

Environment read_environment() {
  Environment out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != std::string_view::npos) {
      out.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return out;
}

std::vector<std::string> apply_environment(CLI::App& app, const Environment& environment) {
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment) {
    const auto counterpart = std::ranges::find(kCounterparts, name, &Counterpart::variable);
    if (counterpart != kCounterparts.end()) {
      if (std::optional<std::string> warning = set_default(app, *counterpart, value)) {
        warnings.push_back(std::move(*warning));
      }
      continue;
    }
    const auto known = std::ranges::find(kWithoutEffect, name, [](const auto& entry) { return entry.first; });
    warnings.push_back(name + " has no effect: " +
                       std::string(known == kWithoutEffect.end() ? "there is no such setting; flags are listed by --help" : known->second));
  }
  return warnings;
}

}  // namespace deepinfer::apps
