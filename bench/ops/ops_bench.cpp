// Usage: ops_bench [THREADS] [FILTER] [UNIT..]
// Every operation at nano and real sizes for several numbers of rows: time, bytes and FLOPs it needs, GB/s, GFLOP/s, and how close it comes
// to the floor max(bytes / bandwidth, FLOPs / peak), both measured in the same run (docs/spec/kernels.md section 2). More than 100 % means that
// the operands came from caches. Best of many short batches; one thread is measured in processor time, so that on a machine that others use,
// waiting for a core does not count. FILTER: a part of "name shape rows ". UNIT: vector, pairs, matrix, what multiplies with weights; several
// are measured in turn.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/machine_probe.h"
#include "backends/op_cases/builders.h"

namespace deepinfer::bench {
namespace {

using test::OpCase;

constexpr double kBatchSeconds = 0.001;
constexpr double kOpSeconds = 0.15;
constexpr int kFewestBatches = 5;

/// Of this thread, or of the world.
double seconds_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// One way of computing: a device and what is measured on it.
struct Way {
  Device& device;
  test::PreparedOp op;
  double seconds = 1e9;  ///< of one run: best mean of many batches
};

/// All ways in turn, batch by batch.
void measure(std::vector<Way>& ways) {
  const clockid_t clock = ways.front().device.info().num_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const auto run = [](Way& way) { way.op.run(way.device.ops(), way.op.memory->stream()); };
  std::ranges::for_each(ways, run);  // takes memory
  const double begin = seconds_of(clock);
  for (int batch = 0; batch < kFewestBatches || seconds_of(clock) - begin < kOpSeconds * static_cast<double>(ways.size()); ++batch) {
    for (Way& way : ways) {
      const double start = seconds_of(clock);
      int repeats = 0;
      do {
        run(way);
        ++repeats;
      } while (seconds_of(clock) - start < kBatchSeconds);
      way.seconds = std::min(way.seconds, (seconds_of(clock) - start) / repeats);
    }
  }
}

/// The operations of one forward of the nano model (models/nano/config.json).
std::vector<OpCase> nano_cases() {
  using namespace test;
  constexpr StreamShape kStreams = {4, 256};
  constexpr HeadShape kHeads = {8, 64, 16};
  constexpr HeadShape kIndex = {8, 32, 16};
  return {embed_case(kStreams),
          mix_case(kStreams),
          collapse_norm_case(kStreams),
          expand_case(kStreams),
          linear_q8_case({WeightFormat::fp8, 1, 128, 256}),
          rms_norm_case(128, 128),
          linear_q8_case({WeightFormat::fp8, 1, 512, 128}),
          linear_q8_case({WeightFormat::fp8, 1, 64, 256}),
          rotate_case(kHeads),
          window_rows_case({1, 64, 16}),
          linear_bf16_case(64, 256, LinearResult::f32),
          compress_pairs_case({1, 64, 16}),
          store_index_keys_case({1, 32, 16}),
          store_compressed_case({1, 64, 16}),
          index_select_case({.head = kIndex, .ratio = 1, .top_k = 64, .first_position = 1000}),
          index_select_case({.head = kIndex,
                             .ratio = 1,
                             .top_k = 64,
                             .first_position = 1000,
                             .mode = CandidateMode::restrict,
                             .block_size = 8,
                             .top_blocks = 32}),
          attend_case({.head = kHeads, .window = 32}),
          attend_case({.head = kHeads, .window = 32, .top_k = 64, .ratio = 1, .first_position = 1000}),
          linear_q8_case({WeightFormat::fp8, 4, 64, 128}),
          linear_q8_case({WeightFormat::fp8, 1, 256, 256}),
          route_case({256, 64, 24, 6}),
          moe_case({256, 64, 24, 6}),
          engram_gather_case({6, 32}),
          linear_q8_case({WeightFormat::fp8, 1, 1280, 192}),
          engram_gate_case(kStreams),
          linear_bf16_case(8192, 256, LinearResult::f32),
          linear_bf16_case(8192, 256, LinearResult::f32_from_rows)};
}

/// The heaviest operations at the sizes of the released model; twelve experts stand for 384.
std::vector<OpCase> real_cases() {
  using namespace test;
  constexpr StreamShape kStreams = {4, 5120};
  return {mix_case(kStreams),
          collapse_norm_case(kStreams),
          expand_case(kStreams),
          linear_q8_case({WeightFormat::fp8, 1, 1280, 5120}),
          linear_q8_case({WeightFormat::fp8, 1, 32768, 1280}),
          linear_q8_case({WeightFormat::fp8, 8, 1024, 4096}),
          linear_q8_case({WeightFormat::fp8, 1, 5120, 8192}),
          attend_case({.head = {64, 512, 64}, .window = 128, .top_k = 512, .ratio = 1, .first_position = 1000}),
          index_select_case({.head = {32, 128, 64}, .ratio = 1, .top_k = 512, .first_position = 1900}),
          route_case({5120, 2304, 384, 6}),
          moe_case({5120, 2304, 12, 6}),
          linear_bf16_case(16384, 5120, LinearResult::f32),
          linear_bf16_case(16384, 5120, LinearResult::f32_from_rows)};
}

void print_cases(const std::vector<OpCase>& cases, const std::vector<std::int32_t>& row_counts, const std::string& filter,
                 const std::vector<std::unique_ptr<Device>>& devices, const cpu::MachineLimits& limits) {
  for (const OpCase& op_case : cases) {
    const std::string name = op_case.op + " " + op_case.shape;
    for (const std::int32_t count : row_counts) {
      if ((name + " " + std::to_string(count) + " ").find(filter) == std::string::npos) {
        continue;
      }
      std::vector<Way> ways;
      for (const std::unique_ptr<Device>& device : devices) {
        ways.push_back({*device, op_case.prepare(*device, test::first_rows(count))});
      }
      measure(ways);
      const bool on_unit = op_case.op.starts_with("linear_") || op_case.op == "moe" || op_case.op == "route";
      const double peak = on_unit ? limits.quantised_flops_per_second : limits.flops_per_second;
      const test::PreparedOp& op = ways.front().op;
      const double floor = std::max(op.bytes / limits.bytes_per_second, op.flops / peak);
      std::printf("%-60s %5d %10.1f %10.1f", name.c_str(), count, op.bytes * 1e-3, op.flops * 1e-3);
      for (const Way& way : ways) {
        std::printf(" | %10.2f %8.1f %8.1f %7.1f", way.seconds * 1e6, op.bytes / way.seconds * 1e-9, op.flops / way.seconds * 1e-9,
                    100 * floor / way.seconds);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

/// With the unit of that name, or the best one below it; any other name gives the best one.
std::unique_ptr<Device> make_device(std::int32_t num_threads, std::string_view unit_name) {
  cpu::CpuOptions options = {.num_threads = num_threads};
  for (const cpu::ProductUnit unit : {cpu::ProductUnit::vector, cpu::ProductUnit::pairs}) {
    options.best_unit = unit_name == cpu::name_of(unit) ? unit : options.best_unit;
  }
  return cpu::make_device(options);
}

int run(int argc, char** argv) {
  const std::int32_t num_threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const std::string filter = argc > 2 ? argv[2] : "";
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 3; i < std::max(argc, 4); ++i) {
    devices.push_back(make_device(num_threads, i < argc ? argv[i] : ""));
  }
  const cpu::MachineLimits limits = cpu::probe_machine(devices.front()->info().num_threads);
  std::printf("%d threads: %.1f GB/s, %.1f GFLOP/s fp32, %.1f GFLOP/s of the best product unit\n%-60s %5s %10s %10s", devices.front()->info().num_threads,
              limits.bytes_per_second * 1e-9, limits.flops_per_second * 1e-9, limits.quantised_flops_per_second * 1e-9, "operation", "rows", "KB", "KFLOP");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::printf(" | %10s %8s %8s %7s", "us", "GB/s", "GFLOP/s", "% floor");
  }
  std::printf("\n");
  for (const std::unique_ptr<Device>& device : devices) {
    std::printf("%s\n", device->info().description.c_str());
  }
  print_cases(nano_cases(), {1, 6, 32, 512}, filter, devices, limits);
  print_cases(real_cases(), {1, 4, 6, 16, 64, 512}, filter, devices, limits);
  return 0;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int argc, char** argv) { return deepinfer::bench::run(argc, argv); }
