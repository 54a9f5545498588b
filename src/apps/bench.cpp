// deepinfer bench serve: a production trace against an engine in this process.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "apps/bench_steps.h"
#include "apps/command.h"
#include "apps/exit_code.h"
#include "apps/files.h"
#include "apps/lines.h"
#include "apps/loading.h"
#include "apps/model_flags.h"
#include "apps/progress.h"
#include "apps/trace.h"
#include "apps/trace_replay.h"
#include "engine/load.h"
#include "ops/ops.h"

namespace deepinfer::apps {
namespace {

constexpr double kMilliseconds = 1e3;
constexpr double kPercent = 100;

struct Flags {
  ModelFlags model;
  std::filesystem::path trace;
  std::size_t max_requests = 0;
  std::int32_t divisor = 16;
  double speed = 0;
  bool gives_json = false;
};

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string misses_text(const ReplayReport& report) {
  std::string out;
  for (std::size_t i = 0; i < report.misses.size(); ++i) {
    if (report.misses[i] > 0) {
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", scheduler::name_of(static_cast<scheduler::PrefixMiss>(i)), report.misses[i]);
    }
  }
  return out;
}

std::string table(const Flags& flags, const Trace& trace, const ReplayOptions& options, const ReplayReport& report) {
  const auto latency = [](const std::vector<double>& seconds) {
    return fmt::format("p50 {:.1f} ms   p99 {:.1f} ms   of {}", kMilliseconds * percentile(seconds, 50),
                       kMilliseconds * percentile(seconds, 99), seconds.size());
  };
  std::string out = fmt::format("trace        {} ({}), {} requests, token counts / {}, {}\n", flags.trace.filename().string(),
                                trace.format == TraceFormat::azure ? "Azure" : "Mooncake", report.num_requests, options.divisor,
                                options.speed > 0 ? fmt::format("{:g} times its pace", options.speed)
                                                  : fmt::format("{} requests at once", options.max_unfinished));
  out += fmt::format("tokens       prompt {}, output {}; {} prompts cut to the context, {} requests refused, {} failed\n",
                     report.num_prompt_tokens, report.num_output_tokens, report.num_cut, report.num_refused, report.num_failed);
  out += fmt::format("hit rate     {:.2f} % of the prompt tokens; ideal {:.2f} % with {} blocks of {}{}\n", kPercent * report.hit_rate(),
                     kPercent * report.ideal_hit_rate(), options.num_blocks, options.positions_per_block,
                     options.num_states ? fmt::format(" and {} states", *options.num_states) : "");
  out += "prefix ends  " + misses_text(report) + "\n";
  out += "TTFT         " + latency(report.ttft_seconds) + "\n";
  out += "TPOT         " + latency(report.tpot_seconds) + "\n";
  out += fmt::format("rate         prompt {:.0f} tokens/s, output {:.0f} tokens/s, {:.1f} s\n",
                     static_cast<double>(report.num_prompt_tokens) / report.seconds,
                     static_cast<double>(report.num_output_tokens) / report.seconds, report.seconds);
  out += fmt::format("resident     half {:.1f} MiB   end {:.1f} MiB\n", mebibytes(report.resident_bytes_half),
                     mebibytes(report.resident_bytes_end));
  return out;
}

std::string json_line(const Trace& trace, const ReplayOptions& options, const ReplayReport& report) {
  const auto number = [](std::size_t value) { return static_cast<std::uint64_t>(value); };
  json::Object misses;
  for (std::size_t i = 0; i < report.misses.size(); ++i) {
    misses.set(std::string(scheduler::name_of(static_cast<scheduler::PrefixMiss>(i))), report.misses[i]);
  }
  return json::to_text(json::Object{{"format", trace.format == TraceFormat::azure ? "azure" : "mooncake"},
                                    {"requests", number(report.num_requests)},
                                    {"scale", options.divisor},
                                    {"speed", options.speed},
                                    {"prompt_tokens", report.num_prompt_tokens},
                                    {"cached_tokens", report.num_cached_tokens},
                                    {"output_tokens", report.num_output_tokens},
                                    {"cut", number(report.num_cut)},
                                    {"refused", number(report.num_refused)},
                                    {"failed", number(report.num_failed)},
                                    {"hit_rate", report.hit_rate()},
                                    {"ideal_hit_rate", report.ideal_hit_rate()},
                                    {"prefix_ends", std::move(misses)},
                                    {"ttft_p50_ms", kMilliseconds * percentile(report.ttft_seconds, 50)},
                                    {"ttft_p99_ms", kMilliseconds * percentile(report.ttft_seconds, 99)},
                                    {"tpot_p50_ms", kMilliseconds * percentile(report.tpot_seconds, 50)},
                                    {"tpot_p99_ms", kMilliseconds * percentile(report.tpot_seconds, 99)},
                                    {"seconds", report.seconds},
                                    {"resident_bytes_half", number(report.resident_bytes_half)},
                                    {"resident_bytes_end", number(report.resident_bytes_end)}});
}

Result<Trace> read_trace(const Flags& flags) {
  Result<std::string> text = read_file(flags.trace);
  if (!text) {
    return std::unexpected(std::move(text.error()));
  }
  auto trace = flags.max_requests == 0 ? parse_trace(*text) : parse_trace(*text, flags.max_requests);
  return trace ? std::move(trace) : fail(std::move(trace.error()), flags.trace.string());
}

Result<engine::LoadedEngine> load(const Flags& flags, Device& device) {
  const auto directory = find_model(flags.model.model);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  return engine::load_engine(*directory, engine_options(flags.model), device);
}

std::optional<std::int32_t> num_states(const engine::LoadedEngine& loaded) {
  const bool needs_states = loaded.options.replay == engine::Replay::exact;
  return needs_states ? std::optional(loaded.engine->stats().num_slots - loaded.options.max_requests) : std::nullopt;
}

int bench_serve(const Flags& flags) {
  const Result<Trace> trace = read_trace(flags);
  if (!trace) {
    return report(trace.error());
  }
  auto device = open_device(flags.model);
  if (!device) {
    return report(device.error());
  }
  auto loaded = load(flags, **device);
  if (!loaded) {
    return report(loaded.error());
  }
  ReplayOptions options{.divisor = flags.divisor,
                        .speed = flags.speed,
                        .max_unfinished = loaded->options.max_requests,
                        .max_model_len = loaded->options.max_model_len,
                        .num_blocks = loaded->engine->stats().num_blocks,
                        .num_states = num_states(*loaded),
                        .positions_per_block = kBlockPositions};
  Progress progress("replaying " + flags.trace.filename().string());
  options.on_end = [&](std::size_t num_ended) { progress.show(num_ended, trace->requests.size()); };
  const auto replayed = replay(*loaded->engine, *trace, options);
  if (!replayed) {
    return report(replayed.error());
  }
  if (flags.gives_json) {
    print_line(json_line(*trace, options, *replayed));
  } else {
    std::fputs(table(flags, *trace, options, *replayed).c_str(), stdout);
  }
  return replayed->num_failed == 0 ? kDone : kFailed;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* const bench = app.add_subcommand("bench", "measures this machine");
  bench->require_subcommand(1);
  add_bench_steps(*bench, action);
  CLI::App* const command = bench->add_subcommand("serve", "replays a production trace against an engine in this process");
  command->footer(
      "Examples:\n  deepinfer bench serve --trace mooncake.jsonl --requests 300\n"
      "  deepinfer bench serve --trace azure.csv --scale 8 --speed 0.5 --json");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--trace", flags->trace, "file in the format of the Mooncake (JSON lines) or Azure (CSV) traces")->required();
  command->add_option("--requests", flags->max_requests, "how many of its requests, from the first; 0: all")->capture_default_str();
  command->add_option("--scale", flags->divisor, "divides the trace's token counts")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  command->add_option("--speed", flags->speed, "times the pace of the trace; 0: always --max-requests at once")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--json", flags->gives_json, "one JSON object instead of a table");
  add_model_flags(*command, flags->model);
  command->callback([flags, &action] { action = [flags] { return bench_serve(*flags); }; });
}

}  // namespace deepinfer::apps
