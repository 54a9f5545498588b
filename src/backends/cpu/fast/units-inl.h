// Blocks of packed weights (packed_weights.h) as values: lanes of a register are the sixteen columns of a unit. The order of every sum over
// quantised weights: for each 32 values of k, ascending, the 16 even ones and the 16 odd ones are summed from zero, ascending; the two are
// added, and the result times the scale of the weight is added to the total. It is the order of the matrix unit (amx.h) and cheap elsewhere.
// Scales are powers of two, so it does not matter where they are applied. Weight codes hold no NaN.
#if defined(DEEPINFER_CPU_FAST_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_UNITS_INL_H_
#undef DEEPINFER_CPU_FAST_UNITS_INL_H_
#else
#define DEEPINFER_CPU_FAST_UNITS_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/fast/columns-inl.h"
#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/fast/packed_weights.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kBlockPairs = kUnitDepth / 2;  ///< even and odd values of k of a block

/// One number per column, from UE8M0 bytes.
HWY_INLINE F16 unit_scales(const std::uint8_t* bytes) {
  F16 out;
  HWY_UNROLL(16)
  for (std::int32_t part = 0; part < kParts; ++part) {
#if HWY_TARGET == HWY_SCALAR
    out.part[part] = hn::Set(DF(), ue8m0_to_float(bytes[part]));
#else
    const VU exponent = hn::PromoteTo(DU(), hn::LoadU(DByte(), bytes + part * kLanes));
    // 2^-127 is a subnormal number.
    const VU bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(DU())), hn::Set(DU(), 0x00400000U), hn::ShiftLeft<23>(exponent));
    out.part[part] = hn::BitCast(DF(), bits);
#endif
  }
  return out;
}

/// Columns of an FP8 weight [.., k], one scale per 32 x 32 block.
class Fp8Units {
 public:
  static constexpr WeightFormat kFormat = WeightFormat::fp8;

  Fp8Units(const QuantWeight& weight, std::int32_t k) : weight_(weight), k_(k) {}

  [[nodiscard]] HWY_INLINE const std::uint8_t* codes() const { return weight_.codes; }
  [[nodiscard]] HWY_INLINE WeightLayout layout() const { return weight_.layout; }
  [[nodiscard]] HWY_INLINE std::int64_t row_bytes() const { return k_; }

  /// Of at most sixteen columns, for a block; times what decoding leaves out.
  [[nodiscard]] HWY_INLINE F16 scales(Range columns, std::int32_t block) const {
    F16 out;
    if (columns.begin / kWeightBlock == (columns.end - 1) / kWeightBlock) {
      const VF scale = hn::Set(DF(), scale_of(columns.begin, block) * kHalfFactor);
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        out.part[part] = scale;
      }
      return out;
    }
    HWY_ALIGN float values[kUnit];
    for (std::int32_t i = 0; i < kUnit; ++i) {
      values[i] = scale_of(std::min(columns.begin + i, columns.end - 1), block) * kHalfFactor;
    }
    return load16(values);
  }
  /// visit(pair, even, odd) for the 16 pairs of a block.
  template <class Visit>
  static HWY_INLINE void decode(const std::uint8_t* block, const Visit& visit) {
    HWY_UNROLL(4)
    for (std::int32_t pair = 0; pair < kBlockPairs; ++pair) {
      const Pairs w = e4m3_pairs(block + 2 * kUnit * pair);
      visit(pair, w.even, w.odd);
    }
  }

 private:
  [[nodiscard]] HWY_INLINE float scale_of(std::int32_t column, std::int32_t block) const {
    return ue8m0_to_float(weight_.scales[static_cast<std::int64_t>(column / kWeightBlock) * (k_ / kWeightBlock) + block]);
  }

  QuantWeight weight_;
  std::int32_t k_;
};

/// Nibble kPlace of each 32-bit word as E2M1.
template <std::int32_t kPlace>
HWY_INLINE F16 e2m1_nibbles(const VU (&words)[kParts]) {
  [[maybe_unused]] const DU du;
  F16 out;
  HWY_UNROLL(16)
  for (std::int32_t part = 0; part < kParts; ++part) {
    const VU code = hn::ShiftRight<4 * kPlace>(words[part]);
#if HWY_TARGET == HWY_AVX3
    // A register holds all sixteen values; the look-up takes the lowest four bits of an index (AVX2: three).
    HWY_ALIGN static constexpr float kValues[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                    -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
    out.part[part] = hn::TableLookupLanes(hn::Load(DF(), kValues), hn::Indices512<float>{code.raw});
#else
    const VU sign = hn::And(hn::ShiftLeft<28 - 4 * kPlace>(words[part]), hn::Set(du, 0x80000000U));
#if HWY_TARGET == HWY_AVX2
    HWY_ALIGN static constexpr float kValues[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    const VF magnitude = hn::TableLookupLanes(hn::Load(DF(), kValues), hn::Indices256<float>{code.raw});
#else
    // The code at the lowest bit of the exponent and the highest of the mantissa; below 1 the leading bit is taken away.
    const VU bits = hn::And(code, hn::Set(du, 7));
    const VF normal = hn::BitCast(DF(), hn::Add(hn::ShiftLeft<22>(bits), hn::Set(du, 126U << 23)));
    const VF one = hn::Set(DF(), 1.0F);
    const VF magnitude = hn::IfThenElse(hn::Lt(normal, one), hn::Sub(hn::Add(normal, normal), one), normal);
#endif
    out.part[part] = hn::BitCast(DF(), hn::Or(hn::BitCast(du, magnitude), sign));
#endif
  }
  return out;
}

/// Columns of an FP4 weight, one scale per 32 k values of a column.
class Fp4Units {
 public:
  static constexpr WeightFormat kFormat = WeightFormat::fp4;

  Fp4Units(const QuantWeight& weight, std::int32_t k) : weight_(weight), k_(k) {}

  [[nodiscard]] HWY_INLINE const std::uint8_t* codes() const { return weight_.codes; }
  [[nodiscard]] HWY_INLINE WeightLayout layout() const { return weight_.layout; }
  [[nodiscard]] HWY_INLINE std::int64_t row_bytes() const { return k_ / 2; }

  [[nodiscard]] HWY_INLINE F16 scales(Range columns, std::int32_t block) const {
    const std::int64_t num_blocks = k_ / kWeightBlock;
    if (weight_.layout == WeightLayout::units) {
      return unit_scales(weight_.scales + (columns.begin / kUnit * num_blocks + block) * kUnit);
    }
    HWY_ALIGN std::uint8_t bytes[kUnit];
    for (std::int32_t i = 0; i < kUnit; ++i) {
      bytes[i] = weight_.scales[std::min(columns.begin + i, columns.end - 1) * num_blocks + block];
    }
    return unit_scales(bytes);
  }
  template <class Visit>
  static HWY_INLINE void decode(const std::uint8_t* block, const Visit& visit) {
    HWY_UNROLL(4)
    for (std::int32_t word = 0; word < kUnitDepth / 8; ++word) {
      VU words[kParts];
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        words[part] = hn::LoadU(DU(), reinterpret_cast<const std::uint32_t*>(block) + word * kUnit + part * kLanes);
      }
      visit(4 * word, e2m1_nibbles<0>(words), e2m1_nibbles<1>(words));
      visit(4 * word + 1, e2m1_nibbles<2>(words), e2m1_nibbles<3>(words));
      visit(4 * word + 2, e2m1_nibbles<4>(words), e2m1_nibbles<5>(words));
      visit(4 * word + 3, e2m1_nibbles<6>(words), e2m1_nibbles<7>(words));
    }
  }

 private:
  QuantWeight weight_;
  std::int32_t k_;
};

/// One block from `count` rows of codes, `stride` bytes apart; columns beyond them repeat the first.
template <WeightFormat kFormat>
HWY_INLINE void pack_unit_block(const std::uint8_t* rows, std::int64_t stride, std::int32_t count, std::uint8_t* out) {
#if HWY_TARGET == HWY_SCALAR
  pack_block(kFormat, rows, stride, count, out);
#else
  constexpr std::int32_t kRowBytes = block_bytes(kFormat) / kUnit;
  for (std::int32_t first = 0; first < kRowBytes; first += 16) {
    V4Words words[4][4];
    HWY_UNROLL(4)
    for (std::int32_t quarter = 0; quarter < 4; ++quarter) {
      HWY_UNROLL(4)
      for (std::int32_t i = 0; i < 4; ++i) {
        const std::int32_t row = 4 * quarter + i;
        words[quarter][i] = hn::LoadU(D4Words(), reinterpret_cast<const std::uint32_t*>(rows + (row < count ? row : 0) * stride + first));
      }
      transpose_words(words[quarter]);
    }
    HWY_UNROLL(4)
    for (std::int32_t i = 0; i < 4; ++i) {
      const Words16 columns = join_quarters(words[0][i], words[1][i], words[2][i], words[3][i]);
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        if constexpr (kFormat == WeightFormat::fp4) {
          hn::StoreU(columns.part[part], DU(), reinterpret_cast<std::uint32_t*>(out) + (first / 4 + i) * kUnit + part * kLanes);
        } else {
          auto* pair = reinterpret_cast<std::uint16_t*>(out) + (first / 2 + 2 * i) * kUnit + part * kLanes;
          hn::StoreU(hn::TruncateTo(DHalf(), columns.part[part]), DHalf(), pair);
          hn::StoreU(hn::TruncateTo(DHalf(), hn::ShiftRight<16>(columns.part[part])), DHalf(), pair + kUnit);
        }
      }
    }
  }
#endif
}

/// Block `block` of at most sixteen columns: where it lies, or packed into `buffer` from rows.
template <class Units>
HWY_INLINE const std::uint8_t* unit_block(const Units& weights, Range columns, std::int32_t block, std::uint8_t* buffer) {
  constexpr std::int32_t kBytes = block_bytes(Units::kFormat);
  if (weights.layout() == WeightLayout::units) {
    return weights.codes() + static_cast<std::int64_t>(columns.begin) * weights.row_bytes() + static_cast<std::int64_t>(block) * kBytes;
  }
  pack_unit_block<Units::kFormat>(weights.codes() + columns.begin * weights.row_bytes() + block * (kBytes / kUnit), weights.row_bytes(),
                                  columns.size(), buffer);
  return buffer;
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
