#include "backends/self_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "ops/ops.h"
#include "tensor/formats.h"

namespace deepinfer {
namespace {

constexpr std::int32_t kRows = 6;
constexpr std::int32_t kHidden = 256;
constexpr std::int32_t kColumns = 160;
constexpr std::int32_t kIntermediate = 64;
constexpr std::int32_t kExperts = 4;
constexpr std::int32_t kTopK = 2;
constexpr std::int32_t kHeads = 4;
constexpr std::int32_t kHeadDim = 64;
constexpr std::int32_t kRopeDim = 16;
constexpr float kNormEps = 1e-20F;

/// Of the largest value of an output: two correct kernels round at the same places and differ by a rounding now and then.
constexpr float kTolerance = 0.02F;

/// What one operation gave, as numbers.
struct Figures {
  std::string operation;
  std::vector<float> values;
};

/// Arrays of one device, filled from one seed: the same on every device.
class Bench {
 public:
  explicit Bench(Device& device) : device_(device), stream_(device.make_stream()) {}

  template <class T>
  T* room(std::size_t count) {
    buffers_.push_back(device_.allocate(count * sizeof(T)));
    is_short_ = is_short_ || buffers_.back().data() == nullptr;
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    T* out = room<T>(values.size());
    if (out != nullptr) {
      stream_->copy(out, values.data(), values.size() * sizeof(T));
      stream_->synchronize();
    }
    return out;
  }
  bf16* random_values(std::size_t count) {
    std::vector<bf16> values(count);
    std::ranges::generate(values, [this] { return to_bf16(normal_(random_)); });
    return put(values);
  }
  /// Codes without NaN and scales near one.
  QuantWeight random_weight(WeightFormat format, std::int32_t n, std::int32_t k) {
    const bool is_fp8 = format == WeightFormat::fp8;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(n) * static_cast<std::size_t>(is_fp8 ? k : k / 2));
    std::ranges::generate(codes,
                          [&] { return static_cast<std::uint8_t>(is_fp8 ? random_() % 0x78U | random_() % 2U << 7U : random_() % 256U); });
    const std::int32_t scale_rows = is_fp8 ? (n + kWeightBlock - 1) / kWeightBlock : n;
    std::vector<std::uint8_t> scales(static_cast<std::size_t>(scale_rows) * static_cast<std::size_t>(k / kWeightBlock));
    std::ranges::generate(scales, [&] { return static_cast<std::uint8_t>((is_fp8 ? 116U : 122U) + random_() % 3U); });
    const PlaceWeightParams place{.n = n,
                                  .k = k,
                                  .from = {.format = format, .codes = codes.data(), .scales = scales.data()},
                                  .codes = room<std::uint8_t>(codes.size()),
                                  .scales = room<std::uint8_t>(scales.size())};
    if (is_short_) {
      return {.format = format};
    }
    const WeightLayout layout = device_.ops().place_weight(*stream_, place);
    stream_->synchronize();
    return {.format = format, .codes = place.codes, .scales = place.scales, .layout = layout};
  }
  Bf16Weight random_bf16_weight(std::int32_t n, std::int32_t k) {
    std::vector<bf16> values(static_cast<std::size_t>(n) * static_cast<std::size_t>(k));
    std::ranges::generate(values, [this] { return to_bf16(normal_(random_)); });
    auto* const to = reinterpret_cast<bf16*>(room<std::uint8_t>(bf16_weight_bytes(n, k)));
    if (is_short_) {
      return {};
    }
    const Bf16Weight out = device_.ops().place_bf16(*stream_, {.n = n, .k = k, .from = values.data(), .to = to});
    stream_->synchronize();
    return out;
  }
  Q8Rows q8(std::int32_t rows, std::int32_t width) {
    const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
    return {.codes = room<std::uint8_t>(count), .scales = room<std::uint8_t>(count / kQ8Group)};
  }
  template <class T>
  std::vector<T> read(const T* from, std::size_t count) {
    std::vector<T> out(count);
    stream_->copy(out.data(), from, count * sizeof(T));
    stream_->synchronize();
    return out;
  }
  std::vector<float> numbers(const bf16* from, std::size_t count) {
    std::vector<float> out;
    for (const bf16 value : read(from, count)) {
      out.push_back(to_float(value));
    }
    return out;
  }

  [[nodiscard]] bool is_short() const { return is_short_; }
  Ops& ops() { return device_.ops(); }
  Stream& stream() { return *stream_; }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::mt19937 random_{20260731};
  std::normal_distribution<float> normal_;
  bool is_short_ = false;
};

constexpr std::size_t size_of(std::int32_t rows, std::int32_t width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}

/// Norm with quantisation, then products of its output.
void run_products(Bench& bench, std::vector<Figures>& out) {
  const bf16* const x = bench.random_values(size_of(kRows, kHidden));
  const bf16* const norm = bench.random_values(kHidden);
  bf16* const y = bench.room<bf16>(size_of(kRows, kHidden));
  const Q8Rows q8 = bench.q8(kRows, kHidden);
  bf16* const quantised = bench.room<bf16>(size_of(kRows, kColumns));
  float* const plain = bench.room<float>(size_of(kRows, kColumns));
  bf16* const mixed = bench.room<bf16>(size_of(kRows, kHidden));
  const QuantWeight weight = bench.random_weight(WeightFormat::fp8, kColumns, kHidden);
  const Bf16Weight plain_weight = bench.random_bf16_weight(kColumns, kHidden);
  std::vector<ExpertWeights> experts(kExperts + 1);
  for (std::int32_t e = 0; e <= kExperts; ++e) {
    const WeightFormat format = e < kExperts ? WeightFormat::fp4 : WeightFormat::fp8;
    experts[static_cast<std::size_t>(e)] = {.w1 = bench.random_weight(format, kIntermediate, kHidden),
                                            .w3 = bench.random_weight(format, kIntermediate, kHidden),
                                            .w2 = bench.random_weight(format, kHidden, kIntermediate)};
  }
  const ExpertWeights* const table = bench.put(experts);
  std::vector<std::int32_t> expert;
  for (std::int32_t row = 0; row < kRows; ++row) {
    expert.insert(expert.end(), {row % 2, 2 + row % 2});
  }
  const std::int32_t* const chosen = bench.put(expert);
  const float* const shares = bench.put(std::vector<float>(size_of(kRows, kTopK), 0.75F));
  if (bench.is_short()) {
    return;
  }
  bench.ops().rms_norm(
      bench.stream(), {.num_rows = kRows, .width = kHidden, .x = x, .x_stride = 0, .weight = norm, .norm_eps = kNormEps, .y = y, .q8 = q8});
  bench.ops().linear_q8(bench.stream(),
                        {.num_rows = kRows, .n = kColumns, .k = kHidden, .groups = 1, .x = q8, .weight = weight, .y = quantised});
  bench.ops().linear_bf16(bench.stream(), {.num_rows = kRows,
                                           .n = kColumns,
                                           .k = kHidden,
                                           .x = y,
                                           .row_index = nullptr,
                                           .weight = plain_weight,
                                           .y_f32 = plain,
                                           .y_bf16 = nullptr});
  bench.ops().moe(bench.stream(), {.num_rows = kRows,
                                   .hidden = kHidden,
                                   .intermediate = kIntermediate,
                                   .num_experts = kExperts,
                                   .top_k = kTopK,
                                   .x = q8,
                                   .expert = chosen,
                                   .expert_weight = shares,
                                   .experts = table,
                                   .shared = experts.back(),
                                   .swiglu_limit = 10,
                                   .y = mixed});
  out.push_back({"rms_norm", bench.numbers(y, size_of(kRows, kHidden))});
  out.push_back({"linear_q8", bench.numbers(quantised, size_of(kRows, kColumns))});
  out.push_back({"linear_bf16", bench.read(plain, size_of(kRows, kColumns))});
  out.push_back({"moe", bench.numbers(mixed, size_of(kRows, kHidden))});
}

/// Window rows and attention over them, the first rows of one request.
void run_attention(Bench& bench, std::vector<Figures>& out) {
  constexpr std::int32_t kRingRows = 16;
  const std::vector<std::int32_t> count = {0, 1, 2, 3, 4, 5};
  const std::int32_t* const positions = bench.put(count);
  const std::int32_t* const zeros = bench.put(std::vector<std::int32_t>(kRows, 0));
  const std::int32_t* const rows = bench.put(std::vector<std::int32_t>{kRows});
  const ChunkTable chunks{
      .num_chunks = 1, .first_row = zeros, .num_rows = rows, .first_position = zeros, .slot = zeros, .block_table = zeros, .max_blocks = 1};
  const std::vector<float> frequencies = {1.0F, 0.5F, 0.25F, 0.125F, 0.06F, 0.03F, 0.015F, 0.007F};
  const float* const frequency = bench.put(frequencies);
  float* const cos = bench.room<float>(size_of(kRows, kRopeDim / 2));
  float* const sin = bench.room<float>(size_of(kRows, kRopeDim / 2));
  const RopeTable rope{.cos = cos, .sin = sin};
  const bf16* const kv = bench.random_values(size_of(kRows, kHeadDim));
  const bf16* const norm = bench.random_values(kHeadDim);
  bf16* const q = bench.random_values(size_of(kRows, kHeads * kHeadDim));
  const float* const sink = bench.put(std::vector<float>(kHeads, 0.25F));
  std::uint8_t* const own = bench.room<std::uint8_t>(size_of(kRows, window_record_bytes(kHeadDim)));
  std::uint8_t* const ring = bench.put(std::vector<std::uint8_t>(size_of(kRingRows, window_record_bytes(kHeadDim)), 0));
  bf16* const o = bench.room<bf16>(size_of(kRows, kHeads * kHeadDim));
  const Q8Rows q8 = bench.q8(kRows, kHeads * kHeadDim);
  if (bench.is_short()) {
    return;
  }
  bench.ops().rope_table(
      bench.stream(), {.num_rows = kRows, .half_dim = kRopeDim / 2, .position = positions, .frequency = frequency, .cos = cos, .sin = sin});
  bench.ops().rotate(bench.stream(),
                     {.num_rows = kRows, .heads = kHeads, .head_dim = kHeadDim, .rope_dim = kRopeDim, .rope = rope, .x = q});
  bench.ops().window_rows(bench.stream(), {.num_rows = kRows,
                                           .head_dim = kHeadDim,
                                           .rope_dim = kRopeDim,
                                           .x = kv,
                                           .weight = norm,
                                           .norm_eps = kNormEps,
                                           .rope = rope,
                                           .own = own});
  bench.ops().attend(bench.stream(), {.rows = {.num_rows = kRows, .position = positions, .chunk = zeros},
                                      .chunks = chunks,
                                      .heads = kHeads,
                                      .head_dim = kHeadDim,
                                      .rope_dim = kRopeDim,
                                      .ring_rows = kRingRows,
                                      .q = q,
                                      .own = own,
                                      .ring = ring,
                                      .window_low = zeros,
                                      .window_high = positions,
                                      .max_window = kRingRows,
                                      .list = nullptr,
                                      .top_k = 0,
                                      .ratio = 0,
                                      .rows_per_block = 0,
                                      .compressed = nullptr,
                                      .sink = sink,
                                      .rope = rope,
                                      .o = o,
                                      .q8 = q8});
  out.push_back({"attend", bench.numbers(o, size_of(kRows, kHeads * kHeadDim))});
}

std::vector<Figures> figures_of(Device& device) {
  Bench bench(device);
  std::vector<Figures> out;
  run_products(bench, out);
  run_attention(bench, out);
  return bench.is_short() ? std::vector<Figures>{} : out;
}

}  // namespace

Result<void> self_test(Device& device) {
  const std::vector<Figures> got = figures_of(device);
  if (got.empty()) {
    return fail(ErrorKind::exhausted, device.info().name + " has no room for its self-test");
  }
  const std::unique_ptr<Device> cpu = cpu::make_device({.num_threads = 1, .use_reference_kernels = true});
  const std::vector<Figures> expected = figures_of(*cpu);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float largest = 0;
    for (const float value : expected[i].values) {
      largest = std::max(largest, std::abs(value));
    }
    for (std::size_t j = 0; j < expected[i].values.size(); ++j) {
      const float difference = std::abs(got[i].values[j] - expected[i].values[j]);
      if (!(difference <= kTolerance * largest)) {
        return fail(ErrorKind::corrupt, device.info().name + " fails its self-test: " + expected[i].operation + " gives " +
                                            std::to_string(got[i].values[j]) + " instead of " + std::to_string(expected[i].values[j]) +
                                            " at " + std::to_string(j) + "; the device or its driver is broken");
      }
    }
  }
  return {};
}

}  // namespace deepinfer
