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

/// A weight, and codes of as many bytes that are needed next: the memory brings them while this one is multiplied. May be null.
struct QuantFactor {
  QuantWeight weight;
  const std::uint8_t* next_codes = nullptr;
};

/// Asks the second cache for bytes that lie far away; the first would take fewer requests at a time.
HWY_INLINE void fetch(const std::uint8_t* data, std::int64_t size_bytes) {
  constexpr std::int64_t kLine = 64;
  constexpr int kRead = 0, kSecondCache = 2;
  for (std::int64_t at = 0; at < size_bytes; at += kLine) {
    __builtin_prefetch(data + at, kRead, kSecondCache);
  }
}

/// Columns of an FP8 weight [.., k], one scale per 32 x 32 block.
class Fp8Units {
 public:
  static constexpr WeightFormat kFormat = WeightFormat::fp8;

  Fp8Units(const QuantFactor& factor, std::int32_t k) : weight_(factor.weight), next_codes_(factor.next_codes), k_(k) {}

  [[nodiscard]] HWY_INLINE const QuantWeight& weight() const { return weight_; }
  [[nodiscard]] HWY_INLINE const std::uint8_t* next_codes() const { return next_codes_; }
  [[nodiscard]] HWY_INLINE const std::uint8_t* codes() const { return weight_.codes; }
  [[nodiscard]] HWY_INLINE WeightLayout layout() const { return weight_.layout; }
  [[nodiscard]] HWY_INLINE std::int64_t row_bytes() const { return k_; }
  [[nodiscard]] HWY_INLINE std::int32_t num_blocks() const { return k_ / kUnitDepth; }

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
  /// visit(pair, values) for the even or odd values of k of some pairs of a block, which lie together.
  static constexpr std::int32_t kStepPairs = 1;
  template <std::int32_t kOdd, class Visit>
  static HWY_INLINE void decode(const std::uint8_t* block, std::int32_t step, const Visit& visit) {
    visit(step, e4m3_half<kOdd>(block + 2 * kUnit * step));
  }

 private:
  [[nodiscard]] HWY_INLINE float scale_of(std::int32_t column, std::int32_t block) const {
    return ue8m0_to_float(weight_.scales[static_cast<std::int64_t>(column / kWeightBlock) * (k_ / kWeightBlock) + block]);
  }

  QuantWeight weight_;
  const std::uint8_t* next_codes_;
  std::int32_t k_;
};

/// The even or odd codes of eight k values of sixteen columns, packed as 32-bit words, as E2M1.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_AVX3

template <std::int32_t kOdd>
class E2m1Words {
 public:
  HWY_INLINE explicit E2m1Words(const std::uint32_t* words) : words_(words) {}

  /// The kPlace-th of the four.
  template <std::int32_t kPlace>
  [[nodiscard]] HWY_INLINE F16 at() const {
    F16 out;
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      const VU code = hn::ShiftRight<8 * kPlace + 4 * kOdd>(hn::LoadU(DU(), words_ + part * kLanes));
#if HWY_TARGET == HWY_AVX3
      // A register holds all sixteen values; the look-up takes the lowest four bits of an index.
      HWY_ALIGN static constexpr float kValues[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                      -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
      out.part[part] = hn::TableLookupLanes(hn::Load(DF(), kValues), hn::Indices512<float>{code.raw});
#else
      out.part[part] = hn::Set(DF(), e2m1_to_float(static_cast<std::uint8_t>(hn::GetLane(code) & 15U)));
#endif
    }
    return out;
  }

 private:
  const std::uint32_t* words_;
};

#else

/// The bytes of four words are transposed; two look-ups give the upper bytes of the values (the lower ones are zero).
template <std::int32_t kOdd>
class E2m1Words {
 public:
  HWY_INLINE explicit E2m1Words(const std::uint32_t* words) {
    const D8 d8;
    alignas(16) static constexpr std::uint8_t kTransposed[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    alignas(16) static constexpr std::uint8_t kHighest[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                              0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    alignas(16) static constexpr std::uint8_t kSecond[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                             0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    HWY_UNROLL(4)
    for (std::int32_t part = 0; part < kParts; ++part) {
      const auto own = hn::BitCast(d8, hn::LoadU(DU(), words + part * kLanes));
      const auto bytes = hn::BitCast(D16(), hn::TableLookupBytes(own, hn::LoadDup128(d8, kTransposed)));
      const auto codes = hn::And(hn::BitCast(d8, hn::ShiftRight<4 * kOdd>(bytes)), hn::Set(d8, 15));
      const auto highest = hn::TableLookupBytes(hn::LoadDup128(d8, kHighest), codes);
      const auto second = hn::TableLookupBytes(hn::LoadDup128(d8, kSecond), codes);
      places_[0][part] = hn::BitCast(D16(), hn::InterleaveLower(d8, second, highest));
      places_[1][part] = hn::BitCast(D16(), hn::InterleaveUpper(d8, second, highest));
    }
  }

  /// The kPlace-th of the four.
  template <std::int32_t kPlace>
  [[nodiscard]] HWY_INLINE F16 at() const {
    const D16 d16;
    F16 out;
    HWY_UNROLL(4)
    for (std::int32_t part = 0; part < kParts; ++part) {
      const auto both = places_[kPlace / 2][part];
      out.part[part] = hn::BitCast(DF(), kPlace % 2 == 0 ? hn::InterleaveLower(d16, hn::Zero(d16), both)
                                                         : hn::InterleaveUpper(d16, hn::Zero(d16), both));
    }
    return out;
  }

 private:
  using D8 = hn::Repartition<std::uint8_t, DU>;
  using D16 = hn::Repartition<std::uint16_t, DU>;

  hn::Vec<D16> places_[2][kParts];  ///< upper halves of places 0 and 1, and of 2 and 3
};

#endif

/// Columns of an FP4 weight, one scale per 32 k values of a column.
class Fp4Units {
 public:
  static constexpr WeightFormat kFormat = WeightFormat::fp4;

  Fp4Units(const QuantFactor& factor, std::int32_t k) : weight_(factor.weight), next_codes_(factor.next_codes), k_(k) {}

  [[nodiscard]] HWY_INLINE const QuantWeight& weight() const { return weight_; }
  [[nodiscard]] HWY_INLINE const std::uint8_t* next_codes() const { return next_codes_; }
  [[nodiscard]] HWY_INLINE const std::uint8_t* codes() const { return weight_.codes; }
  [[nodiscard]] HWY_INLINE WeightLayout layout() const { return weight_.layout; }
  [[nodiscard]] HWY_INLINE std::int64_t row_bytes() const { return k_ / 2; }
  [[nodiscard]] HWY_INLINE std::int32_t num_blocks() const { return k_ / kUnitDepth; }

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
  static constexpr std::int32_t kStepPairs = 4;  ///< of a 32-bit word
  template <std::int32_t kOdd, class Visit>
  static HWY_INLINE void decode(const std::uint8_t* block, std::int32_t step, const Visit& visit) {
    const E2m1Words<kOdd> words(reinterpret_cast<const std::uint32_t*>(block) + step * kUnit);
    visit(4 * step, words.template at<0>());
    visit(4 * step + 1, words.template at<1>());
    visit(4 * step + 2, words.template at<2>());
    visit(4 * step + 3, words.template at<3>());
  }

 private:
  QuantWeight weight_;
  const std::uint8_t* next_codes_;
  std::int32_t k_;
};

#if HWY_TARGET != HWY_SCALAR

/// visit(word, part, words) for the 32-bit words of sixteen rows of kRowBytes, the words of sixteen rows at one place together; rows beyond
/// `count` repeat the first.
template <std::int32_t kRowBytes, class Visit>
HWY_INLINE void visit_transposed(const std::uint8_t* rows, std::int64_t stride, std::int32_t count, const Visit& visit) {
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
        visit(first / 4 + i, part, columns.part[part]);
      }
    }
  }
}

#endif

/// One block from `count` rows of codes, `stride` bytes apart; columns beyond them repeat the first.
template <WeightFormat kFormat>
HWY_INLINE void pack_unit_block(const std::uint8_t* rows, std::int64_t stride, std::int32_t count, std::uint8_t* out) {
#if HWY_TARGET == HWY_SCALAR
  pack_block(kFormat, rows, stride, count, out);
#else
  visit_transposed<block_bytes(kFormat) / kUnit>(rows, stride, count, [&](std::int32_t word, std::int32_t part, VU columns) HWY_ATTR {
    if constexpr (kFormat == WeightFormat::fp4) {
      hn::StoreU(columns, DU(), reinterpret_cast<std::uint32_t*>(out) + word * kUnit + part * kLanes);
    } else {
      auto* pair = reinterpret_cast<std::uint16_t*>(out) + 2 * word * kUnit + part * kLanes;
      hn::StoreU(hn::TruncateTo(DHalf(), columns), DHalf(), pair);
      hn::StoreU(hn::TruncateTo(DHalf(), hn::ShiftRight<16>(columns)), DHalf(), pair + kUnit);
    }
  });
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

/// Room that unit_blocks needs to pack blocks.
[[nodiscard]] constexpr std::int64_t packed_bytes(WeightFormat format, std::int32_t num_blocks) {
  return std::int64_t{num_blocks} * (block_bytes(format) + kUnit);
}

/// Some blocks of at most sixteen columns; those of FP8 share a scale. Where they lie, or packed into `buffer` from rows.
template <class Units>
HWY_INLINE UnitBlocks unit_blocks(const Units& weights, Range columns, Range blocks, std::uint8_t* buffer) {
  constexpr std::int32_t kBytes = block_bytes(Units::kFormat);
  constexpr bool kIsFp8 = Units::kFormat == WeightFormat::fp8;
  const std::int64_t row_blocks = weights.row_bytes() * kUnit / kBytes;
  const std::uint8_t* scales = weights.weight().scales + (columns.begin / (kIsFp8 ? kWeightBlock : kUnit) * row_blocks + blocks.begin) * (kIsFp8 ? 1 : kUnit);
  if (weights.layout() == WeightLayout::units) {
    return {Units::kFormat, unit_block(weights, columns, blocks.begin, buffer), scales, blocks.size()};
  }
  for (std::int32_t block = 0; block < blocks.size(); ++block) {
    static_cast<void>(unit_block(weights, columns, blocks.begin + block, buffer + block * kBytes));
  }
  if constexpr (!kIsFp8) {
    std::uint8_t* own = buffer + blocks.size() * kBytes;
    for (std::int32_t i = 0; i < blocks.size() * kUnit; ++i) {
      own[i] = weights.weight().scales[std::min(columns.begin + i % kUnit, columns.end - 1) * row_blocks + blocks.begin + i / kUnit];
    }
    scales = own;
  }
  return {Units::kFormat, buffer, scales, blocks.size()};
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
