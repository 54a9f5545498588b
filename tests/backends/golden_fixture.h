// Runs operations on golden inputs: weights of the tiny checkpoint on a device, results back as vectors, comparison by relative L2.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backends/implementations.h"
#include "backends/op_cases/op_case.h"
#include "support/golden_file.h"
#include "weights/checkpoint.h"

namespace deepinfer::test {

inline constexpr float kNormEps = 1e-20F;

/// ||a - b|| / ||b||; infinity when the sizes differ.
inline double relative_l2(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return a.size() == b.size() ? std::sqrt(difference / (size + 1e-300)) : INFINITY;
}

inline std::vector<float> widen(const std::vector<bf16>& values) {
  std::vector<float> out;
  for (const bf16 value : values) {
    out.push_back(to_float(value));
  }
  return out;
}

class GoldenTest : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    device_ = make_implementation(GetParam());
    memory_ = std::make_unique<OpMemory>(*device_);
    auto checkpoint = weights::Checkpoint::open(std::filesystem::path(DEEPINFER_TEST_DATA) / "tiny");
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    checkpoint_ = *checkpoint;
  }

  static GoldenFile golden(const std::string& name) {
    return GoldenFile(std::filesystem::path(DEEPINFER_TEST_DATA) / "goldens" / (name + ".safetensors"));
  }

  [[nodiscard]] Ops& ops() { return device_->ops(); }
  [[nodiscard]] Stream& stream() { return memory_->stream(); }

  /// A checkpoint tensor on the device.
  template <class T>
  const T* weight(const std::string& name) {
    const TensorView* view = checkpoint_->find(name);
    check(view != nullptr, "the tiny checkpoint holds the tensor");
    const T* first = view->as<T>();
    return memory_->put(std::vector<T>(first, first + view->size_bytes() / sizeof(T)));
  }
  /// A bf16 weight of products.
  Bf16Weight product(const std::string& name) {
    const TensorView* view = checkpoint_->find(name);
    check(view != nullptr, "the tiny checkpoint holds the tensor");
    const bf16* first = view->as<bf16>();
    return put_bf16_weight(*memory_, {first, first + view->size_bytes() / sizeof(bf16)}, view->shape[0], view->shape[1]);
  }
  QuantWeight quantised(const std::string& name) {
    const TensorView* codes = checkpoint_->find(name + ".weight");
    const TensorView* scales = checkpoint_->find(name + ".scale");
    check(codes != nullptr && scales != nullptr, "the tiny checkpoint holds the weight");
    const bool is_fp8 = codes->dtype == DType::f8_e4m3;
    QuantWeight out{is_fp8 ? WeightFormat::fp8 : WeightFormat::fp4, codes->as<std::uint8_t>(), scales->as<std::uint8_t>()};
    const PlaceWeightParams p{.n = static_cast<std::int32_t>(codes->shape[0]),
                              .k = static_cast<std::int32_t>(codes->shape[1] * (is_fp8 ? 1 : 2)),
                              .from = out,
                              .codes = memory_->room<std::uint8_t>(codes->size_bytes()),
                              .scales = memory_->room<std::uint8_t>(scales->size_bytes())};
    out.layout = ops().place_weight(stream(), p);
    stream().synchronize();
    out.codes = p.codes;
    out.scales = p.scales;
    return out;
  }

  Q8Rows room_q8(std::int64_t rows, std::int64_t width) {
    return {memory_->room<std::uint8_t>(static_cast<std::size_t>(rows * width)),
            memory_->room<std::uint8_t>(static_cast<std::size_t>(rows * width / kQ8Group))};
  }
  Q8Rows q8(const bf16* x, std::int32_t rows, std::int32_t width) {
    const Q8Rows out = room_q8(rows, width);
    ops().quantise(stream(), {.num_rows = rows, .width = width, .x = x, .q8 = out});
    return out;
  }
  bf16* linear(const Q8Rows& x, std::int32_t rows, const QuantWeight& w, std::int32_t n, std::int32_t k, std::int32_t groups = 1) {
    bf16* y = memory_->room<bf16>(static_cast<std::size_t>(rows) * n * groups);
    ops().linear_q8(stream(), {.num_rows = rows, .n = n, .k = k, .groups = groups, .x = x, .weight = w, .y = y});
    return y;
  }
  bf16* norm(const bf16* x, std::int32_t rows, std::int32_t width, const std::string& name) {
    bf16* y = memory_->room<bf16>(static_cast<std::size_t>(rows * width));
    ops().rms_norm(stream(),
                   {.num_rows = rows, .width = width, .x = x, .weight = weight<bf16>(name), .norm_eps = kNormEps, .y = y, .q8 = {}});
    return y;
  }
  /// Plain or YaRN rope lines of consecutive positions first, first + step, …
  RopeTable rope(const std::string& kind, std::int32_t rows, std::int32_t step = 1) {
    const GoldenFile file = golden("modules/rope");
    const std::vector<float> frequency = file.values<float>(kind + ".frequencies");
    const auto half = static_cast<std::int32_t>(frequency.size());
    std::vector<std::int32_t> position;
    for (std::int32_t i = 0; i < rows; ++i) {
      position.push_back(i * step);
    }
    float* cos = memory_->room<float>(static_cast<std::size_t>(rows * half));
    float* sin = memory_->room<float>(static_cast<std::size_t>(rows * half));
    ops().rope_table(stream(), {.num_rows = rows,
                                .half_dim = half,
                                .position = memory_->put(position),
                                .frequency = memory_->put(frequency),
                                .cos = cos,
                                .sin = sin});
    return {cos, sin};
  }
  std::vector<float> read_bf16(const bf16* data, std::size_t count) { return widen(memory_->read(data, count)); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<OpMemory> memory_;
  std::shared_ptr<const weights::Checkpoint> checkpoint_;
};

inline std::vector<Implementation> golden_implementations() {
  std::vector<Implementation> out = {reference_implementation(), fast_implementations().front()};
  std::ranges::copy(gpu_implementations(), std::back_inserter(out));
  return out;
}

}  // namespace deepinfer::test
