#include "apps/model_flags.h"

#include <CLI/CLI.hpp>
#include <system_error>
#include <vector>

namespace deepinfer::apps {
namespace {

constexpr const char* kBundledModel = "models/nano";

std::string on_off_or_number(const std::string& value) {
  const bool is_number = !value.empty() && value.size() <= 2 && value.find_first_not_of("0123456789") == std::string::npos;
  return value == "on" || value == "off" || is_number ? "" : "must be on, off or a number of drafts";
}

}  // namespace

void add_model_flag(CLI::App& command, std::filesystem::path& model) {
  command.add_option("--model", model, "checkpoint directory (default: the bundled model nano)")->group("Model");
}

void add_device_flags(CLI::App& command, ModelFlags& flags) {
  const std::string group = "Model";
  add_model_flag(command, flags.model);
  command.add_option("--device", flags.device, "where the model runs: cpu, cuda or cuda:N")->capture_default_str()->group(group);
  command.add_option("--threads", flags.num_threads, "worker threads of the cpu; 0: all cores this process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--engram-memory", flags.engram_memory,
                  "where a GPU finds the tables of Engram: device; host: pinned memory, read ahead over the bus; auto: the device when "
                  "everything fits there, else the host. The tokens are the same; the cpu has one memory")
      ->check(CLI::IsMember({"auto", "device", "host"}))
      ->capture_default_str()
      ->group(group);
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  const std::string group = "Model";
  add_device_flags(command, flags);
  command.add_option("--max-requests", flags.max_requests, "requests that are worked on at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-queue", flags.max_queue, "requests that may wait beside those that are worked on; more are refused")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->group(group);
  command.add_option("--max-batched-tokens", flags.max_batched_tokens, "tokens of one step, all requests together")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--max-model-len", flags.max_model_len, "longest prompt and reply together, in tokens; 0: what the model was made for")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-memory", flags.kv_memory_bytes,
                  "memory for the caches of all requests, for example 512MiB; 0: enough for --max-requests of full length")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("0")
      ->group(group);
  command
      .add_option("--replay", flags.replay,
                  "exact: every prompt token passes every layer and a prefix hit changes no bit; bounded: only the last tokens pass the "
                  "decoder half, faster and slightly different, as the official engine may do; mask: the answers of bounded with all tokens "
                  "computed, to compare with")
      ->check(CLI::IsMember({"exact", "bounded", "mask"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--replay-keep", flags.replay_keep, "bounded and mask: prompt tokens that count in the decoder half; 0: the window and 12 more")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str()
      ->group(group);
  command.add_flag("!--no-prefix-cache", flags.prefix_cache, "compute every prompt from its beginning")->group(group);
  command
      .add_option("--prefix-states", flags.num_prefix_states,
                  "exact: places for states behind cached prefixes, beside unused places for requests; -1: half of the memory of the "
                  "caches, at least --max-requests")
      ->check(CLI::Range(-1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--prefix-memory", flags.prefix_memory_bytes,
                  "host memory for cached prefixes that the caches have no room for, for example 4GiB; 0: none")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("0")
      ->group(group);
  command
      .add_option("--prefix-dir", flags.prefix_directory,
                  "directory for cached prefixes that memory has no room for; kept for the next start")
      ->group(group);
  command.add_option("--prefix-disk", flags.prefix_disk_bytes, "most bytes of --prefix-dir")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1GiB")
      ->group(group);
  command
      .add_option(
          "--speculative", flags.speculative,
          "on: the model's drafter proposes tokens that one step verifies together; off; or a number: drafts per step, at most those it "
          "was trained for. The tokens are the same")
      ->check(on_off_or_number)
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--verification", flags.verification,
                  "confidence: as many drafts as the drafter's confidence and the measured time of steps make worth it; full: all of them")
      ->check(CLI::IsMember({"confidence", "full"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--verification-rule", flags.verification_rule,
                  "coupled: a draft counts when it is the token that would be sampled anyway; rejection: with probability min(1, target / "
                  "draft), as the official engine: more drafts count, but tokens depend on where steps begin")
      ->check(CLI::IsMember({"coupled", "rejection"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--confidence-temperatures", flags.confidence_temperatures,
                  "numbers above 0 that the drafter's confidences are divided by: one for all drafts or one for each, for example "
                  "1,1.1,1.1,1.2,1.2")
      ->delimiter(',')
      ->group(group);
  command.add_flag("--fit-confidence", flags.fit_confidence, "let these temperatures follow what was accepted lately")->group(group);
  command
      .add_option("--jump-ahead", flags.jump_ahead,
                  "on: what a constraint forces is proposed as drafts, without the drafter; off. Needs speculation. The tokens are the same")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--swap-memory", flags.swap_memory_bytes,
                  "most host memory for the caches of preempted requests, used where that beats computing them again; 0: none")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1GiB")
      ->group(group);
  command.add_option("--overlap", flags.overlap_depth, "1: plan the next step and deliver tokens while the device computes; -1: on a GPU")
      ->check(CLI::Range(-1, 1))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--structured-output", flags.structured_output,
                  "on, or off: requests for schemas, regular expressions, grammars and strict tools are refused")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--tool-constraint", flags.tool_constraint,
                  "what is enforced of calls of tools that are not strict: off, structure (form and names) or schema (arguments too)")
      ->check(CLI::IsMember({"off", "structure", "schema"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--log-level", flags.log_level, "debug, info, warning, error or off")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str()
      ->group(group);
}

std::filesystem::path model_directory(const std::filesystem::path& given) {
  if (!given.empty()) {
    return given;
  }
  std::error_code ignored;
  std::vector<std::filesystem::path> places;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    const std::filesystem::path folder = program.parent_path();
    places = {folder / kBundledModel, folder.parent_path() / "share/deepinfer" / kBundledModel};
  }
  places.push_back(std::filesystem::path(DEEPINFER_SOURCE_DIR) / kBundledModel);
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place / "config.json", ignored)) {
      return place;
    }
  }
  return {};
}

}  // namespace deepinfer::apps
