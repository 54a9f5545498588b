#include "apps/bench_steps.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/exit_code.h"
#include "apps/lines.h"
#include "apps/loading.h"
#include "apps/model_flags.h"
#include "apps/timed_device.h"
#include "backends/copy_bandwidth.h"
#include "backends/cpu/machine_probe.h"
#include "backends/cuda/cuda_device.h"
#include "base/json.h"
#include "model/deepseek_v41/model.h"
#include "weights/checkpoint.h"

namespace deepinfer::apps {
namespace {

constexpr double kGiga = 1e9;
constexpr double kPercent = 100;
constexpr std::size_t kWorthALine = 24;  // operations of a step, by time

enum class What : std::uint8_t { ops, decode, prefill };

struct Flags {
  ModelFlags model;
  std::int32_t context = 1024;
  std::vector<std::int32_t> requests = {1, 16, 32};
  std::int32_t rows = 512;
  std::int32_t num_drafts = 0;
  std::int32_t repeats = 9;
  bool gives_json = false;
};

/// Requests with their own blocks, so that steps of any number of rows can be made. Caches hold what earlier steps left there.
struct Requests {
  std::vector<std::vector<BlockId>> blocks;
  std::vector<TokenId> tokens;

  Requests(std::int32_t count, std::int32_t blocks_each, std::int32_t num_tokens, std::int32_t vocab) {
    std::int32_t next = 1;
    for (std::int32_t r = 0; r < count; ++r) {
      blocks.emplace_back();
      for (std::int32_t b = 0; b < blocks_each; ++b) {
        blocks.back().push_back({next++});
      }
    }
    for (std::int32_t i = 0; i < num_tokens; ++i) {
      tokens.push_back({static_cast<std::int32_t>(std::int64_t{i} * 7919 % (vocab - 64)) + 3});
    }
  }

  [[nodiscard]] model::Chunk chunk(std::int32_t request, std::int32_t first, std::int32_t rows, std::int32_t logits) const {
    const std::span<const TokenId> all = tokens;
    const auto start = static_cast<std::size_t>(request);
    return {.slot = {request + 1},
            .blocks = blocks[start],
            .first_position = first,
            .tokens = all.subspan(start, static_cast<std::size_t>(rows)),
            .previous = all.subspan(start, static_cast<std::size_t>(std::min(first, 8))),
            .num_logit_rows = logits};
  }
};

/// A model on a device that measures.
struct Bench {
  std::unique_ptr<Device> device;
  std::unique_ptr<TimedDevice> timed;
  std::unique_ptr<model::DeepseekV41> model;
  cpu::MachineLimits limits;
  Requests requests;

  /// Seconds of the median of several runs, and its operations; of whole steps those of the first run, which times every operation.
  template <class Run>
  std::pair<double, OpTimes> median(std::int32_t repeats, bool is_by_operation, const Run& run) {
    constexpr std::int32_t kRunsBefore = 3;  // one that times operations and brings weights into reach, one as it is, one that is recorded
    std::vector<std::pair<double, OpTimes>> steps;
    OpTimes first;
    for (std::int32_t i = 0; i < repeats + kRunsBefore; ++i) {
      (void)timed->take_times();
      timed->set_timing(is_by_operation || i == 0);
      const auto begin = std::chrono::steady_clock::now();
      run();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      steps.emplace_back(seconds, timed->take_times());
      if (i == 0) {
        first = steps.front().second;
      }
    }
    steps.erase(steps.begin(), steps.begin() + kRunsBefore);
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::ranges::nth_element(steps, middle, {}, [](const auto& step) { return step.first; });
    return {middle->first, is_by_operation ? std::move(middle->second) : std::move(first)};
  }
};

/// What the device can do at most; before a model takes its memory.
cpu::MachineLimits limits_of(Device& device) {
  if (device.info().reads_host_memory) {
    return cpu::probe_machine(std::max(1, device.info().num_threads));
  }
  const double flops = cuda::probe_matrix_flops();
  return {.bytes_per_second = copy_bandwidth(device), .flops_per_second = flops, .quantised_flops_per_second = flops};
}

/// Seconds that bytes and FLOPs of an operation take at least.
double floor_of(const OpTime& time, const cpu::MachineLimits& limits) {
  const double peak = time.on_product_unit ? limits.quantised_flops_per_second : limits.flops_per_second;
  return std::max(time.bytes / limits.bytes_per_second, time.flops / peak);
}

/// A whole step: its bytes, or its FLOPs at the peaks of the units that do them.
struct StepFigures {
  std::string name;
  double rows = 0;
  double seconds = 0;
  double bytes = 0;
  double flops = 0;
  double read_seconds = 0;
  double compute_seconds = 0;

  [[nodiscard]] double floor_seconds() const { return std::max(read_seconds, compute_seconds); }
  [[nodiscard]] const char* bound() const { return read_seconds > compute_seconds ? "bytes" : "FLOPs"; }
};

StepFigures figures_of(std::string name, double rows, double seconds, const OpTimes& times, const cpu::MachineLimits& limits) {
  StepFigures out{.name = std::move(name), .rows = rows, .seconds = seconds};
  for (const auto& [operation, time] : times) {
    out.bytes += time.bytes;
    out.flops += time.flops;
    out.compute_seconds += time.flops / (time.on_product_unit ? limits.quantised_flops_per_second : limits.flops_per_second);
  }
  out.read_seconds = out.bytes / limits.bytes_per_second;
  return out;
}

void print_step(const StepFigures& step) {
  print_line(fmt::format("{:<24} {:9.3f} ms  {:9.1f} tokens/s  {:9.2f} MB at {:6.2f} GB/s  {:10.2f} GFLOP at {:7.1f} GFLOP/s  {:5.1f} % of the floor ({})",
                         step.name, 1e3 * step.seconds, step.rows / step.seconds, step.bytes / 1e6, step.bytes / step.seconds / kGiga, step.flops / kGiga,
                         step.flops / step.seconds / kGiga, kPercent * step.floor_seconds() / step.seconds, step.bound()));
}

/// One object per step.
void print_json(const StepFigures& step, const OpTimes& times, const cpu::MachineLimits& limits) {
  json::Array operations;
  for (const auto& [name, time] : times) {
    operations.push_back(json::Object{{"operation", name},
                                      {"calls", time.num_calls},
                                      {"seconds", time.seconds},
                                      {"processor_seconds", time.processor_seconds},
                                      {"bytes", time.bytes},
                                      {"flops", time.flops},
                                      {"floor_seconds", floor_of(time, limits)}});
  }
  print_line(json::to_text(json::Object{{"step", step.name},
                                        {"seconds", step.seconds},
                                        {"tokens_per_second", step.rows / step.seconds},
                                        {"bytes", step.bytes},
                                        {"flops", step.flops},
                                        {"floor_seconds", step.floor_seconds()},
                                        {"bound", step.bound()},
                                        {"operations", std::move(operations)}}));
}

void print_operations(const OpTimes& times, const cpu::MachineLimits& limits) {
  std::vector<std::pair<std::string, OpTime>> sorted(times.begin(), times.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double total = std::accumulate(sorted.begin(), sorted.end(), 0.0, [](double sum, const auto& entry) { return sum + entry.second.seconds; });
  print_line(fmt::format("  {:<46} {:>5} {:>10} {:>10} {:>7} {:>8} {:>9} {:>8}", "operation", "calls", "us each", "us threads", "% time", "GB/s", "GFLOP/s", "% floor"));
  for (std::size_t i = 0; i < std::min(sorted.size(), kWorthALine); ++i) {
    const auto& [name, time] = sorted[i];
    const auto calls = static_cast<double>(time.num_calls);
    const std::string of_floor = time.bytes > 0 ? fmt::format("{:8.1f}", kPercent * floor_of(time, limits) / time.seconds) : "       -";
    print_line(fmt::format("  {:<46} {:5} {:10.2f} {:10.2f} {:7.1f} {:8.2f} {:9.1f} {}", name, time.num_calls, 1e6 * time.seconds / calls, 1e6 * time.processor_seconds / calls,
                           kPercent * time.seconds / total, time.bytes / time.seconds / kGiga, time.flops / time.seconds / kGiga, of_floor));
  }
}

Result<Bench> open(const Flags& flags) {
  const auto directory = find_model(flags.model.model);
  if (!directory) {
    return std::unexpected(directory.error());
  }
  auto device = open_device(flags.model);
  if (!device) {
    return std::unexpected(device.error());
  }
  auto checkpoint = weights::Checkpoint::open(*directory);
  if (!checkpoint) {
    return std::unexpected(checkpoint.error());
  }
  const auto config = model::load_config(*directory);
  if (!config) {
    return std::unexpected(config.error());
  }
  const std::int32_t most_requests = *std::ranges::max_element(flags.requests);
  const std::int32_t rows_each = 1 + flags.num_drafts;
  const std::int32_t most_rows = std::max(flags.rows, most_requests * rows_each);
  const std::int32_t blocks_each = (std::max(flags.context + rows_each, flags.rows) + kBlockPositions - 1) / kBlockPositions;
  if (flags.num_drafts > 0 && config->num_nextn_predict_layers == 0) {
    return fail(ErrorKind::invalid_argument, "--drafts: the model has no drafter");
  }
  std::vector<std::int32_t> engram_class(static_cast<std::size_t>(config->vocab_size));
  std::iota(engram_class.begin(), engram_class.end(), 0);  // which class a token has changes no time
  const cpu::MachineLimits limits = limits_of(**device);
  auto timed = std::make_unique<TimedDevice>(**device);
  const model::CacheSizes sizes{.num_blocks = most_requests * blocks_each + 1,
                                .num_slots = most_requests + 1,
                                .max_rows = most_rows,
                                .max_chunks = most_requests,
                                .max_logit_rows = most_requests * rows_each,
                                .max_blocks_per_request = blocks_each,
                                .max_drafts = flags.num_drafts};
  auto model = model::DeepseekV41::create(*timed, *checkpoint, *config, engram_class, sizes,
                                          engram_tables(flags.model, *config, sizes, timed->info()));
  if (!model) {
    return std::unexpected(model.error());
  }
  return Bench{.device = std::move(*device),
               .timed = std::move(timed),
               .model = std::move(*model),
               .limits = limits,
               .requests = Requests(most_requests, blocks_each, most_rows + most_requests + 8, config->vocab_size)};
}

int bench_steps(What what, const Flags& flags) {
  auto opened = open(flags);
  if (!opened) {
    return report(opened.error());
  }
  Bench& bench = *opened;
  const DeviceInfo& info = bench.device->info();
  const cpu::MachineLimits& limits = bench.limits;
  if (flags.gives_json) {
    print_line(json::to_text(json::Object{{"device", info.description},
                                          {"threads", info.num_threads},
                                          {"bytes_per_second", limits.bytes_per_second},
                                          {"flops_per_second", limits.flops_per_second},
                                          {"quantised_flops_per_second", limits.quantised_flops_per_second}}));
  } else {
    const bool is_cpu = info.reads_host_memory;
    print_line(fmt::format("{}{}; measured: {:.1f} GB/s {}, {:.1f} GFLOP/s {}, {:.1f} GFLOP/s of the best product unit", info.description,
                           is_cpu ? fmt::format(", {} threads", info.num_threads) : "", limits.bytes_per_second / kGiga,
                           is_cpu ? "read" : "copied", limits.flops_per_second / kGiga, is_cpu ? "fp32" : "bf16",
                           limits.quantised_flops_per_second / kGiga));
  }
  const auto measure = [&](const std::string& name, double rows, const auto& run) {
    const auto [seconds, times] = bench.median(flags.repeats, what == What::ops, run);
    const StepFigures step = figures_of(name, rows, seconds, times, limits);
    if (flags.gives_json) {
      print_json(step, times, limits);
      return;
    }
    print_step(step);
    if (what == What::ops) {
      print_operations(times, limits);
    }
  };
  if (what != What::decode) {
    const std::vector<model::Chunk> chunks = {bench.requests.chunk(0, 0, flags.rows, 1)};
    measure(fmt::format("prefill {} rows", flags.rows), flags.rows, [&] { (void)bench.model->forward(chunks); });
  }
  for (const std::int32_t count : flags.requests) {
    if (what == What::prefill) {
      break;
    }
    const std::int32_t rows_each = 1 + flags.num_drafts;
    std::vector<model::Chunk> chunks;
    std::vector<model::DraftStart> starts;
    const std::vector<model::RowDraw> draws(static_cast<std::size_t>(count * rows_each));  // a token of each row, as the engine takes it
    for (std::int32_t r = 0; r < count; ++r) {
      chunks.push_back(bench.requests.chunk(r, flags.context, rows_each, rows_each));
      starts.push_back({.slot = {r + 1}, .position = flags.context, .anchor = chunks.back().tokens.front()});
    }
    const std::string rows = flags.num_drafts > 0 ? fmt::format(" x {}", rows_each) : "";
    measure(fmt::format("decode {}{} at {}", count, rows, flags.context), count * rows_each, [&] {
      bench.model->launch(chunks);
      bench.model->draw(draws);
      (void)bench.model->wait();
    });
    if (flags.num_drafts > 0) {
      model::PickDrafts pick = [&](std::int32_t index, std::span<const float>, std::span<TokenId> tokens) {
        std::ranges::fill(tokens, bench.requests.tokens[static_cast<std::size_t>(index)]);
      };
      measure(fmt::format("draft pass of {}", count), count * flags.num_drafts, [&] { (void)bench.model->draft(starts, flags.num_drafts, pick); });
    }
  }
  return kDone;
}

}  // namespace

void add_bench_steps(CLI::App& bench, Action& action) {
  const auto add = [&](const char* name, const char* help, What what) {
    CLI::App* const command = bench.add_subcommand(name, help);
    command->footer(fmt::format("Example:\n  deepinfer bench {} --model /tmp/dummy --threads 2", name));
    const auto flags = std::make_shared<Flags>();
    command->add_option("--context", flags->context, "positions before a decoded token")->check(CLI::Range(8, 1 << 20))->capture_default_str();
    command->add_option("--requests", flags->requests, "numbers of requests that decode together")->check(CLI::Range(1, 4096))->delimiter(',')->capture_default_str();
    command->add_option("--drafts", flags->num_drafts, "drafts that each request verifies; its draft pass is measured too")
        ->check(CLI::Range(0, 64))
        ->capture_default_str();
    command->add_option("--rows", flags->rows, "prompt tokens of a prefill step")->check(CLI::Range(1, 1 << 16))->capture_default_str();
    command->add_option("--repeats", flags->repeats, "steps of which the median counts")->check(CLI::Range(1, 1000))->capture_default_str();
    command->add_flag("--json", flags->gives_json, "one JSON object per step, with its operations");
    add_device_flags(*command, flags->model);
    command->callback([flags, what, &action] { action = [flags, what] { return bench_steps(what, *flags); }; });
  };
  add("ops", "times every operation of a prefill step and of decode steps beside its floor", What::ops);
  add("decode", "times decode steps beside the bytes and FLOPs they need", What::decode);
  add("prefill", "times a prefill step beside the bytes and FLOPs it needs", What::prefill);
}

}  // namespace deepinfer::apps
