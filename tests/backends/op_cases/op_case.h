// One case of the contract table: an operation with one shape, prepared on any device for any choice of rows.
// The same table serves the comparison with the reference kernels, the laws of batch invariance and the benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/device.h"
#include "ops/ops.h"

namespace deepinfer::test {

/// Buffers of one prepared operation. Every buffer ends with a guard that must survive.
class OpMemory {
 public:
  explicit OpMemory(Device& device) : device_(device), stream_(device.make_stream()) {}

  /// Copies host values to the device.
  template <class T>
  T* put(const std::vector<T>& values) {
    T* data = room<T>(values.size());
    stream_->copy(data, values.data(), values.size() * sizeof(T));
    return data;
  }

  /// Room for `count` elements, filled with a byte pattern.
  template <class T>
  T* room(std::size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  template <class T>
  std::vector<T> read(const T* data, std::size_t count) {
    std::vector<T> out(count);
    stream_->copy(out.data(), data, count * sizeof(T));
    stream_->synchronize();
    return out;
  }

  /// False when something was written behind a buffer.
  [[nodiscard]] bool guards_intact();

  [[nodiscard]] Stream& stream() { return *stream_; }
  [[nodiscard]] Ops& ops() { return device_.ops(); }

 private:
  void* allocate(std::size_t size_bytes);

  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::deque<std::pair<Buffer, std::size_t>> buffers_;  ///< and the bytes in front of the guard
};

/// How close an implementation must come to the reference kernels.
enum class Closeness : std::uint8_t {
  exact,            ///< bit-equal: codes, lists, copies
  fp32,             ///< sums in another order, polynomial functions
  bf16,             ///< the same, then one rounding to bf16
  probabilities,    ///< bf16 after a sum over probabilities that were rounded to bf16 themselves
  after_quantiser,  ///< bf16 differences that met a quantiser: single codes may differ by a step
};

/// What an operation wrote, row by row.
struct OpOutput {
  std::string name;
  Closeness closeness = Closeness::exact;
  std::vector<float> values;     ///< numbers, for comparison with a tolerance
  std::vector<std::byte> bytes;  ///< what was stored, for bit-exact comparison
  std::int64_t bytes_per_row = 0;
};

struct PreparedOp {
  std::shared_ptr<OpMemory> memory;
  std::function<void(Ops&, Stream&)> run;
  std::function<std::vector<OpOutput>()> outputs;
  double bytes = 0;  ///< moved at least: each operand and result once
  double flops = 0;  ///< multiplications and additions counted separately
};

struct OpCase {
  std::string op;
  std::string shape;
  std::int32_t sum_length = 1;   ///< terms of the longest sum
  std::int32_t max_rows = 8192;  ///< row ids stay below it
  /// Prepares the rows with the given ids, ascending. What row i holds depends on i only.
  std::function<PreparedOp(Device&, std::span<const std::int32_t> rows)> prepare;
};

// --- random content -----------------------------------------------------------------------------------------------

/// Row id kPoisoned + i is row i with one NaN in tensor kRowInput. For operations whose rows have no positions.
inline constexpr std::int32_t kPoisoned = 1 << 20;
inline constexpr std::uint32_t kRowInput = 1;

/// A small generator (splitmix64): a table of cases seeds one for every row of every tensor.
class RowRandom {
 public:
  using result_type = std::uint32_t;
  explicit RowRandom(std::uint64_t state) : state_(state) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = (state_ ^ state_ >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return static_cast<result_type>((z ^ z >> 31) >> 32);
  }

 private:
  std::uint64_t state_;
};

/// A generator for one row of one tensor.
[[nodiscard]] RowRandom row_random(std::uint32_t tensor, std::int64_t row);

/// Normal bf16 values, [rows, width].
[[nodiscard]] std::vector<bf16> random_bf16(std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width,
                                            float scale = 1.0F);
[[nodiscard]] std::vector<float> random_floats(std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width,
                                               float scale = 1.0F);
/// Uniform integers in [low, high].
[[nodiscard]] std::vector<std::int32_t> random_integers(std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width,
                                                        std::int32_t low, std::int32_t high);
/// Row ids 0 .. count - 1.
[[nodiscard]] std::vector<std::int32_t> first_rows(std::int32_t count);
/// Q8 rows of normal values.
[[nodiscard]] Q8Rows put_q8(OpMemory& memory, std::uint32_t tensor, std::span<const std::int32_t> rows, std::int64_t width);
/// A random weight of `n` rows; codes without NaN, scales around 1 / sqrt(k).
/// Rows [n, k] as the device wants them.
[[nodiscard]] Bf16Weight put_bf16_weight(OpMemory& memory, const std::vector<bf16>& rows, std::int64_t n, std::int64_t k);
[[nodiscard]] QuantWeight put_weight(OpMemory& memory, std::uint32_t tensor, WeightFormat format, std::int64_t n, std::int64_t k);
/// The same on the host: codes, then scales.
[[nodiscard]] std::pair<std::vector<std::uint8_t>, std::vector<std::uint8_t>> random_weight(std::uint32_t tensor, WeightFormat format,
                                                                                            std::int64_t n, std::int64_t k);
/// Stored bytes of a quantised weight, scales included.
[[nodiscard]] double weight_bytes(WeightFormat format, std::int64_t n, std::int64_t k);
/// cos and sin lines of the given positions, [rows, rope_dim / 2].
[[nodiscard]] RopeTable put_rope(OpMemory& memory, std::span<const std::int32_t> positions, std::int32_t rope_dim);

// --- outputs ------------------------------------------------------------------------------------------------------

template <class T>
[[nodiscard]] OpOutput make_output(std::string name, Closeness closeness, const std::vector<T>& stored, std::size_t rows,
                                   std::vector<float> values) {
  OpOutput out{std::move(name), closeness, std::move(values), {}, 0};
  out.bytes.resize(stored.size() * sizeof(T));
  if (!stored.empty()) {
    std::memcpy(out.bytes.data(), stored.data(), out.bytes.size());
  }
  out.bytes_per_row = rows == 0 ? 0 : static_cast<std::int64_t>(out.bytes.size() / rows);
  return out;
}

[[nodiscard]] OpOutput bf16_output(std::string name, const std::vector<bf16>& stored, std::size_t rows,
                                   Closeness closeness = Closeness::bf16);
[[nodiscard]] OpOutput float_output(std::string name, const std::vector<float>& stored, std::size_t rows);
template <class T>
[[nodiscard]] OpOutput exact_output(std::string name, const std::vector<T>& stored, std::size_t rows) {
  return make_output(std::move(name), Closeness::exact, stored, rows, {});
}
/// Number of rows of q8 that are not Q8(y): must be zero.
[[nodiscard]] OpOutput q8_consistency(OpMemory& memory, const Q8Rows& q8, const std::vector<bf16>& y, std::size_t rows);

// --- the table ----------------------------------------------------------------------------------------------------

/// Every operation with the shapes of the tiny and the nano model and odd ones.
[[nodiscard]] std::vector<OpCase> contract_table();
/// The widths of the released model (models/configs/deepseek-v4.1-flash.json) with fewer columns and experts, for few rows.
[[nodiscard]] std::vector<OpCase> real_table();

}  // namespace deepinfer::test
