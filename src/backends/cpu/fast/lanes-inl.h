// Sixteen virtual fp32 lanes, the unit of every sum: the same on each instruction set, held in 16, 8, 4 or 1 lanes of a register.
// A sum over k goes to lane k mod 16 (or, for packed formats, to the lane of its pair, see codecs-inl.h), ascending, and is folded
// by one fixed tree: lane i + lane i+8, then +4, +2, +1. Compiled once per instruction set.
#if defined(DEEPINFER_CPU_FAST_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_LANES_INL_H_
#undef DEEPINFER_CPU_FAST_LANES_INL_H_
#else
#define DEEPINFER_CPU_FAST_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "tensor/formats.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int32_t kVirtualLanes = 16;

using DF = hn::CappedTag<float, kVirtualLanes>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using DHalf = hn::Rebind<std::uint16_t, DF>;
using DByte = hn::Rebind<std::uint8_t, DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;

inline constexpr std::int32_t kLanes = HWY_LANES(float) < kVirtualLanes ? HWY_LANES(float) : kVirtualLanes;
inline constexpr std::int32_t kParts = kVirtualLanes / kLanes;

/// The sixteen lanes.
struct F16 {
  VF part[kParts];
};

// --- loads and stores ---------------------------------------------------------------------------------------------

HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE void store(VF v, float* p) { hn::StoreU(v, DF(), p); }

HWY_INLINE VF load(const bf16* p) {
  const VU bits = hn::PromoteTo(DU(), hn::LoadU(DHalf(), reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
}

/// Upper halves after rounding to nearest even; NaN stays NaN. In the low 16 bits of each lane.
HWY_INLINE VU bf16_bits(VF v) {
  const DU du;
  const VU bits = hn::BitCast(du, v);
  const VU high = hn::ShiftRight<16>(bits);
  const VU bias = hn::Add(hn::Set(du, 0x7FFFU), hn::And(high, hn::Set(du, 1U)));
  const VU rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(high, hn::Set(du, 0x40U)), rounded);
}

HWY_INLINE VF round_to_bf16(VF v) { return hn::BitCast(DF(), hn::ShiftLeft<16>(bf16_bits(v))); }

HWY_INLINE void store(VF v, bf16* p) { hn::StoreU(hn::TruncateTo(DHalf(), bf16_bits(v)), DHalf(), reinterpret_cast<std::uint16_t*>(p)); }

template <class T>
HWY_INLINE F16 load16(const T* p) {
  F16 out;
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; ++i) {
    out.part[i] = load(p + i * kLanes);
  }
  return out;
}

template <class T>
HWY_INLINE void store16(const F16& v, T* p) {
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; ++i) {
    store(v.part[i], p + i * kLanes);
  }
}

HWY_INLINE F16 zero16() {
  F16 out;
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; ++i) {
    out.part[i] = hn::Zero(DF());
  }
  return out;
}

// --- arithmetic ---------------------------------------------------------------------------------------------------

/// a * b + c with one rounding, also where the instruction set has no such instruction (slow there).
HWY_INLINE VF fma(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[kLanes];
  HWY_ALIGN float y[kLanes];
  HWY_ALIGN float z[kLanes];
  store(a, x);
  store(b, y);
  store(c, z);
  for (std::int32_t i = 0; i < kLanes; ++i) {
    z[i] = std::fma(x[i], y[i], z[i]);
  }
  return load(z);
#endif
}

/// a * b + c where the product is exact (bf16, E4M3 and E2M1 factors), so that one or two roundings are the same.
HWY_INLINE VF add_exact_product(VF a, VF b, VF c) { return hn::MulAdd(a, b, c); }

/// How a sum over k treats its products.
enum class Products : std::uint8_t { exact, rounded };

template <Products kProducts>
HWY_INLINE void accumulate(F16& sum, const F16& a, const F16& b) {
  HWY_UNROLL(16)
  for (std::int32_t i = 0; i < kParts; ++i) {
    if constexpr (kProducts == Products::exact) {
      sum.part[i] = add_exact_product(a.part[i], b.part[i], sum.part[i]);
    } else {
      sum.part[i] = fma(a.part[i], b.part[i], sum.part[i]);
    }
  }
}

// --- the tree -----------------------------------------------------------------------------------------------------

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE float sum_lanes(const F16& v) {
  float lane[kVirtualLanes];
  store16(v, lane);
  for (std::int32_t width = kVirtualLanes / 2; width > 0; width /= 2) {
    for (std::int32_t i = 0; i < width; ++i) {
      lane[i] += lane[i + width];
    }
  }
  return lane[0];
}

#else

using D4 = hn::FixedTag<float, 4>;
using V4 = hn::Vec<D4>;

#if HWY_MAX_BYTES >= 32
using D8 = hn::FixedTag<float, 8>;

/// Lanes i + i+8.
HWY_INLINE hn::Vec<D8> fold_to_octet(const F16& v) {
#if HWY_MAX_BYTES >= 64
  return hn::Add(hn::LowerHalf(D8(), v.part[0]), hn::UpperHalf(D8(), v.part[0]));
#else
  return hn::Add(v.part[0], v.part[1]);
#endif
}
#endif

/// Lanes i + i+8, then + i+4.
HWY_INLINE V4 fold_to_quad(const F16& v) {
#if HWY_MAX_BYTES >= 32
  const auto eight = fold_to_octet(v);
  return hn::Add(hn::LowerHalf(D4(), eight), hn::UpperHalf(D4(), eight));
#else
  return hn::Add(hn::Add(v.part[0], v.part[2]), hn::Add(v.part[1], v.part[3]));
#endif
}

HWY_INLINE V4 interleave_upper_pairs(V4 low, V4 high) {
  const hn::Repartition<std::uint64_t, D4> d2;
  return hn::BitCast(D4(), hn::InterleaveUpper(d2, hn::BitCast(d2, low), hn::BitCast(d2, high)));
}

HWY_INLINE float sum_lanes(const F16& v) {
  const D4 d4;
  const V4 quad = fold_to_quad(v);
  const V4 two = hn::Add(hn::InterleaveLower(d4, quad, quad), hn::InterleaveUpper(d4, quad, quad));  // 02 02 13 13
  return hn::GetLane(hn::Add(two, interleave_upper_pairs(two, two)));
}

#endif

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
