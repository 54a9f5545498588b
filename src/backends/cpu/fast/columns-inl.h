// Packed rows decoded across: the values of sixteen rows at one place, place by place, for kernels whose lanes are rows of a matrix
// (columns of a product, keys of an index). Bytes are transposed before they are decoded. Not here: decoding along a row (codecs-inl.h).
#if defined(DEEPINFER_CPU_FAST_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_COLUMNS_INL_H_
#undef DEEPINFER_CPU_FAST_COLUMNS_INL_H_
#else
#define DEEPINFER_CPU_FAST_COLUMNS_INL_H_
#endif

#include "backends/cpu/fast/codecs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kUnitRows = 16;    ///< rows that are decoded together
inline constexpr std::int32_t kUnitPlaces = 32;  ///< values of each row that are decoded together

/// Where the values of the rows begin.
template <class T>
struct UnitRows {
  const T* at[kUnitRows];
};

#if HWY_TARGET == HWY_SCALAR

/// write(place, F16 with one value per row) from value(row, place).
template <class Value, class Write>
HWY_INLINE void write_columns(const Value& value, const Write& write) {
  for (std::int32_t place = 0; place < kUnitPlaces; ++place) {
    F16 out;
    for (std::int32_t row = 0; row < kUnitRows; ++row) {
      out.part[row] = hn::Set(DF(), value(row, place));
    }
    write(place, out);
  }
}

template <class Write>
HWY_INLINE void e2m1_columns(const UnitRows<std::uint8_t>& rows, const Write& write) {
  write_columns([&](std::int32_t row, std::int32_t place) { return e2m1_to_float(nibble(rows.at[row], place)); }, write);
}

template <class Write>
HWY_INLINE void bf16_columns(const UnitRows<bf16>& rows, const Write& write) {
  write_columns([&](std::int32_t row, std::int32_t place) { return to_float(rows.at[row][place]); }, write);
}

#else

/// Sixteen rows of sixteen bytes become sixteen columns.
HWY_INLINE void transpose_bytes(V16Bytes (&a)[kUnitRows]) {
  const D16Bytes d;
  V16Bytes b[kUnitRows];
  // Interleaving rows i and i + 8 four times transposes sixteen rows of sixteen bytes.
  const auto interleave = [&](const V16Bytes(&from)[kUnitRows], V16Bytes(&to)[kUnitRows]) HWY_ATTR {
    HWY_UNROLL(8)
    for (std::int32_t i = 0; i < kUnitRows / 2; ++i) {
      to[2 * i] = hn::InterleaveLower(d, from[i], from[i + kUnitRows / 2]);
      to[2 * i + 1] = hn::InterleaveUpper(d, from[i], from[i + kUnitRows / 2]);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  interleave(b, a);
}

HWY_INLINE void load_transposed(const UnitRows<std::uint8_t>& rows, std::int32_t first, V16Bytes (&out)[kUnitRows]) {
  HWY_UNROLL(16)
  for (std::int32_t row = 0; row < kUnitRows; ++row) {
    out[row] = hn::LoadU(D16Bytes(), rows.at[row] + first);
  }
  transpose_bytes(out);
}

/// 32 packed E2M1 codes of sixteen rows: write(place, values).
template <class Write>
HWY_INLINE void e2m1_columns(const UnitRows<std::uint8_t>& rows, const Write& write) {
  const D16Bytes d;
  V16Bytes codes[kUnitRows];
  load_transposed(rows, 0, codes);
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kUnitRows; ++i) {
    write(2 * i, promote_high_bytes(half_high_bytes(hn::And(codes[i], hn::Set(d, 15)))));
    write(2 * i + 1, promote_high_bytes(half_high_bytes(hn::ShiftRight<4>(codes[i]))));
  }
}

using D4Words = hn::FixedTag<std::uint32_t, 4>;
using V4Words = hn::Vec<D4Words>;

/// Four words of each of four rows become four rows' words of one place: w[i] holds place i.
HWY_INLINE void transpose_words(V4Words (&w)[4]) {
  const D4Words d;
  const hn::Repartition<std::uint64_t, D4Words> d64;
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, w[0], w[1]));  // a0 b0 a1 b1
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, w[0], w[1]));
  const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(d, w[2], w[3]));
  const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(d, w[2], w[3]));
  w[0] = hn::BitCast(d, hn::InterleaveLower(d64, ab_low, cd_low));
  w[1] = hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, cd_low));
  w[2] = hn::BitCast(d, hn::InterleaveLower(d64, ab_high, cd_high));
  w[3] = hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, cd_high));
}

/// Sixteen words in the lanes of F16, from four of each quarter.
struct Words16 {
  VU part[kParts];
};

HWY_INLINE Words16 join_quarters(V4Words a, V4Words b, V4Words c, V4Words d) {
#if HWY_MAX_BYTES >= 64
  const hn::FixedTag<std::uint32_t, 8> half;
  return {{hn::Combine(DU(), hn::Combine(half, d, c), hn::Combine(half, b, a))}};
#elif HWY_MAX_BYTES == 32
  return {{hn::Combine(DU(), b, a), hn::Combine(DU(), d, c)}};
#else
  return {{a, b, c, d}};
#endif
}

/// 32 bf16 values of sixteen rows: write(place, values). A 32-bit word holds two values of a row.
template <class Write>
HWY_INLINE void bf16_columns(const UnitRows<bf16>& rows, const Write& write) {
  for (std::int32_t first = 0; first < kUnitPlaces; first += 8) {
    V4Words words[4][4];
    HWY_UNROLL(4)
    for (std::int32_t quarter = 0; quarter < 4; ++quarter) {
      HWY_UNROLL(4)
      for (std::int32_t i = 0; i < 4; ++i) {
        words[quarter][i] = hn::LoadU(D4Words(), reinterpret_cast<const std::uint32_t*>(rows.at[4 * quarter + i] + first));
      }
      transpose_words(words[quarter]);
    }
    HWY_UNROLL(4)
    for (std::int32_t i = 0; i < 4; ++i) {
      const Words16 pairs = join_quarters(words[0][i], words[1][i], words[2][i], words[3][i]);
      F16 even;
      F16 odd;
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        even.part[part] = hn::BitCast(DF(), hn::ShiftLeft<16>(pairs.part[part]));
        odd.part[part] = hn::BitCast(DF(), hn::And(pairs.part[part], hn::Set(DU(), 0xFFFF0000U)));
      }
      write(first + 2 * i, even);
      write(first + 2 * i + 1, odd);
    }
  }
}

#endif

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
