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
#include "backends/cpu/machine_probe.h"
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
  std::int32_t repeats = 9;
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

  /// Seconds of the median of several steps, and its operations.
  std::pair<double, OpTimes> step(const std::vector<model::Chunk>& chunks, std::int32_t repeats) {
    std::vector<std::pair<double, OpTimes>> steps;
    for (std::int32_t i = 0; i <= repeats; ++i) {
      (void)timed->take_times();
      const auto begin = std::chrono::steady_clock::now();
      (void)model->forward(chunks);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      steps.emplace_back(seconds, timed->take_times());
    }
    steps.erase(steps.begin());  // takes memory and brings weights into reach
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::ranges::nth_element(steps, middle, {}, [](const auto& step) { return step.first; });
    return *middle;
  }
};

/// Seconds that bytes and FLOPs of an operation take at least.
double floor_of(const OpTime& time, const cpu::MachineLimits& limits) {
  const double peak = time.is_quantised_product ? limits.matrix_flops_per_second : limits.flops_per_second;
  return std::max(time.bytes / limits.bytes_per_second, time.flops / peak);
}

/// The whole step: its bytes, or its FLOPs at the peaks of the units that do them.
void print_step(const std::string& name, double rows, double seconds, const OpTimes& times, const cpu::MachineLimits& limits) {
  double bytes = 0;
  double flops = 0;
  double compute_seconds = 0;
  for (const auto& [operation, time] : times) {
    bytes += time.bytes;
    flops += time.flops;
    compute_seconds += time.flops / (time.is_quantised_product ? limits.matrix_flops_per_second : limits.flops_per_second);
  }
  const double read_seconds = bytes / limits.bytes_per_second;
  print_line(fmt::format("{:<24} {:9.3f} ms  {:9.1f} tokens/s  {:9.2f} MB at {:6.2f} GB/s  {:10.2f} GFLOP at {:7.1f} GFLOP/s  {:5.1f} % of the floor ({})",
                         name, 1e3 * seconds, rows / seconds, bytes / 1e6, bytes / seconds / kGiga, flops / kGiga, flops / seconds / kGiga,
                         kPercent * std::max(read_seconds, compute_seconds) / seconds, read_seconds > compute_seconds ? "bytes" : "FLOPs"));
}

void print_operations(const OpTimes& times, const cpu::MachineLimits& limits) {
  std::vector<std::pair<std::string, OpTime>> sorted(times.begin(), times.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const double total = std::accumulate(sorted.begin(), sorted.end(), 0.0, [](double sum, const auto& entry) { return sum + entry.second.seconds; });
  print_line(fmt::format("  {:<46} {:>5} {:>10} {:>7} {:>8} {:>9} {:>8}", "operation", "calls", "us each", "% time", "GB/s", "GFLOP/s", "% floor"));
  for (std::size_t i = 0; i < std::min(sorted.size(), kWorthALine); ++i) {
    const auto& [name, time] = sorted[i];
    const std::string of_floor = time.bytes > 0 ? fmt::format("{:8.1f}", kPercent * floor_of(time, limits) / time.seconds) : "       -";
    print_line(fmt::format("  {:<46} {:5} {:10.2f} {:7.1f} {:8.2f} {:9.1f} {}", name, time.num_calls, 1e6 * time.seconds / static_cast<double>(time.num_calls),
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
  const std::int32_t most_rows = std::max(flags.rows, most_requests);
  const std::int32_t blocks_each = (std::max(flags.context + 1, flags.rows) + kBlockPositions - 1) / kBlockPositions;
  std::vector<std::int32_t> engram_class(static_cast<std::size_t>(config->vocab_size));
  std::iota(engram_class.begin(), engram_class.end(), 0);  // which class a token has changes no time
  auto timed = std::make_unique<TimedDevice>(**device);
  auto model = model::DeepseekV41::create(*timed, *checkpoint, *config, engram_class,
                                          {.num_blocks = most_requests * blocks_each + 1,
                                           .num_slots = most_requests + 1,
                                           .max_rows = most_rows,
                                           .max_chunks = most_requests,
                                           .max_logit_rows = most_requests,
                                           .max_blocks_per_request = blocks_each,
                                           .max_drafts = 0});
  if (!model) {
    return std::unexpected(model.error());
  }
  const cpu::MachineLimits limits = cpu::probe_machine(std::max(1, (*device)->info().num_threads));
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
  print_line(fmt::format("{}, {} threads; measured: {:.1f} GB/s read, {:.1f} GFLOP/s fp32, {:.1f} GFLOP/s for quantised products", info.description,
                         info.num_threads, bench.limits.bytes_per_second / kGiga, bench.limits.flops_per_second / kGiga,
                         bench.limits.matrix_flops_per_second / kGiga));
  const auto run = [&](const std::string& name, const std::vector<model::Chunk>& chunks, double rows) {
    const auto [seconds, times] = bench.step(chunks, flags.repeats);
    print_step(name, rows, seconds, times, bench.limits);
    if (what == What::ops) {
      print_operations(times, bench.limits);
    }
  };
  if (what != What::decode) {
    run(fmt::format("prefill {} rows", flags.rows), {bench.requests.chunk(0, 0, flags.rows, 1)}, flags.rows);
  }
  for (const std::int32_t count : flags.requests) {
    if (what == What::prefill) {
      break;
    }
    std::vector<model::Chunk> chunks;
    for (std::int32_t r = 0; r < count; ++r) {
      chunks.push_back(bench.requests.chunk(r, flags.context, 1, 1));
    }
    run(fmt::format("decode {} at {}", count, flags.context), chunks, count);
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
    command->add_option("--rows", flags->rows, "prompt tokens of a prefill step")->check(CLI::Range(1, 1 << 16))->capture_default_str();
    command->add_option("--repeats", flags->repeats, "steps of which the median counts")->check(CLI::Range(1, 1000))->capture_default_str();
    add_device_flags(*command, flags->model);
    command->callback([flags, what, &action] { action = [flags, what] { return bench_steps(what, *flags); }; });
  };
  add("ops", "times every operation of a prefill step and of decode steps beside its floor", What::ops);
  add("decode", "times decode steps beside the bytes and FLOPs they need", What::decode);
  add("prefill", "times a prefill step beside the bytes and FLOPs it needs", What::prefill);
}

}  // namespace deepinfer::apps
