// What quantised products read and write beside weights: Q8 rows decoded to what multiplies them, and results. Not here: the products.
#if defined(DEEPINFER_CPU_FAST_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_ACTIVATIONS_INL_H_
#undef DEEPINFER_CPU_FAST_ACTIVATIONS_INL_H_
#else
#define DEEPINFER_CPU_FAST_ACTIVATIONS_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/fast/amx.h"
#include "backends/cpu/fast/gemm-inl.h"
#include "backends/cpu/fast/pairs.h"
#include "backends/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// Rows of a Q8 matrix of width k: those listed, or every `stride`th from `first` on.
struct Q8Selection {
  Q8Rows x;
  std::int32_t rows;
  std::int32_t k;
  std::int64_t first = 0;
  std::int64_t stride = 1;
  const std::int32_t* list = nullptr;

  [[nodiscard]] HWY_INLINE std::int64_t source(std::int32_t row) const { return list != nullptr ? list[row] : first + row * stride; }
  [[nodiscard]] HWY_INLINE const std::uint8_t* codes(std::int32_t row) const { return row_at(x.codes, source(row), k); }
  [[nodiscard]] HWY_INLINE const std::uint8_t* scales(std::int32_t row) const { return row_at(x.scales, source(row), k / kQ8Group); }
};

#if HWY_TARGET == HWY_AVX3
/// visit(row, first value, number of values, their place, words from block to block) for the parts of rows of width k that lie in one panel.
template <class Visit>
HWY_INLINE void for_pair_pieces(const pairs::Tiling& tiling, std::int32_t k, const Visit& visit) {
  constexpr std::int32_t kWidth = pairs::kPanelBlocks * kUnitDepth;
  for (std::int32_t tile = 0; tile < tiling.count; ++tile) {
    const std::int32_t size = tiling.size(tile);
    for (std::int32_t r = 0; r < size; ++r) {
      for (std::int32_t begin = 0; begin < k; begin += kWidth) {
        const std::int64_t place = tiling.offset(begin / kWidth, tile) + std::int64_t{r} * pairs::kBlockWords;
        visit(tiling.first_row(tile) + r, begin, std::min(kWidth, k - begin), place, std::int64_t{size} * pairs::kBlockWords);
      }
    }
  }
}
#endif

/// Activations of one or several products, decoded once to what multiplies them.
class Activations {
 public:
  Activations(const Q8Selection& source, Scratch& scratch) : source_(source), scratch_(scratch) {}

  [[nodiscard]] std::int32_t rows() const { return source_.rows; }
  [[nodiscard]] std::int32_t k() const { return source_.k; }

#if HWY_TARGET == HWY_AVX3
  /// Rows of words for pairs of bf16, always with the same tiling.
  [[nodiscard]] pairs::Rows pair_rows(const pairs::Tiling& tiling) {
    if (words_ == nullptr) {
      words_ = scratch_.take<std::uint32_t>(tiling.num_words(source_.k / kUnitDepth));
      for_pair_pieces(tiling, source_.k, [&](std::int32_t row, std::int32_t k, std::int32_t width, std::int64_t place, std::int64_t block_stride) {
        add_range(pairs::decode_q8_row(source_.codes(row) + k, source_.scales(row) + k / kQ8Group, width, block_stride, words_ + place));
      });
    }
    return {words_, tiling};
  }

  /// The tiles of the matrix unit, bf16.
  [[nodiscard]] const std::uint16_t* tiles() {
    if (tiles_ == nullptr) {
      const amx::Tiling tiling = amx::tiling(source_.rows);
      const std::int64_t block_size = std::int64_t{tiling.rows} * amx::kTileDepth;
      const std::int64_t tile_size = source_.k / amx::kTileDepth * block_size;
      tiles_ = scratch_.take<std::uint16_t>(tiling.count * tile_size);
      for (std::int32_t r = 0; r < source_.rows; ++r) {
        std::uint16_t* out = tiles_ + r / tiling.rows * tile_size + std::int64_t{r % tiling.rows} * amx::kTileDepth;
        add_range(amx::decode_q8_row(source_.codes(r), source_.scales(r), source_.k, block_size, out));
      }
    }
    return tiles_;
  }

  /// Of the scales of what has been decoded so.
  [[nodiscard]] const ScaleRange& range() const { return range_; }
#endif

  /// [rows, k] fp32 in pair order.
  [[nodiscard]] Operand floats() {
    if (floats_ == nullptr) {
      floats_ = scratch_.take<float>(static_cast<std::int64_t>(source_.rows) * source_.k);
      for (std::int32_t r = 0; r < source_.rows; ++r) {
        decode_q8_pairs(source_.codes(r), source_.scales(r), source_.k, row_at(floats_, r, source_.k));
      }
    }
    return {floats_, source_.k, source_.rows, source_.k};
  }

 private:
  void add_range(const ScaleRange& range) { range_ = {std::min(range_.least, range.least), std::max(range_.most, range.most)}; }

  Q8Selection source_;
  Scratch& scratch_;
  float* floats_ = nullptr;
  std::uint32_t* words_ = nullptr;
  std::uint16_t* tiles_ = nullptr;
  ScaleRange range_;
};

/// Sixteen columns of results, the first `count` of them.
template <class T>
HWY_INLINE void put_unit(const F16& sums, std::int32_t count, T* y) {
  if (count == kUnit) {
    store16(sums, y);
    return;
  }
  HWY_ALIGN float values[kUnit];
  store16(sums, values);
  for (std::int32_t i = 0; i < count; ++i) {
    put(values[i], y + i);
  }
}

/// sums [rows, columns padded to units] to y.
template <class T>
HWY_INLINE void put_sums(const float* sums, std::int64_t stride, std::int32_t rows, std::int32_t columns, Output<T> y) {
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::int32_t c = 0; c < columns; c += kUnit) {
      put_unit(load16(sums + r * stride + c), std::min(kUnit, columns - c), y.at(r, c));
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
