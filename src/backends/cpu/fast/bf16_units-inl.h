// bf16 matrices as operands of products: weights as units of sixteen columns for the kernels of quantised ones (units-inl.h), activations as
// what multiplies them. Not here: the products (bf16_products-inl.h).
#if defined(DEEPINFER_CPU_FAST_BF16_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_BF16_UNITS_INL_H_
#undef DEEPINFER_CPU_FAST_BF16_UNITS_INL_H_
#else
#define DEEPINFER_CPU_FAST_BF16_UNITS_INL_H_
#endif

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/bf16_columns.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

[[nodiscard]] constexpr std::int32_t padded_width(std::int32_t k) { return (k + kUnitDepth - 1) / kUnitDepth * kUnitDepth; }

/// Columns of a bf16 weight [n, k]; zeros follow up to a multiple of 32.
class Bf16Units {
 public:
  static constexpr Bf16Format kFormat{};

  Bf16Units(const Bf16Weight& weight, std::int32_t n, std::int32_t k) : weight_(weight), placed_(weight.values, n, k), k_(k) {}

  [[nodiscard]] HWY_INLINE bool is_placed() const { return weight_.layout == WeightLayout::units; }
  /// Of a weight in units.
  [[nodiscard]] HWY_INLINE const PlacedBf16& placed() const { return placed_; }
  /// Of a weight in rows.
  [[nodiscard]] HWY_INLINE const bf16* column(std::int32_t index) const { return row_at(weight_.values, index, k_); }
  [[nodiscard]] HWY_INLINE std::int32_t k() const { return k_; }

  [[nodiscard]] HWY_INLINE F16 scales(Range, std::int32_t) const {
    F16 out;
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      out.part[part] = hn::Set(DF(), 1.0F);
    }
    return out;
  }
  /// A block holds words of two values of k: for 16 pairs of k: for 16 columns.
  static constexpr std::int32_t kStepPairs = 1;
  template <std::int32_t kOdd, class Visit>
  static HWY_INLINE void decode(const std::uint8_t* block, std::int32_t step, const Visit& visit) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(block) + step * kUnit;
    F16 out;
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      const VU both = hn::LoadU(DU(), words + part * kLanes);
      out.part[part] = hn::BitCast(DF(), kOdd == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, hn::Set(DU(), 0xFFFF0000U)));
    }
    visit(step, out);
  }

 private:
  Bf16Weight weight_;
  PlacedBf16 placed_;
  std::int32_t k_;
};

/// A block of a unit with words of neighbours in k instead of those of pairs.h, in `buffer`.
HWY_INLINE const std::uint8_t* plain_block(const std::uint32_t* words, std::uint8_t* buffer) {
  auto* out = reinterpret_cast<std::uint32_t*>(buffer);
  const VU upper_half = hn::Set(DU(), 0xFFFF0000U);
  for (std::int32_t i = 0; i < kBlockPairs * kUnit; i += 2 * kUnit) {
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kUnit; part += kLanes) {
      const VU even = hn::LoadU(DU(), words + i + part);         // k in the upper halves, k + 2 in the lower ones
      const VU odd = hn::LoadU(DU(), words + i + kUnit + part);  // k + 1 and k + 3
      hn::StoreU(hn::Or(hn::ShiftRight<16>(even), hn::And(odd, upper_half)), DU(), out + i + part);
      hn::StoreU(hn::Or(hn::AndNot(upper_half, even), hn::ShiftLeft<16>(odd)), DU(), out + i + kUnit + part);
    }
  }
  return buffer;
}

/// Sixteen columns, or fewer, in `buffer`: rows are transposed.
HWY_INLINE const std::uint8_t* unit_block(const Bf16Units& weights, Range columns, std::int32_t block, std::uint8_t* buffer) {
  if (weights.is_placed()) {
    return plain_block(weights.placed().block(columns.begin, block), buffer);
  }
  constexpr std::int32_t kRowBytes = 2 * kUnitDepth;
  const std::int32_t k = block * kUnitDepth;
  const bf16* first = weights.column(columns.begin) + k;
  std::int32_t stride = weights.k();
  bf16 padded[kUnit * kUnitDepth];
  if (k + kUnitDepth > weights.k()) {
    std::fill_n(padded, kUnit * kUnitDepth, bf16{});
    for (std::int32_t column = 0; column < columns.size(); ++column) {
      std::copy_n(weights.column(columns.begin + column) + k, weights.k() - k, padded + column * kUnitDepth);
    }
    first = padded;
    stride = kUnitDepth;
  }
  const auto* rows = reinterpret_cast<const std::uint8_t*>(first);
  const std::int64_t stride_bytes = std::int64_t{2} * stride;
#if HWY_TARGET == HWY_SCALAR
  pack_block_words<std::uint32_t>(rows, stride_bytes, columns.size(), kRowBytes, buffer);
#else
  visit_transposed<kRowBytes>(rows, stride_bytes, columns.size(), [&](std::int32_t word, std::int32_t part, VU values) HWY_ATTR {
    hn::StoreU(values, DU(), reinterpret_cast<std::uint32_t*>(buffer) + word * kUnit + part * kLanes);
  });
#endif
  return buffer;
}

/// 32 bf16 values from `p`, of which only `count` exist; the rest is zero.
HWY_INLINE Pairs bf16_pairs_within(const bf16* p, std::int32_t count) {
  if (count >= kUnitDepth) {
    return bf16_pairs(p);
  }
  bf16 values[kUnitDepth] = {};
  std::copy_n(p, count, values);
  return bf16_pairs(values);
}

/// Rows of a bf16 matrix of width k: those listed, or all from `x` on.
struct Bf16Selection {
  const bf16* x;
  std::int32_t rows;
  std::int32_t k;
  const std::int32_t* list = nullptr;

  [[nodiscard]] HWY_INLINE const bf16* row(std::int32_t index) const { return row_at(x, list != nullptr ? list[index] : index, k); }
};

/// Activations of a product, laid out for what multiplies them; zeros follow up to a multiple of 32.
class Bf16Activations {
 public:
  Bf16Activations(const Bf16Selection& source, Scratch& scratch) : source_(source), scratch_(scratch), k_(padded_width(source.k)) {}

  [[nodiscard]] std::int32_t rows() const { return source_.rows; }
  [[nodiscard]] std::int32_t k() const { return k_; }

#if HWY_TARGET == HWY_AVX3
  /// Rows of words for pairs of bf16, always with the same tiling.
  [[nodiscard]] pairs::Rows pair_rows(const pairs::Tiling& tiling) {
    if (words_ == nullptr) {
      words_ = scratch_.take<std::uint32_t>(tiling.num_words(k_ / kUnitDepth));
      for_pair_pieces(tiling, source_.k, [&](std::int32_t row, std::int32_t k, std::int32_t width, std::int64_t place, std::int64_t block_stride) {
        add_exponent(bf16_columns::pack_words(bits(row) + k, width, block_stride, words_ + place));
      });
    }
    return {words_, tiling};
  }

  /// The tiles of the matrix unit.
  [[nodiscard]] const std::uint16_t* tiles() {
    if (tiles_ == nullptr) {
      const amx::Tiling tiling = amx::tiling(source_.rows);
      const std::int64_t block_size = std::int64_t{tiling.rows} * amx::kTileDepth;
      const std::int64_t tile_size = k_ / amx::kTileDepth * block_size;
      tiles_ = scratch_.take<std::uint16_t>(tiling.count * tile_size);
      for (std::int32_t r = 0; r < source_.rows; ++r) {
        std::uint16_t* out = tiles_ + r / tiling.rows * tile_size + std::int64_t{r % tiling.rows} * amx::kTileDepth;
        add_exponent(bf16_columns::pack_tile_row(bits(r), source_.k, block_size, out));
      }
    }
    return tiles_;
  }

  /// The least exponent of what has been laid out so.
  [[nodiscard]] std::int32_t least_exponent() const { return least_exponent_; }
#endif

  /// [rows, k] fp32 in pair order.
  [[nodiscard]] Operand floats() {
    if (floats_ == nullptr) {
      floats_ = scratch_.take<float>(static_cast<std::int64_t>(source_.rows) * k_);
      for (std::int32_t r = 0; r < source_.rows; ++r) {
        for (std::int32_t i = 0; i < k_; i += kUnitDepth) {
          store_pairs(bf16_pairs_within(source_.row(r) + i, source_.k - i), row_at(floats_, r, k_) + i);
        }
      }
    }
    return {floats_, k_, source_.rows, k_};
  }

 private:
  [[nodiscard]] const std::uint16_t* bits(std::int32_t row) const { return reinterpret_cast<const std::uint16_t*>(source_.row(row)); }
  void add_exponent(std::int32_t exponent) { least_exponent_ = std::min(least_exponent_, exponent); }

  Bf16Selection source_;
  Scratch& scratch_;
  std::int32_t k_;
  std::int32_t least_exponent_ = bf16_columns::kNoExponent;
  float* floats_ = nullptr;
  std::uint32_t* words_ = nullptr;
  std::uint16_t* tiles_ = nullptr;
};

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
