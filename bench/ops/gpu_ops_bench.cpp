// Usage: gpu_ops_bench [FILTER] [ROWS]
// Operations at the sizes of the released model on a GPU, for several numbers of rows, and index selection in a prefill and at long contexts:
// time of one operation inside a recorded graph with cold caches, bytes and FLOPs it needs, and the ratio to the floor max(bytes /
// bandwidth, FLOPs / peak) with a bandwidth measured by copies in the same run. 64 experts stand for 384.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "backends/copy_bandwidth.h"
#include "backends/cuda/cuda_device.h"
#include "backends/op_cases/builders.h"

namespace deepinfer::bench {
namespace {

using test::OpMemory;

constexpr int kRunsInGraph = 20;
constexpr int kBatches = 9;
constexpr double kBf16FlopsPerSecond = 790e12;  // of a large product measured on an H200

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Seconds of one run of `work` among many in a graph.
double seconds_of(Stream& stream, const std::function<void()>& work) {
  work();  // takes memory
  stream.synchronize();
  stream.begin_recording();
  for (int i = 0; i < kRunsInGraph; ++i) {
    work();
  }
  const std::unique_ptr<Recording> recording = stream.end_recording();
  std::vector<double> seconds;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = std::chrono::steady_clock::now();
    stream.replay(*recording);
    stream.synchronize();
    seconds.push_back(seconds_since(begin) / kRunsInGraph);
  }
  return median(std::move(seconds));
}

/// The same with a copy before each run that takes the caches, less the time of the copies alone.
double cold_seconds_of(Device& device, Stream& stream, const std::function<void()>& work) {
  constexpr std::size_t kBytes = std::size_t{1} << 27;
  const Buffer from = device.allocate(kBytes);
  const Buffer to = device.allocate(kBytes);
  const auto evict = [&] { stream.copy(to.data(), from.data(), kBytes); };
  const double both = seconds_of(stream, [&] {
    evict();
    work();
  });
  return both - seconds_of(stream, evict);
}

void report(const std::string& name, std::int32_t rows, double seconds, double bytes, double flops, double bandwidth) {
  const double floor = std::max(bytes / bandwidth, flops / kBf16FlopsPerSecond);
  std::printf("%-60s %5d rows %9.2f us  %9.2f MB  %9.3f GFLOP  %8.1f GB/s  %8.2f TFLOP/s  floor %8.2f us  %6.1f %%\n", name.c_str(), rows,
              seconds * 1e6, bytes / 1e6, flops / 1e9, bytes / seconds / 1e9, flops / seconds / 1e12, floor * 1e6, 100 * floor / seconds);
  std::fflush(stdout);
}

/// The caches of `rows` requests with `context` positions each: one cache of random codes with the scale 1, copied for every request.
struct LongContext {
  static constexpr std::int32_t kHeads = 32, kDim = 128, kRope = 64, kTopK = 512, kTopBlocks = 2048, kBlockSize = 8;

  OpMemory memory;
  Buffer keys;
  IndexSelectParams params;

  LongContext(Device& device, std::int32_t rows, std::int32_t context, CandidateMode mode) : memory(device) {
    const std::int32_t blocks = context / kBlockPositions;
    const std::size_t block_bytes = static_cast<std::size_t>(kBlockPositions) * static_cast<std::size_t>(index_key_bytes(kDim));
    std::vector<std::uint8_t> block(block_bytes, 127);
    test::RowRandom random = test::row_random(1, 0);
    keys = device.allocate(block_bytes * static_cast<std::size_t>(blocks) * static_cast<std::size_t>(rows));
    auto* data = reinterpret_cast<std::uint8_t*>(keys.data());
    for (std::int32_t b = 0; b < blocks * rows; ++b) {
      if (b < 64) {
        std::generate_n(block.begin(), kBlockPositions * kDim / 2, [&] { return static_cast<std::uint8_t>(random()); });
      }
      memory.stream().copy(data + block_bytes * static_cast<std::size_t>(b), block.data(), block_bytes);
      memory.stream().synchronize();
    }
    const std::vector<std::int32_t> ids = test::first_rows(rows);
    std::vector<std::int32_t> candidates;
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t i = 0; i < kTopBlocks; ++i) {
        candidates.push_back(static_cast<std::int32_t>(std::int64_t{i} * (context / kBlockSize) / kTopBlocks));
      }
    }
    const auto positions = std::vector<std::int32_t>(static_cast<std::size_t>(rows), context - 1);
    const std::int32_t* each = memory.put(ids);
    params = {.rows = {rows, memory.put(positions), each},
              .chunks = {rows, each, memory.put(std::vector<std::int32_t>(ids.size(), 1)), memory.put(positions), each,
                         memory.put(test::first_rows(blocks * rows)), blocks},
              .heads = kHeads,
              .index_dim = kDim,
              .rope_dim = kRope,
              .ratio = 1,
              .rows_per_block = kBlockPositions,
              .top_k = kTopK,
              .q = memory.put(test::random_bf16(2, ids, kHeads * kDim)),
              .head_weight = memory.put(test::random_bf16(3, ids, kHeads)),
              .rope = test::put_rope(memory, positions, kRope),
              .keys = data,
              .list = memory.room<std::int32_t>(ids.size() * kTopK),
              .candidate_mode = mode,
              .candidate_block_size = kBlockSize,
              .candidate_top_blocks = kTopBlocks,
              .candidates = memory.put(candidates)};
  }
};

/// Every row of one request, as in a prefill from its start.
void time_prefill(Device& device, const std::string& filter, double bandwidth) {
  for (const CandidateMode mode : {CandidateMode::none, CandidateMode::produce}) {
    const std::string name = std::string("index_select 32x128 prefill") + (mode == CandidateMode::produce ? " produce" : "");
    for (const std::int32_t rows : {1024, 8192}) {
      if (name.find(filter) == std::string::npos) {
        continue;
      }
      LongContext work(device, 1, rows, mode);
      const std::vector<std::int32_t> ids = test::first_rows(rows);
      const std::vector<std::int32_t> zeros(ids.size(), 0);
      IndexSelectParams& p = work.params;
      p.rows = {rows, work.memory.put(ids), work.memory.put(zeros)};
      p.q = work.memory.put(test::random_bf16(2, ids, LongContext::kHeads * LongContext::kDim));
      p.head_weight = work.memory.put(test::random_bf16(3, ids, LongContext::kHeads));
      p.rope = test::put_rope(work.memory, ids, LongContext::kRope);
      p.list = work.memory.room<std::int32_t>(ids.size() * LongContext::kTopK);
      p.candidates = work.memory.room<std::int32_t>(ids.size() * LongContext::kTopBlocks);
      const double scored = 0.5 * rows * rows;
      const double seconds = seconds_of(work.memory.stream(), [&] { device.ops().index_select(work.memory.stream(), p); });
      report(name, rows, seconds, rows * (2.0 * LongContext::kHeads * LongContext::kDim + 4.0 * LongContext::kTopK),
             scored * 2 * LongContext::kHeads * LongContext::kDim, bandwidth);
    }
  }
}

void time_long_contexts(Device& device, const std::string& filter, double bandwidth) {
  for (const std::int32_t context : {8192, 131072, 1048576}) {
    for (const auto& [mode, text] :
         {std::pair{CandidateMode::none, ""}, {CandidateMode::produce, " produce"}, {CandidateMode::restrict, " restrict"}}) {
      if (mode == CandidateMode::restrict && context < LongContext::kTopBlocks * LongContext::kBlockSize) {
        continue;
      }
      const std::string name = "index_select 32x128 at " + std::to_string(context) + text;
      for (const std::int32_t rows : {1, 8}) {
        if (name.find(filter) == std::string::npos) {
          continue;
        }
        LongContext work(device, rows, context, mode);
        const double scored =
            static_cast<double>(rows) * (mode == CandidateMode::restrict ? LongContext::kTopBlocks * LongContext::kBlockSize : context);
        const double seconds = seconds_of(work.memory.stream(), [&] { device.ops().index_select(work.memory.stream(), work.params); });
        report(name, rows, seconds, scored * index_key_bytes(LongContext::kDim), scored * 2 * LongContext::kHeads * LongContext::kDim,
               bandwidth);
      }
    }
  }
}

/// Tokens of the released model's vocabulary: of logits as flat as a new model's, of a language model's, and with top-p.
void time_draws(Device& device, const std::string& filter, std::int32_t only_rows, double bandwidth) {
  constexpr std::int32_t kVocab = 129'280;
  struct Case {
    const char* name;
    float deviation;
    double top_p;
  };
  for (const Case& c : {Case{"flat", 0.3F, 1.0}, {"usual", 3.0F, 1.0}, {"top-p", 3.0F, 0.95}}) {
    const std::string name = std::string("draw_tokens ") + c.name;
    for (const std::int32_t rows : only_rows > 0 ? std::vector<std::int32_t>{only_rows} : std::vector<std::int32_t>{1, 8, 64, 256}) {
      if (name.find(filter) == std::string::npos) {
        continue;
      }
      OpMemory memory(device);
      std::vector<TokenDraw> draws;
      for (std::int32_t r = 0; r < rows; ++r) {
        draws.push_back({.temperature = 1.0, .top_p = c.top_p, .seed = 1, .position = r});
      }
      const DrawTokensParams p{.num_rows = rows,
                               .vocab = kVocab,
                               .logits = memory.put(test::random_floats(1, test::first_rows(rows), kVocab, c.deviation)),
                               .row_index = nullptr,
                               .draw = memory.put(draws),
                               .masks = nullptr,
                               .token = memory.room<std::int32_t>(static_cast<std::size_t>(rows))};
      const double seconds = cold_seconds_of(device, memory.stream(), [&] { device.ops().draw_tokens(memory.stream(), p); });
      report(name, rows, seconds, 4.0 * rows * kVocab, 0, bandwidth);
    }
  }
}

int run(const std::string& filter, std::int32_t only_rows) {
  auto device = cuda::make_device({});
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().message.c_str());
    return 1;
  }
  const double bandwidth = copy_bandwidth(**device);
  std::printf("%s, copy bandwidth %.0f GB/s\n", (*device)->info().description.c_str(), bandwidth / 1e9);
  const std::vector<test::OpCase> cases = {
      test::attend_case({.head = {64, 512, 64}, .window = 128, .top_k = 512, .ratio = 1, .first_position = 1000}),
      test::attend_case({.head = {64, 512, 64}, .window = 128, .first_position = 1000}),
      test::mix_case({4, 5120}),
      test::collapse_norm_case({4, 5120}),
      test::expand_case({4, 5120}),
      test::rms_norm_case(1280, 1280),
      test::linear_q8_case({WeightFormat::fp8, 1, 1280, 5120}),
      test::linear_q8_case({WeightFormat::fp8, 1, 32768, 1280}),
      test::linear_q8_case({WeightFormat::fp8, 8, 1024, 4096}),
      test::linear_q8_case({WeightFormat::fp8, 1, 5120, 8192}),
      test::linear_bf16_case(16384, 5120, test::LinearResult::f32),
      test::route_case({5120, 2304, 384, 6}),
      test::moe_case({5120, 2304, 64, 6}),
      test::index_select_case({.head = {32, 128, 64}, .ratio = 1, .top_k = 512, .first_position = 1000})};
  for (const test::OpCase& op_case : cases) {
    const std::string name = op_case.op + " " + op_case.shape;
    for (const std::int32_t rows : only_rows > 0 ? std::vector<std::int32_t>{only_rows} : std::vector<std::int32_t>{1, 8, 64, 256, 1000}) {
      if (name.find(filter) != std::string::npos) {
        const test::PreparedOp op = op_case.prepare(**device, test::first_rows(std::min(rows, op_case.max_rows)));
        const double seconds =
            cold_seconds_of(**device, op.memory->stream(), [&] { op.run((*device)->ops(), op.memory->stream()); });
        report(name, std::min(rows, op_case.max_rows), seconds, op.bytes, op.flops, bandwidth);
      }
    }
  }
  time_draws(**device, filter, only_rows, bandwidth);
  time_prefill(**device, filter, bandwidth);
  time_long_contexts(**device, filter, bandwidth);
  return 0;
}

}  // namespace
}  // namespace deepinfer::bench

int main(int count, char** arguments) { return deepinfer::bench::run(count > 1 ? arguments[1] : "", count > 2 ? std::atoi(arguments[2]) : 0); }
