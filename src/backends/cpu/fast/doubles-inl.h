// Double-precision lanes for the residual streams. Their inputs are few and their outputs feed every quantiser, so the sums between two
// roundings are kept exact enough that bf16 results equal those of the definition; docs/performance.md states the cost.
// Compiled once per instruction set; a sum over k goes to lane k mod 8, ascending, folded by one fixed tree.
#if defined(DEEPINFER_CPU_FAST_DOUBLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_DOUBLES_INL_H_
#undef DEEPINFER_CPU_FAST_DOUBLES_INL_H_
#else
#define DEEPINFER_CPU_FAST_DOUBLES_INL_H_
#endif

#include "backends/cpu/fast/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kVirtualDoubles = 8;

using DD = hn::CappedTag<double, kVirtualDoubles>;
using DDFloat = hn::Rebind<float, DD>;
using DDWord = hn::Rebind<std::uint32_t, DD>;
using DDHalf = hn::Rebind<std::uint16_t, DD>;
using VD = hn::Vec<DD>;

inline constexpr std::int32_t kDoubles = HWY_LANES(double) < kVirtualDoubles ? HWY_LANES(double) : kVirtualDoubles;
inline constexpr std::int32_t kDoubleParts = kVirtualDoubles / kDoubles;

HWY_INLINE VD load_double(const double* p) { return hn::LoadU(DD(), p); }
HWY_INLINE VD load_double(const float* p) { return hn::PromoteTo(DD(), hn::LoadU(DDFloat(), p)); }
HWY_INLINE VD load_double(const bf16* p) {
  const auto words = hn::PromoteTo(DDWord(), hn::LoadU(DDHalf(), reinterpret_cast<const std::uint16_t*>(p)));
  return hn::PromoteTo(DD(), hn::BitCast(DDFloat(), hn::ShiftLeft<16>(words)));
}
HWY_INLINE void store(VD v, double* p) { hn::StoreU(v, DD(), p); }
/// Rounds to fp32, as the definition does before it rounds to bf16.
HWY_INLINE void store(VD v, float* p) { hn::StoreU(hn::DemoteTo(DDFloat(), v), DDFloat(), p); }

/// a * b + c where the product is exact in double (fp32 times bf16), so that one or two roundings are the same.
HWY_INLINE VD add_product(VD a, VD b, VD c) { return hn::MulAdd(a, b, c); }

/// The eight lanes of one sum.
struct D8Sum {
  VD part[kDoubleParts];

  HWY_INLINE void load(const double* lanes) {
    HWY_UNROLL(8)
    for (std::int32_t i = 0; i < kDoubleParts; ++i) {
      part[i] = load_double(lanes + i * kDoubles);
    }
  }
  HWY_INLINE void save(double* lanes) const {
    HWY_UNROLL(8)
    for (std::int32_t i = 0; i < kDoubleParts; ++i) {
      store(part[i], lanes + i * kDoubles);
    }
  }
  HWY_INLINE void clear() {
    HWY_UNROLL(8)
    for (std::int32_t i = 0; i < kDoubleParts; ++i) {
      part[i] = hn::Zero(DD());
    }
  }
  /// Lanes i + i+4, then + i+2, then + i+1.
  [[nodiscard]] HWY_INLINE double fold() const {
    HWY_ALIGN double lane[kVirtualDoubles];
    save(lane);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  }
};

/// kLanes doubles, rounded to fp32.
struct DoubleLanes {
  static constexpr std::int32_t kHalves = kLanes / kDoubles;
  VD half[kHalves];
};

HWY_INLINE VF to_floats(const DoubleLanes& v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::DemoteTo(DF(), v.half[0]);
#else
  return hn::Combine(DF(), hn::DemoteTo(DDFloat(), v.half[1]), hn::DemoteTo(DDFloat(), v.half[0]));
#endif
}

/// Adds the squares of `width` values, a multiple of 8.
template <class T>
HWY_INLINE void add_squares(const T* x, std::int32_t width, D8Sum& sum) {
  for (std::int32_t i = 0; i < width; i += kVirtualDoubles) {
    HWY_UNROLL(8)
    for (std::int32_t part = 0; part < kDoubleParts; ++part) {
      const VD value = load_double(x + i + part * kDoubles);
      sum.part[part] = add_product(value, value, sum.part[part]);
    }
  }
}

/// Rows of doubles or of what is widened to them.
template <class T>
struct DoubleRows {
  T* data;
  std::int64_t stride;  ///< from row to row
};

/// Adds x[r][k] * w[n][k] over `width` values of k, a multiple of 8, to the eight lanes of sums[r][n], for kRows rows and kColumns columns.
template <std::int32_t kRows, std::int32_t kColumns, class T>
HWY_INLINE void add_dot_products(DoubleRows<const double> x, DoubleRows<const T> w, std::int32_t width, DoubleRows<double> sums) {
  HWY_UNROLL(8)
  for (std::int32_t part = 0; part < kDoubleParts; ++part) {  // apart, so that registers hold the sums of more rows
    const std::int32_t first = part * kDoubles;
    VD own[kRows][kColumns];
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (std::int32_t n = 0; n < kColumns; ++n) {
        own[r][n] = load_double(sums.data + r * sums.stride + n * kVirtualDoubles + first);
      }
    }
    for (std::int32_t k = first; k < width; k += kVirtualDoubles) {
      VD column[kColumns];
      HWY_UNROLL(8)
      for (std::int32_t n = 0; n < kColumns; ++n) {
        column[n] = load_double(w.data + n * w.stride + k);
      }
      HWY_UNROLL(8)
      for (std::int32_t r = 0; r < kRows; ++r) {
        const VD row = load_double(x.data + r * x.stride + k);
        HWY_UNROLL(8)
        for (std::int32_t n = 0; n < kColumns; ++n) {
          own[r][n] = add_product(column[n], row, own[r][n]);
        }
      }
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (std::int32_t n = 0; n < kColumns; ++n) {
        store(own[r][n], sums.data + r * sums.stride + n * kVirtualDoubles + first);
      }
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
