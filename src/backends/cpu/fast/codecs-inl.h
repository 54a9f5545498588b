// Vector forms of the number formats: decoding of packed weights, activations and cached rows; the block quantisers.
// Bit-equal to tensor/formats.h and block_codecs.h (tests/backends/codecs_test.cpp compares every code).
//
// Pair order: 32 consecutive values are held as their 16 even ones, then their 16 odd ones. Packed formats unpack to this order with the
// fewest steps, and lane i of a sum takes k = 32 g + 2 i and 32 g + 2 i + 1 for ascending g. Plain order is used where lanes are columns.
#if defined(DEEPINFER_CPU_FAST_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_CODECS_INL_H_
#undef DEEPINFER_CPU_FAST_CODECS_INL_H_
#else
#define DEEPINFER_CPU_FAST_CODECS_INL_H_
#endif

#include <limits>

#include "backends/cpu/block_codecs.h"
#include "backends/cpu/fast/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// 32 consecutive values in pair order.
struct Pairs {
  F16 even;
  F16 odd;
};

HWY_INLINE Pairs scale_pairs(Pairs v, float scale) {
  const VF s = hn::Set(DF(), scale);
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; ++i) {
    v.even.part[i] = hn::Mul(v.even.part[i], s);
    v.odd.part[i] = hn::Mul(v.odd.part[i], s);
  }
  return v;
}

HWY_INLINE void store_pairs(const Pairs& v, float* out) {
  store16(v.even, out);
  store16(v.odd, out + kVirtualLanes);
}

// --- E4M3 ---------------------------------------------------------------------------------------------------------
// The bits s eeee mmm of a code, moved into a half float s 0eeee mmm0000000, read value * 2^-8; subnormals come out right.
// NaN codes read as 480 * 2^-8: decode_* of activations repair them, weights hold none.

inline constexpr float kHalfFactor = 256.0F;            ///< undoes the 2^-8
inline constexpr float kLargestHalf = 448.0F / 256.0F;  ///< of finite codes

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE VF e4m3_times_half_factor(std::uint8_t code) {
  const float magnitude = (code & 0x7FU) == 0x7FU ? 480.0F : e4m3_to_float(code & 0x7FU);
  return hn::Set(DF(), ((code & 0x80U) != 0 ? -magnitude : magnitude) / kHalfFactor);
}

/// Values * 2^-8 of the even or the odd ones of 32 codes.
template <std::int32_t kOdd>
HWY_INLINE F16 e4m3_half(const std::uint8_t* codes) {
  F16 out;
  for (std::int32_t i = 0; i < kVirtualLanes; ++i) {
    out.part[i] = e4m3_times_half_factor(codes[2 * i + kOdd]);
  }
  return out;
}

/// Values * 2^-8 of kLanes consecutive codes.
HWY_INLINE VF e4m3_plain(const std::uint8_t* codes) { return e4m3_times_half_factor(*codes); }

/// Values of 32 packed codes.
HWY_INLINE Pairs e2m1_pairs(const std::uint8_t* packed) {
  Pairs out;
  for (std::int32_t i = 0; i < kVirtualLanes; ++i) {
    out.even.part[i] = hn::Set(DF(), e2m1_to_float(packed[i] & 15U));
    out.odd.part[i] = hn::Set(DF(), e2m1_to_float(packed[i] >> 4));
  }
  return out;
}

/// Values of 32 packed codes in plain order.
HWY_INLINE void e2m1_plain(const std::uint8_t* packed, F16& low, F16& high) {
  for (std::int32_t i = 0; i < kVirtualLanes; ++i) {
    low.part[i] = hn::Set(DF(), e2m1_to_float(nibble(packed, i)));
    high.part[i] = hn::Set(DF(), e2m1_to_float(nibble(packed, kVirtualLanes + i)));
  }
}

#else

using DFloat16 = hn::Rebind<hwy::float16_t, DF>;

HWY_INLINE VF promote_half_bits(hn::Vec<DHalf> bits) { return hn::PromoteTo(DF(), hn::BitCast(DFloat16(), bits)); }

template <class DWord>
HWY_INLINE hn::Vec<DWord> half_bits_of_high_byte(DWord dw, hn::Vec<DWord> words) {
  const hn::RebindToSigned<DWord> ds;
  return hn::And(hn::BitCast(dw, hn::ShiftRight<1>(hn::BitCast(ds, words))), hn::Set(dw, 0xBF80U));
}

/// Values * 2^-8 of the even or the odd ones of 32 codes.
template <std::int32_t kOdd>
HWY_INLINE F16 e4m3_half(const std::uint8_t* codes) {
  F16 out;
  const auto half_bits = [](auto dw, auto words) HWY_ATTR { return half_bits_of_high_byte(dw, kOdd == 0 ? hn::ShiftLeft<8>(words) : words); };
#if HWY_MAX_BYTES >= 64
  const DHalf dw;
  out.part[0] = promote_half_bits(half_bits(dw, hn::LoadU(dw, reinterpret_cast<const std::uint16_t*>(codes))));
#else
  const hn::Repartition<std::uint16_t, DF> dw;
  const DHalf dh;
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; i += 2) {
    const auto bits = half_bits(dw, hn::LoadU(dw, reinterpret_cast<const std::uint16_t*>(codes + 2 * i * kLanes)));
    out.part[i] = promote_half_bits(hn::LowerHalf(dh, bits));
    out.part[i + 1] = promote_half_bits(hn::UpperHalf(dh, bits));
  }
#endif
  return out;
}

/// Values * 2^-8 of kLanes consecutive codes.
HWY_INLINE VF e4m3_plain(const std::uint8_t* codes) {
  const hn::Rebind<std::int16_t, DF> ds;
  const hn::Rebind<std::int8_t, DF> db;
  const auto extended = hn::PromoteTo(ds, hn::LoadU(db, reinterpret_cast<const std::int8_t*>(codes)));
  return promote_half_bits(hn::And(hn::BitCast(DHalf(), hn::ShiftLeft<7>(extended)), hn::Set(DHalf(), 0xBF80U)));
}

using D16Bytes = hn::FixedTag<std::uint8_t, 16>;
using V16Bytes = hn::Vec<D16Bytes>;

/// Sixteen E2M1 codes to the upper bytes of their half floats (the lower bytes are zero).
HWY_INLINE V16Bytes half_high_bytes(V16Bytes codes) {
  alignas(16) static constexpr std::uint8_t kTable[16] = {0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46,
                                                          0x80, 0xB8, 0xBC, 0xBE, 0xC0, 0xC2, 0xC4, 0xC6};
  return hn::TableLookupBytes(hn::Load(D16Bytes(), kTable), codes);
}

HWY_INLINE F16 promote_high_bytes(V16Bytes bytes) {
  F16 out;
#if HWY_MAX_BYTES >= 64
  out.part[0] = promote_half_bits(hn::ShiftLeft<8>(hn::PromoteTo(DHalf(), bytes)));
#else
  const D16Bytes d;
  const hn::FixedTag<std::uint16_t, 8> dw;
  const auto low = hn::BitCast(dw, hn::InterleaveLower(d, hn::Zero(d), bytes));
  const auto high = hn::BitCast(dw, hn::InterleaveUpper(d, hn::Zero(d), bytes));
#if HWY_MAX_BYTES == 32
  out.part[0] = promote_half_bits(low);
  out.part[1] = promote_half_bits(high);
#else
  const DHalf dh;
  out.part[0] = promote_half_bits(hn::LowerHalf(dh, low));
  out.part[1] = promote_half_bits(hn::UpperHalf(dh, low));
  out.part[2] = promote_half_bits(hn::LowerHalf(dh, high));
  out.part[3] = promote_half_bits(hn::UpperHalf(dh, high));
#endif
#endif
  return out;
}

/// Values of 32 packed codes.
HWY_INLINE Pairs e2m1_pairs(const std::uint8_t* packed) {
#if HWY_MAX_BYTES >= 64
  // A register holds all sixteen values.
  HWY_ALIGN static constexpr float kValues[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                                  -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  const VF values = hn::Load(DF(), kValues);
  const VU codes = hn::PromoteTo(DU(), hn::LoadU(D16Bytes(), packed));
  Pairs out;
  out.even.part[0] = hn::TableLookupLanes(values, hn::IndicesFromVec(DF(), hn::And(codes, hn::Set(DU(), 15))));
  out.odd.part[0] = hn::TableLookupLanes(values, hn::IndicesFromVec(DF(), hn::ShiftRight<4>(codes)));
  return out;
#else
  const D16Bytes d;
  const V16Bytes bytes = hn::LoadU(d, packed);
  const V16Bytes low = half_high_bytes(hn::And(bytes, hn::Set(d, 15)));
  const V16Bytes high = half_high_bytes(hn::ShiftRight<4>(bytes));
  return {promote_high_bytes(low), promote_high_bytes(high)};
#endif
}

/// Values of 32 packed codes in plain order.
HWY_INLINE void e2m1_plain(const std::uint8_t* packed, F16& low, F16& high) {
  const D16Bytes d;
  const V16Bytes bytes = hn::LoadU(d, packed);
  const V16Bytes even = half_high_bytes(hn::And(bytes, hn::Set(d, 15)));
  const V16Bytes odd = half_high_bytes(hn::ShiftRight<4>(bytes));
  low = promote_high_bytes(hn::InterleaveLower(d, even, odd));
  high = promote_high_bytes(hn::InterleaveUpper(d, even, odd));
}

#endif

/// Values * 2^-8 of 32 codes.
HWY_INLINE Pairs e4m3_pairs(const std::uint8_t* codes) { return {e4m3_half<0>(codes), e4m3_half<1>(codes)}; }

/// bf16 in pair order: the two halves of each 32-bit word.
HWY_INLINE Pairs bf16_pairs(const bf16* p) {
  const DU du;
  Pairs out;
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; ++i) {
    const VU words = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(p + 2 * i * kLanes));
    out.even.part[i] = hn::BitCast(DF(), hn::ShiftLeft<16>(words));
    out.odd.part[i] = hn::BitCast(DF(), hn::And(words, hn::Set(du, 0xFFFF0000U)));
  }
  return out;
}

/// NaN where the code was NaN; v holds value * 2^-8.
HWY_INLINE VF repair_nan(VF v) {
  const DF d;
  return hn::IfThenElse(hn::Gt(hn::Abs(v), hn::Set(d, kLargestHalf)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), v);
}

/// Q8 row of `width` values to fp32 in pair order, NaN codes included.
inline void decode_q8_pairs(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, float* out) {
  for (std::int32_t i = 0; i < width; i += kQ8Group) {
    Pairs v = e4m3_pairs(codes + i);
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      v.even.part[part] = repair_nan(v.even.part[part]);
      v.odd.part[part] = repair_nan(v.odd.part[part]);
    }
    store_pairs(scale_pairs(scale_pairs(v, kHalfFactor), ue8m0_to_float(scales[i / kQ8Group])), out + i);
  }
}

/// Q8 row to fp32 in plain order.
inline void decode_q8_plain(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, float* out) {
  const DF d;
  for (std::int32_t group = 0; group < width / kQ8Group; ++group) {
    const VF scale = hn::Set(d, ue8m0_to_float(scales[group]));
    HWY_UNROLL(32)
    for (std::int32_t i = 0; i < kQ8Group; i += kLanes) {
      const VF v = repair_nan(e4m3_plain(codes + group * kQ8Group + i));
      store(hn::Mul(hn::Mul(v, hn::Set(d, kHalfFactor)), scale), out + group * kQ8Group + i);
    }
  }
}

/// Packed E2M1 codes with one factor per 16 values, plain order. width: multiple of 32.
template <class Factor>
HWY_INLINE void decode_e2m1_plain(const std::uint8_t* packed, std::int32_t width, const Factor& factor, float* out) {
  for (std::int32_t i = 0; i < width; i += 2 * kVirtualLanes) {
    F16 low;
    F16 high;
    e2m1_plain(packed + i / 2, low, high);
    const VF scale_low = hn::Set(DF(), factor(i / kVirtualLanes));
    const VF scale_high = hn::Set(DF(), factor(i / kVirtualLanes + 1));
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      low.part[part] = hn::Mul(low.part[part], scale_low);
      high.part[part] = hn::Mul(high.part[part], scale_high);
    }
    store16(low, out + i);
    store16(high, out + i + kVirtualLanes);
  }
}

// --- block quantisers ---------------------------------------------------------------------------------------------

/// E4M3 codes of values, in the low byte of each lane.
HWY_INLINE VU e4m3_codes(VF v) {
  const DF d;
  const DU du;
  const VU bits = hn::BitCast(du, v);
  const VU sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80U));
  const VF magnitude = hn::Min(hn::Abs(v), hn::Set(d, kE4M3Max));
  const VU m = hn::BitCast(du, magnitude);
  const VU bias = hn::Add(hn::Set(du, 0x7FFFFU), hn::And(hn::ShiftRight<20>(m), hn::Set(du, 1U)));
  const VU normal = hn::Sub(hn::ShiftRight<20>(hn::Add(m, bias)), hn::Set(du, 120U << 3));
  // Adding 2^14 puts the step 2^-9 of subnormal codes at the last mantissa bit.
  const VU subnormal = hn::And(hn::BitCast(du, hn::Add(magnitude, hn::Set(d, 0x1p14F))), hn::Set(du, 0xFU));
  const VU code = hn::IfThenElse(hn::RebindMask(du, hn::Lt(magnitude, hn::Set(d, 0x1p-6F))), subnormal, normal);
  return hn::Or(sign, hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 0x7FU), code));
}

/// E2M1 codes of values, in the low nibble of each lane.
HWY_INLINE VU e2m1_codes(VF v) {
  const DF d;
  const DU du;
  const VF m = hn::Abs(v);
  const VU one = hn::Set(du, 1U);
  const auto step = [&](auto mask) HWY_ATTR { return hn::IfThenElseZero(hn::RebindMask(du, mask), one); };
  VU code = hn::Add(step(hn::Gt(m, hn::Set(d, 0.25F))), step(hn::Ge(m, hn::Set(d, 0.75F))));
  code = hn::Add(code, hn::Add(step(hn::Gt(m, hn::Set(d, 1.25F))), step(hn::Ge(m, hn::Set(d, 1.75F)))));
  code = hn::Add(code, hn::Add(step(hn::Gt(m, hn::Set(d, 2.5F))), step(hn::Ge(m, hn::Set(d, 3.5F)))));
  code = hn::Add(code, step(hn::Gt(m, hn::Set(d, 5.0F))));
  code = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 7U), code);
  return hn::Or(code, hn::And(hn::ShiftRight<28>(hn::BitCast(du, v)), hn::Set(du, 8U)));
}

/// Largest magnitude of kCount values, at least `floor`; NaN is skipped.
template <std::int32_t kCount>
HWY_INLINE float largest_magnitude(const float* x, float floor) {
  const DF d;
  VF largest = hn::Set(d, floor);
  HWY_UNROLL(32)
  for (std::int32_t i = 0; i < kCount; i += kLanes) {
    const VF v = load(x + i);
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Eq(v, v), hn::Abs(v)));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

/// Q8 of `width` values that are exact in bf16.
inline void quantise_q8_row(const float* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales) {
  const DF d;
  for (std::int32_t group = 0; group < width / kQ8Group; ++group) {
    const float* values = x + group * kQ8Group;
    const std::uint8_t scale = power_of_two_scale(largest_magnitude<kQ8Group>(values, kQ8Floor), kE4M3Max);
    const VF inverse = hn::Set(d, 1.0F / ue8m0_to_float(scale));
    scales[group] = scale;
    HWY_UNROLL(32)
    for (std::int32_t i = 0; i < kQ8Group; i += kLanes) {
      const VU code = e4m3_codes(hn::Mul(load(values + i), inverse));
      hn::StoreU(hn::TruncateTo(DByte(), code), DByte(), codes + group * kQ8Group + i);
    }
  }
}

/// Packs `count` codes given as bytes.
inline void pack_nibbles(const std::uint8_t* codes, std::int32_t count, std::uint8_t* packed) {
  for (std::int32_t i = 0; i < count / 2; ++i) {
    packed[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

/// E2M1 codes of kCount values times `inverse`, packed.
template <std::int32_t kCount>
HWY_INLINE void encode_e2m1(const float* x, float inverse, std::uint8_t* packed) {
  std::uint8_t codes[kCount];
  const VF factor = hn::Set(DF(), inverse);
  HWY_UNROLL(32)
  for (std::int32_t i = 0; i < kCount; i += kLanes) {
    hn::StoreU(hn::TruncateTo(DByte(), e2m1_codes(hn::Mul(load(x + i), factor))), DByte(), codes + i);
  }
  pack_nibbles(codes, kCount, packed);
}

inline void quantise_q4_index_row(const float* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int32_t group = 0; group < width / kQ4IndexGroup; ++group) {
    const float* values = x + group * kQ4IndexGroup;
    scales[group] = power_of_two_scale(largest_magnitude<kQ4IndexGroup>(values, kQ4IndexFloor), kE2M1Max);
    encode_e2m1<kQ4IndexGroup>(values, 1.0F / ue8m0_to_float(scales[group]), codes + group * kQ4IndexGroup / 2);
  }
}

inline void quantise_q4_kv_row(const float* x, std::int32_t width, std::uint8_t* codes, std::uint8_t* scales) {
  for (std::int32_t group = 0; group < width / kQ4KvGroup; ++group) {
    const float* values = x + group * kQ4KvGroup;
    scales[group] = float_to_e4m3(largest_magnitude<kQ4KvGroup>(values, kQ4KvFloor) * (1.0F / kE2M1Max));
    encode_e2m1<kQ4KvGroup>(values, 1.0F / e4m3_to_float(scales[group]), codes + group * kQ4KvGroup / 2);
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
