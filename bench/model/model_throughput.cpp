// Usage: model_throughput [MODEL_DIR] [THREADS]
// One run: load time, resident memory, prefill and decode rates at 1, 16 and 32 requests, without drafts, each beside the bytes and FLOPs
// it must spend and the read bandwidth of this machine measured in the same run. Medians of several rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "engine/load.h"
#include "step_cost.h"

namespace deepinfer::bench {
namespace {

using Seconds = std::chrono::duration<double>;

double seconds_since(std::chrono::steady_clock::time_point begin) { return Seconds(std::chrono::steady_clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Bytes of a line like "VmRSS:   123 kB" of this process.
double status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) {
      return 1024.0 * std::atof(line.c_str() + key.size() + 1);
    }
  }
  return 0;
}

/// Bytes per second that `num_threads` threads read together from memory far larger than the caches.
double read_bandwidth(std::int32_t num_threads) {
  constexpr std::size_t kWords = std::size_t{1} << 25;  // 256 MiB per thread
  std::vector<std::vector<std::uint64_t>> memory(static_cast<std::size_t>(num_threads), std::vector<std::uint64_t>(kWords, 1));
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    std::vector<std::uint64_t> sums(memory.size());
    const auto begin = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < memory.size(); ++t) {
        threads.emplace_back([&, t] { sums[t] = std::accumulate(memory[t].begin(), memory[t].end(), std::uint64_t{0}); });
      }
    }
    const double total = static_cast<double>(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0})) * sizeof(std::uint64_t);
    rates.push_back(total / seconds_since(begin));
  }
  return median(rates);
}

struct Rates {
  double prefill = 0;  // prompt tokens per second
  double decode = 0;   // generated tokens per second, all requests together
};

/// `num_requests` prompts of `prompt_tokens` at once; then every request decodes `decode_tokens`.
Rates run(engine::LoadedEngine& loaded, std::int32_t num_requests, std::int32_t prompt_tokens, std::int32_t decode_tokens) {
  std::int64_t num_first = 0;
  std::int64_t num_tokens = 0;
  for (std::int32_t r = 0; r < num_requests; ++r) {
    engine::GenerationRequest request;
    for (std::int32_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back({(i * 7919 + r * 104729) % (loaded.config.vocab_size - 64) + 3});
    }
    request.sampling.temperature = 0;
    request.max_tokens = decode_tokens + 1;
    request.ignore_eos = true;
    const auto id = loaded.engine->submit(std::move(request), [&, is_first = true](engine::Output&& output) mutable {
      num_tokens += static_cast<std::int64_t>(output.tokens.size());
      num_first += is_first && !output.tokens.empty() ? 1 : 0;
      is_first = is_first && output.tokens.empty();
    });
    if (!id) {
      std::fprintf(stderr, "%s\n", id.error().message.c_str());
      std::exit(1);
    }
  }
  auto begin = std::chrono::steady_clock::now();
  while (num_first < num_requests) {
    loaded.engine->step();
  }
  Rates out;
  out.prefill = num_requests * prompt_tokens / seconds_since(begin);
  const std::int64_t before = num_tokens;
  begin = std::chrono::steady_clock::now();
  while (loaded.engine->step()) {
  }
  out.decode = static_cast<double>(num_tokens - before) / seconds_since(begin);
  return out;
}

void report(const char* what, double rate, const Cost& cost, double rows, double bandwidth) {
  const double seconds = rows / rate;
  std::printf("%-22s %9.0f tokens/s  %8.3f ms a step  %7.2f MB  %8.2f MFLOP  %6.2f GB/s (%4.1f %% of read)  %6.2f GFLOP/s\n", what, rate,
              1e3 * seconds, cost.bytes / 1e6, cost.flops / 1e6, cost.bytes / seconds / 1e9, 100 * cost.bytes / seconds / bandwidth,
              cost.flops / seconds / 1e9);
}

int main_with(const std::string& directory, std::int32_t num_threads) {
  constexpr int kRounds = 5;
  const std::unique_ptr<Device> device = cpu::make_device({.num_threads = num_threads});
  const auto begin = std::chrono::steady_clock::now();
  auto loaded = engine::load_engine(
      directory, {.max_requests = 32, .max_batched_tokens = 512, .prefix_cache = false, .speculation = engine::SpeculationMode::off},
      *device);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 1;
  }
  const double load_seconds = seconds_since(begin);
  const double loaded_bytes = status_bytes("VmRSS:");
  std::printf("%s, %d threads\nload %.3f s, resident after load %.1f MB\n", device->info().description.c_str(), device->info().num_threads,
              load_seconds, loaded_bytes / 1e6);
  std::vector<double> prefill1, decode1, prefill16, decode16, decode32;
  for (int round = 0; round < kRounds; ++round) {
    const Rates one = run(*loaded, 1, 1024, 256);
    const Rates sixteen = run(*loaded, 16, 256, 64);
    prefill1.push_back(one.prefill);
    decode1.push_back(one.decode);
    prefill16.push_back(sixteen.prefill);
    decode16.push_back(sixteen.decode);
    decode32.push_back(run(*loaded, 32, 128, 64).decode);
  }
  std::printf("resident after the runs %.1f MB, peak %.1f MB\n", status_bytes("VmRSS:") / 1e6, status_bytes("VmHWM:") / 1e6);
  const double bandwidth = read_bandwidth(device->info().num_threads);
  std::printf("measured read bandwidth %.2f GB/s\n", bandwidth / 1e9);
  const model::Config& config = loaded->config;
  report("prefill, 1 request", median(prefill1), step_cost(config, {.rows = 512, .requests = 1, .context = 512, .logit_rows = 0}), 512,
         bandwidth);
  report("prefill, 16 requests", median(prefill16), step_cost(config, {.rows = 512, .requests = 2, .context = 128, .logit_rows = 2}), 512,
         bandwidth);
  report("decode, 1 request", median(decode1), step_cost(config, {.rows = 1, .requests = 1, .context = 1152, .logit_rows = 1}), 1,
         bandwidth);
  report("decode, 16 requests", median(decode16), step_cost(config, {.rows = 16, .requests = 16, .context = 288, .logit_rows = 16}), 16,
         bandwidth);
  report("decode, 32 requests", median(decode32), step_cost(config, {.rows = 32, .requests = 32, .context = 160, .logit_rows = 32}), 32,
         bandwidth);
  return 0;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int count, char** arguments) {
  const std::string directory = count > 1 ? arguments[1] : "models/nano";
  return deepinfer::bench::main_with(directory, count > 2 ? std::atoi(arguments[2]) : 0);
}
