// A CPU on which Engram rows arrive as late as they may: when another stream waits for them. Until then there is garbage in their place.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::test {

class LateStream final : public Stream {
 public:
  void synchronize() override { run(); }
  void copy(void* destination, const void* source, std::size_t size_bytes) override {
    if (size_bytes > 0) {
      std::memcpy(destination, source, size_bytes);
    }
  }
  void wait_for(Stream& other) override { static_cast<LateStream&>(other).run(); }

  void later(std::function<void()> work) { pending_.push_back(std::move(work)); }

 private:
  void run() {
    for (const auto& work : std::exchange(pending_, {})) {
      work();
    }
  }
  std::vector<std::function<void()>> pending_;
};

/// Those of the CPU; gathering is put off.
class LateOps final : public Ops {
 public:
  explicit LateOps(Ops& inner) : inner_(inner) {}

  void engram_gather(Stream& s, const EngramGatherParams& p) override {
    const auto num_codes = static_cast<std::size_t>(p.num_rows) * static_cast<std::size_t>(p.columns * p.row_dim);
    std::memset(p.e.codes, 0x7e, num_codes);  // 448, the largest
    std::memset(p.e.scales, 0x7f, num_codes / kQ8Group);
    static_cast<LateStream&>(s).later([this, &s, p] { inner_.engram_gather(s, p); });
  }

  void embed(Stream& s, const EmbedParams& p) override { inner_.embed(s, p); }
  void mix(Stream& s, const MixParams& p) override { inner_.mix(s, p); }
  void collapse_norm(Stream& s, const CollapseNormParams& p) override { inner_.collapse_norm(s, p); }
  void expand(Stream& s, const ExpandParams& p) override { inner_.expand(s, p); }
  void mean_streams(Stream& s, const MeanStreamsParams& p) override { inner_.mean_streams(s, p); }
  void rms_norm(Stream& s, const RmsNormParams& p) override { inner_.rms_norm(s, p); }
  void quantise(Stream& s, const QuantiseParams& p) override { inner_.quantise(s, p); }
  void rope_table(Stream& s, const RopeTableParams& p) override { inner_.rope_table(s, p); }
  void rotate(Stream& s, const RotateParams& p) override { inner_.rotate(s, p); }
  void linear_q8(Stream& s, const LinearQ8Params& p) override { inner_.linear_q8(s, p); }
  void linear_bf16(Stream& s, const LinearBf16Params& p) override { inner_.linear_bf16(s, p); }
  void add_rows(Stream& s, const AddRowsParams& p) override { inner_.add_rows(s, p); }
  void window_rows(Stream& s, const WindowRowsParams& p) override { inner_.window_rows(s, p); }
  void store_ring(Stream& s, const StoreRingParams& p) override { inner_.store_ring(s, p); }
  void compress_pairs(Stream& s, const CompressPairsParams& p) override { inner_.compress_pairs(s, p); }
  void store_index_keys(Stream& s, const StoreIndexKeysParams& p) override { inner_.store_index_keys(s, p); }
  void store_compressed(Stream& s, const StoreCompressedParams& p) override { inner_.store_compressed(s, p); }
  void index_select(Stream& s, const IndexSelectParams& p) override { inner_.index_select(s, p); }
  void attend(Stream& s, const AttendParams& p) override { inner_.attend(s, p); }
  void route(Stream& s, const RouteParams& p) override { inner_.route(s, p); }
  void moe(Stream& s, const MoeParams& p) override { inner_.moe(s, p); }
  void engram_gate(Stream& s, const EngramGateParams& p) override { inner_.engram_gate(s, p); }
  void draw_tokens(Stream& s, const DrawTokensParams& p) override { inner_.draw_tokens(s, p); }
  void rotate_halves(Stream& s, const RotateHalvesParams& p) override { inner_.rotate_halves(s, p); }
  void attend_all(Stream& s, const AttendAllParams& p) override { inner_.attend_all(s, p); }
  void add(Stream& s, const AddParams& p) override { inner_.add(s, p); }
  void silu_product(Stream& s, const SiluProductParams& p) override { inner_.silu_product(s, p); }
  void gelu(Stream& s, const GeluParams& p) override { inner_.gelu(s, p); }
  void gather_cells(Stream& s, const GatherCellsParams& p) override { inner_.gather_cells(s, p); }

 private:
  Ops& inner_;
};

class LateDevice final : public Device {
 public:
  [[nodiscard]] const DeviceInfo& info() const override { return device_->info(); }
  [[nodiscard]] Buffer allocate(std::size_t size_bytes) override { return device_->allocate(size_bytes); }
  [[nodiscard]] std::unique_ptr<Stream> make_stream() override { return std::make_unique<LateStream>(); }
  [[nodiscard]] Ops& ops() override { return ops_; }

 private:
  std::unique_ptr<Device> device_ = cpu::make_device({.num_threads = 2});
  LateOps ops_{device_->ops()};
};

}  // namespace deepinfer::test
