#include "backends/op_cases/op_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/block_codecs.h"
#include "base/check.h"

namespace deepinfer::test {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};
constexpr std::int64_t kPoisonedColumn = 5;

}  // namespace

void* OpMemory::allocate(std::size_t size_bytes) {
  Buffer buffer = device_.allocate(size_bytes + kGuardBytes);
  check(buffer.data() != nullptr, "the device has room for a test");
  const std::vector<std::byte> pattern(size_bytes + kGuardBytes, kGuard);
  stream_->copy(buffer.data(), pattern.data(), pattern.size());
  stream_->synchronize();
  void* data = buffer.data();
  buffers_.emplace_back(std::move(buffer), size_bytes);
  return data;
}

bool OpMemory::guards_intact() {
  return std::ranges::all_of(buffers_, [&](const auto& entry) {
    const std::vector<std::byte> guard = read(entry.first.data() + entry.second, kGuardBytes);
    return std::ranges::all_of(guard, [](std::byte b) { return b == kGuard; });
  });
}

RowRandom row_random(std::uint32_t tensor, std::int64_t row) {
  RowRandom mixed((std::uint64_t{tensor} << 32 | static_cast<std::uint32_t>(row)) ^ 20261130U);
  const std::uint64_t high = mixed();
  return RowRandom(high << 32 | mixed());
}

std::vector<float> random_floats(std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width, float scale) {
  std::vector<float> out;
  out.reserve(rows.size() * static_cast<std::size_t>(width));
  for (const std::int32_t row : rows) {
    RowRandom random = row_random(tensor, row % kPoisoned);
    std::normal_distribution<float> normal(0.0F, scale);
    const bool poisoned = row >= kPoisoned && tensor == kRowInput;
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = normal(random);
      out.push_back(poisoned && i == kPoisonedColumn ? std::numeric_limits<float>::quiet_NaN() : value);
    }
  }
  return out;
}

std::vector<bf16> random_bf16(std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width, float scale) {
  const std::vector<float> values = random_floats(tensor, rows, width, scale);
  std::vector<bf16> out(values.size());
  std::ranges::transform(values, out.begin(), to_bf16);
  return out;
}

std::vector<std::int32_t> random_integers(std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width, std::int32_t low,
                                          std::int32_t high) {
  std::vector<std::int32_t> out;
  for (const std::int32_t row : rows) {
    RowRandom random = row_random(tensor, row % kPoisoned);
    std::uniform_int_distribution<std::int32_t> uniform(low, high);
    for (std::int64_t i = 0; i < width; ++i) {
      out.push_back(uniform(random));
    }
  }
  return out;
}

std::vector<std::int32_t> first_rows(std::int32_t count) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    out[static_cast<std::size_t>(i)] = i;
  }
  return out;
}

Q8Rows put_q8(OpMemory& memory, std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width) {
  const std::vector<bf16> x = random_bf16(tensor, rows, width);
  std::vector<std::uint8_t> codes(x.size());
  std::vector<std::uint8_t> scales(x.size() / kQ8Group);
  if (!x.empty()) {
    cpu::quantise_q8(x.data(), static_cast<std::int32_t>(x.size()), codes.data(), scales.data());
  }
  return {memory.put(codes), memory.put(scales)};
}

std::pair<std::vector<std::uint8_t>, std::vector<std::uint8_t>> random_weight(std::uint32_t tensor, WeightFormat format, std::int64_t n,
                                                                              std::int64_t k) {
  RowRandom random = row_random(tensor, 0);
  const std::int64_t num_codes = format == WeightFormat::fp8 ? n * k : n * k / 2;
  const std::int64_t num_scales = format == WeightFormat::fp8 ? (n + 31) / 32 * ((k + 31) / 32) : n * k / 32;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(num_codes));
  for (std::uint8_t& code : codes) {
    code = static_cast<std::uint8_t>(random());
    if (format == WeightFormat::fp8 && (code & 0x7FU) == 0x7FU) {
      code = 0;  // weights hold no NaN
    }
  }
  const double typical = format == WeightFormat::fp8 ? 0x1p-8 : 0x1p-2;
  const int centre = 127 + static_cast<int>(std::log2(typical / std::sqrt(static_cast<double>(k))));
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(num_scales));
  for (std::uint8_t& scale : scales) {
    scale = static_cast<std::uint8_t>(centre + static_cast<int>(random() % 4) - 2);
  }
  return {codes, scales};
}

Bf16Weight put_bf16_weight(OpMemory& memory, const std::vector<bf16>& rows, std::int64_t n, std::int64_t k) {
  const std::size_t room = (bf16_weight_bytes(n, k) + sizeof(bf16) - 1) / sizeof(bf16);
  const PlaceBf16Params p{
      .n = static_cast<std::int32_t>(n), .k = static_cast<std::int32_t>(k), .from = rows.data(), .to = memory.room<bf16>(room)};
  const Bf16Weight out = memory.ops().place_bf16(memory.stream(), p);
  memory.stream().synchronize();
  return out;
}

QuantWeight put_weight(OpMemory& memory, std::uint32_t tensor, WeightFormat format, std::int64_t n, std::int64_t k) {
  const auto [codes, scales] = random_weight(tensor, format, n, k);
  const PlaceWeightParams p{.n = static_cast<std::int32_t>(n),
                            .k = static_cast<std::int32_t>(k),
                            .from = {.format = format, .codes = codes.data(), .scales = scales.data()},
                            .codes = memory.room<std::uint8_t>(codes.size()),
                            .scales = memory.room<std::uint8_t>(scales.size())};
  const WeightLayout layout = memory.ops().place_weight(memory.stream(), p);
  memory.stream().synchronize();
  return {.format = format, .codes = p.codes, .scales = p.scales, .layout = layout};
}

double weight_bytes(WeightFormat format, std::int64_t n, std::int64_t k) {
  const auto elements = static_cast<double>(n * k);
  return format == WeightFormat::fp8 ? elements + elements / 1024 : elements / 2 + elements / 32;
}

RopeTable put_rope(OpMemory& memory, std::span<const std::int32_t> positions, std::int32_t rope_dim) {
  std::vector<float> cos;
  std::vector<float> sin;
  for (const std::int32_t position : positions) {
    for (std::int32_t i = 0; i < rope_dim / 2; ++i) {
      const double angle = position / std::pow(10000.0, 2.0 * i / rope_dim);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return {memory.put(cos), memory.put(sin)};
}

OpOutput bf16_output(std::string name, const std::vector<bf16>& stored, std::size_t rows, Closeness closeness) {
  std::vector<float> values(stored.size());
  std::ranges::transform(stored, values.begin(), to_float);
  return make_output(std::move(name), closeness, stored, rows, std::move(values));
}

OpOutput float_output(std::string name, const std::vector<float>& stored, std::size_t rows) {
  return make_output(std::move(name), Closeness::fp32, stored, rows, stored);
}

OpOutput q8_consistency(OpMemory& memory, const Q8Rows& q8, const std::vector<bf16>& y, std::size_t rows) {
  const std::vector<std::uint8_t> codes = memory.read(q8.codes, y.size());
  const std::vector<std::uint8_t> scales = memory.read(q8.scales, y.size() / kQ8Group);
  std::vector<std::uint8_t> expected_codes(codes.size());
  std::vector<std::uint8_t> expected_scales(scales.size());
  if (!y.empty()) {
    cpu::quantise_q8(y.data(), static_cast<std::int32_t>(y.size()), expected_codes.data(), expected_scales.data());
  }
  const std::vector<std::uint8_t> differs(rows, codes != expected_codes || scales != expected_scales ? 1 : 0);
  return exact_output("rows of q8 that are not Q8(y)", differs, rows);
}

}  // namespace deepinfer::test
