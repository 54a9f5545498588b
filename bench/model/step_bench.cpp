// Usage: step_bench DIR cpu|cuda [CONTEXT] [REQUESTS] [device|host]
// With REQUESTS above 0 only decode steps of so many requests; the last word says where the Engram tables lie.
// Time of single forwards of a checkpoint: decode steps of 1, 8, 64 and 256 requests at CONTEXT positions each, and a prefill chunk, with the
// bytes and FLOPs they need (step_cost.h) and the ratio to the floor of a memory bandwidth measured by copies in the same run. Median of many.
// Distinct experts per step are assumed as under uniform routing. Caches hold what earlier steps left there; values do not change the time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/copy_bandwidth.h"
#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "model/deepseek_v41/model.h"
#include "step_cost.h"

namespace deepinfer::bench {
namespace {

constexpr std::int32_t kMostRequests = 256;
constexpr std::int32_t kPrefillRows = 2048;

double median_seconds(int repeats, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repeats / 2)];
}

/// Requests with their blocks, so that every step can be made from a number of rows.
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
      tokens.push_back({i * 7919 % (vocab - 64) + 3});
    }
  }

  [[nodiscard]] model::Chunk chunk(std::int32_t request, std::int32_t first, std::int32_t rows, std::int32_t logits) const {
    const std::span<const TokenId> all = tokens;
    const auto start = static_cast<std::size_t>(request);
    return {.slot = {request + 1},
            .blocks = blocks[static_cast<std::size_t>(request)],
            .first_position = first,
            .tokens = all.subspan(start, static_cast<std::size_t>(rows)),
            .previous = all.subspan(start, static_cast<std::size_t>(std::min(first, 8))),
            .num_logit_rows = logits};
  }
};

void report(const std::string& what, double seconds, const Cost& cost, double bandwidth) {
  const double floor = cost.bytes / bandwidth;
  std::printf("%-28s %9.3f ms  %8.2f GB  %9.2f GFLOP  %7.1f GB/s  %7.2f TFLOP/s  %5.1f %% of the memory floor\n", what.c_str(), 1e3 * seconds,
              cost.bytes / 1e9, cost.flops / 1e9, cost.bytes / seconds / 1e9, cost.flops / seconds / 1e12, 100 * floor / seconds);
  std::fflush(stdout);
}

int main_with(const std::string& directory, const std::string& name, std::int32_t context, std::int32_t only_requests,
              model::EngramTables engram_tables) {
  auto device = name == "cuda" ? cuda::make_device({}) : Result<std::unique_ptr<Device>>(cpu::make_device({}));
  auto checkpoint = weights::Checkpoint::open(directory);
  const auto config = model::load_config(directory);
  if (!device || !checkpoint || !config) {
    std::fprintf(stderr, "%s\n", (!device ? device.error() : !checkpoint ? checkpoint.error() : config.error()).message.c_str());
    return 1;
  }
  const std::int32_t blocks_each = std::max(context + kMostRequests, kPrefillRows) / 128 + 1;
  std::vector<std::int32_t> engram_class(static_cast<std::size_t>(config->vocab_size));
  for (std::size_t i = 0; i < engram_class.size(); ++i) {
    engram_class[i] = static_cast<std::int32_t>(i);
  }
  const auto begin = std::chrono::steady_clock::now();
  auto model = model::DeepseekV41::create(**device, *checkpoint, *config, engram_class,
                                          {.num_blocks = kMostRequests * blocks_each + 1,
                                           .num_slots = kMostRequests + 1,
                                           .max_rows = kPrefillRows,
                                           .max_chunks = kMostRequests,
                                           .max_logit_rows = kMostRequests,
                                           .max_blocks_per_request = blocks_each,
                                           .max_drafts = 0},
                                          engram_tables);
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  std::printf("%s: loaded in %.1f s\n", (*device)->info().description.c_str(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  const double bandwidth = copy_bandwidth(**device);
  std::printf("copy bandwidth %.0f GB/s\n", bandwidth / 1e9);
  const Requests requests(kMostRequests, blocks_each, kPrefillRows + kMostRequests, config->vocab_size);
  if (only_requests == 0) {
    const std::vector<model::Chunk> chunks = {requests.chunk(0, 0, kPrefillRows, 1)};
    const double seconds = median_seconds(5, [&] { (void)(*model)->forward(chunks); });
    report("prefill " + std::to_string(kPrefillRows), seconds, step_cost(*config, {kPrefillRows, 1, kPrefillRows / 2.0, 1}), bandwidth);
  }
  for (const std::int32_t count : only_requests == 0 ? std::vector<std::int32_t>{1, 8, 64, 256} : std::vector<std::int32_t>{only_requests}) {
    std::vector<model::Chunk> chunks;
    for (std::int32_t r = 0; r < count; ++r) {
      chunks.push_back(requests.chunk(r, context, 1, 1));
    }
    const double seconds = median_seconds(21, [&] { (void)(*model)->forward(chunks); });
    report("decode " + std::to_string(count) + " at " + std::to_string(context), seconds,
           step_cost(*config, {static_cast<double>(count), static_cast<double>(count), static_cast<double>(context), static_cast<double>(count)}),
           bandwidth);
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: step_bench DIR cpu|cuda [CONTEXT] [REQUESTS] [device|host]\n");
    return 2;
  }
  using deepinfer::model::EngramTables;
  const bool is_on_host = count > 5 && std::string_view(arguments[5]) == "host";
  return deepinfer::bench::main_with(arguments[1], arguments[2], count > 3 ? std::atoi(arguments[3]) : 1024,
                                     count > 4 ? std::atoi(arguments[4]) : 0,
                                     is_on_host ? EngramTables::in_host_memory : EngramTables::in_memory);
}
