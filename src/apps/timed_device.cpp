#include "apps/timed_device.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace deepinfer::apps {
namespace {

struct Work {
  std::string shape;
  double bytes = 0;
  double flops = 0;
  bool on_product_unit = false;
};

double bytes_of(WeightFormat format, double n, double k) { return format == WeightFormat::fp8 ? n * k * (1 + 1.0 / 1024) : n * k * (0.5 + 1.0 / 32); }

Work work_of(const LinearQ8Params& p) {
  const double n = static_cast<double>(p.groups) * p.n;
  return {fmt::format("{} {}x[{},{}]", p.weight.format == WeightFormat::fp8 ? "fp8" : "fp4", p.groups, p.n, p.k),
          bytes_of(p.weight.format, n, p.k), 2.0 * p.num_rows * n * p.k, true};
}

Work work_of(const LinearBf16Params& p) {
  const double weights = static_cast<double>(p.n) * p.k;
  return {fmt::format("bf16 [{},{}]", p.n, p.k), 2 * weights, 2 * p.num_rows * weights, true};
}

Work work_of(const RouteParams& p) {
  const double weights = static_cast<double>(p.num_experts) * p.hidden;
  return {fmt::format("[{},{}]", p.num_experts, p.hidden), 2 * weights, 2 * p.num_rows * weights, true};
}

Work work_of(const MixParams& p) {
  const double weights = (2.0 + p.streams) * p.streams * p.streams * p.hidden;
  return {fmt::format("[{},{}]", (2 + p.streams) * p.streams, p.streams * p.hidden), 4 * weights, 2 * p.num_rows * weights, false};
}

/// Every row reads its listed rows; window rows are read once per request.
Work work_of(const AttendParams& p) {
  const double window = p.max_window;
  const double listed = p.list != nullptr ? p.top_k : 0;
  const double bytes = p.chunks.num_chunks * window * window_record_bytes(p.head_dim) + p.rows.num_rows * listed * compressed_record_bytes(p.head_dim);
  return {fmt::format("{} heads of {}, {} + {} keys", p.heads, p.head_dim, window, listed), bytes,
          4.0 * p.rows.num_rows * p.heads * p.head_dim * (window + listed), false};
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

/// A stream whose operations are not recorded while they are timed one by one.
class TimedDevice::TimedStream final : public Stream {
 public:
  TimedStream(std::unique_ptr<Stream> inner, const bool& is_timing) : inner_(std::move(inner)), is_timing_(is_timing) {}

  void synchronize() override { inner_->synchronize(); }
  [[nodiscard]] std::string_view fault() const override { return inner_->fault(); }
  void copy(void* destination, const void* source, std::size_t size_bytes) override { inner_->copy(destination, source, size_bytes); }
  void wait_for(Stream& other) override { inner_->wait_for(*static_cast<TimedStream&>(other).inner_); }
  bool begin_recording() override { return !is_timing_ && inner_->begin_recording(); }
  std::unique_ptr<Recording> end_recording() override { return inner_->end_recording(); }
  void replay(Recording& recording) override { inner_->replay(recording); }

  [[nodiscard]] Stream& inner() { return *inner_; }

 private:
  std::unique_ptr<Stream> inner_;
  const bool& is_timing_;
};

class TimedDevice::TimedOps final : public Ops {
 public:
  TimedOps(Device& device, const bool& is_timing) : inner_(device.ops()), is_timing_(is_timing) {}

  OpTimes take() { return std::exchange(times_, {}); }

  WeightLayout place_weight(Stream& s, const PlaceWeightParams& p) override { return inner_.place_weight(inner(s), p); }
  Bf16Weight place_bf16(Stream& s, const PlaceBf16Params& p) override { return inner_.place_bf16(inner(s), p); }
  void embed(Stream& s, const EmbedParams& p) override { timed("embed", rows_only(p), s, [&] { inner_.embed(inner(s), p); }); }
  void mix(Stream& s, const MixParams& p) override { timed("mix", work_of(p), s, [&] { inner_.mix(inner(s), p); }); }
  void collapse_norm(Stream& s, const CollapseNormParams& p) override { timed("collapse_norm", rows_only(p), s, [&] { inner_.collapse_norm(inner(s), p); }); }
  void expand(Stream& s, const ExpandParams& p) override { timed("expand", rows_only(p), s, [&] { inner_.expand(inner(s), p); }); }
  void mean_streams(Stream& s, const MeanStreamsParams& p) override { timed("mean_streams", rows_only(p), s, [&] { inner_.mean_streams(inner(s), p); }); }
  void rms_norm(Stream& s, const RmsNormParams& p) override { timed("rms_norm", {}, s, [&] { inner_.rms_norm(inner(s), p); }); }
  void quantise(Stream& s, const QuantiseParams& p) override { timed("quantise", {}, s, [&] { inner_.quantise(inner(s), p); }); }
  void rope_table(Stream& s, const RopeTableParams& p) override { timed("rope_table", {}, s, [&] { inner_.rope_table(inner(s), p); }); }
  void rotate(Stream& s, const RotateParams& p) override { timed("rotate", {}, s, [&] { inner_.rotate(inner(s), p); }); }
  void linear_q8(Stream& s, const LinearQ8Params& p) override { timed("linear_q8", work_of(p), s, [&] { inner_.linear_q8(inner(s), p); }); }
  void linear_bf16(Stream& s, const LinearBf16Params& p) override { timed("linear_bf16", work_of(p), s, [&] { inner_.linear_bf16(inner(s), p); }); }
  void draw_tokens(Stream& s, const DrawTokensParams& p) override { timed("draw_tokens", {}, s, [&] { inner_.draw_tokens(inner(s), p); }); }
  void add_rows(Stream& s, const AddRowsParams& p) override { timed("add_rows", {}, s, [&] { inner_.add_rows(inner(s), p); }); }
  void window_rows(Stream& s, const WindowRowsParams& p) override { timed("window_rows", {}, s, [&] { inner_.window_rows(inner(s), p); }); }
  void store_ring(Stream& s, const StoreRingParams& p) override { timed("store_ring", {}, s, [&] { inner_.store_ring(inner(s), p); }); }
  void compress_pairs(Stream& s, const CompressPairsParams& p) override { timed("compress_pairs", {}, s, [&] { inner_.compress_pairs(inner(s), p); }); }
  void store_index_keys(Stream& s, const StoreIndexKeysParams& p) override { timed("store_index_keys", {}, s, [&] { inner_.store_index_keys(inner(s), p); }); }
  void store_compressed(Stream& s, const StoreCompressedParams& p) override { timed("store_compressed", {}, s, [&] { inner_.store_compressed(inner(s), p); }); }
  void index_select(Stream& s, const IndexSelectParams& p) override { timed("index_select", scores(s, p), s, [&] { inner_.index_select(inner(s), p); }); }
  void attend(Stream& s, const AttendParams& p) override { timed("attend", work_of(p), s, [&] { inner_.attend(inner(s), p); }); }
  void route(Stream& s, const RouteParams& p) override { timed("route", work_of(p), s, [&] { inner_.route(inner(s), p); }); }
  void moe(Stream& s, const MoeParams& p) override { timed("moe", experts(s, p), s, [&] { inner_.moe(inner(s), p); }); }
  void engram_gather(Stream& s, const EngramGatherParams& p) override { timed("engram_gather", {}, s, [&] { inner_.engram_gather(inner(s), p); }); }
  void engram_gate(Stream& s, const EngramGateParams& p) override { timed("engram_gate", {}, s, [&] { inner_.engram_gate(inner(s), p); }); }
  void rotate_halves(Stream& s, const RotateHalvesParams& p) override { timed("rotate_halves", {}, s, [&] { inner_.rotate_halves(inner(s), p); }); }
  void attend_all(Stream& s, const AttendAllParams& p) override { timed("attend_all", {}, s, [&] { inner_.attend_all(inner(s), p); }); }
  void add(Stream& s, const AddParams& p) override { timed("add", {}, s, [&] { inner_.add(inner(s), p); }); }
  void silu_product(Stream& s, const SiluProductParams& p) override { timed("silu_product", {}, s, [&] { inner_.silu_product(inner(s), p); }); }
  void gelu(Stream& s, const GeluParams& p) override { timed("gelu", {}, s, [&] { inner_.gelu(inner(s), p); }); }
  void gather_cells(Stream& s, const GatherCellsParams& p) override { timed("gather_cells", {}, s, [&] { inner_.gather_cells(inner(s), p); }); }

 private:
  static Stream& inner(Stream& stream) { return static_cast<TimedStream&>(stream).inner(); }

  template <class Params>
  static Work rows_only(const Params& p) {
    return {fmt::format("{} x {}", p.streams, p.hidden)};
  }

  /// An array of the device on the host.
  template <class T>
  std::vector<T> read(Stream& stream, const T* data, std::size_t count) {
    std::vector<T> out(count);
    stream.copy(out.data(), data, count * sizeof(T));
    stream.synchronize();
    return out;
  }

  /// Distinct experts as the router chose them.
  Work experts(Stream& stream, const MoeParams& p) {
    if (!is_timing_) {
      return {};
    }
    const std::vector<std::int32_t> chosen = read(stream, p.expert, static_cast<std::size_t>(p.num_rows) * static_cast<std::size_t>(p.top_k));
    const auto touched = static_cast<double>(std::set<std::int32_t>(chosen.begin(), chosen.end()).size());
    const double one = 3.0 * p.hidden * p.intermediate;
    return {fmt::format("{}/{} top {} of {}", p.hidden, p.intermediate, p.top_k, p.num_experts),
            touched * bytes_of(WeightFormat::fp4, 1, one) + bytes_of(WeightFormat::fp8, 1, one), 2.0 * p.num_rows * (p.top_k + 1) * one, true};
  }

  /// Keys that a row sees are read once per request; candidate lists may spare some of them.
  Work scores(Stream& stream, const IndexSelectParams& p) {
    if (!is_timing_) {
      return {};
    }
    const std::vector<std::int32_t> position = read(stream, p.rows.position, static_cast<std::size_t>(p.rows.num_rows));
    const std::vector<std::int32_t> chunk = read(stream, p.rows.chunk, position.size());
    std::map<std::int32_t, std::int32_t> last;
    double visible = 0;
    for (std::size_t row = 0; row < position.size(); ++row) {
      last[chunk[row]] = (position[row] + 1) / p.ratio;
      visible += (position[row] + 1) / p.ratio;  // NOLINT: whole keys
    }
    double keys = 0;
    for (const auto& [id, count] : last) {
      keys += count;
    }
    return {fmt::format("{} heads of {}, ratio {}", p.heads, p.index_dim, p.ratio), keys * index_key_bytes(p.index_dim),
            2.0 * visible * p.heads * p.index_dim, false};
  }

  template <class Run>
  void timed(const char* operation, Work work, Stream& stream, const Run& run) {
    if (!is_timing_) {
      run();
      return;
    }
    stream.synchronize();
    const double processor_begin = processor_seconds();
    const auto begin = std::chrono::steady_clock::now();
    run();
    stream.synchronize();
    OpTime& time = times_[work.shape.empty() ? operation : fmt::format("{} {}", operation, work.shape)];
    time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    time.processor_seconds += processor_seconds() - processor_begin;
    ++time.num_calls;
    time.bytes += work.bytes;
    time.flops += work.flops;
    time.on_product_unit = work.on_product_unit;
  }

  Ops& inner_;
  const bool& is_timing_;
  OpTimes times_;
};

TimedDevice::TimedDevice(Device& inner) : inner_(inner), ops_(std::make_unique<TimedOps>(inner, is_timing_)) {}
std::unique_ptr<Stream> TimedDevice::make_stream() { return std::make_unique<TimedStream>(inner_.make_stream(), is_timing_); }
TimedDevice::~TimedDevice() = default;
Ops& TimedDevice::ops() { return *ops_; }
OpTimes TimedDevice::take_times() { return ops_->take(); }

}  // namespace deepinfer::apps
