// Few rows times quantised weights on the vector units of any instruction set: decoding and multiplying are one pass.
#if defined(DEEPINFER_CPU_FAST_FEW_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_FEW_UNITS_INL_H_
#undef DEEPINFER_CPU_FAST_FEW_UNITS_INL_H_
#else
#define DEEPINFER_CPU_FAST_FEW_UNITS_INL_H_
#endif

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// Whether the even and the odd values of a block are added side by side, so that fewer sums wait for each other, or one after the other,
/// so that registers hold the sums of more rows.
enum class Halves : std::uint8_t { together, in_turn };

inline constexpr std::int32_t kRowsTogether = kLanes == 16 ? 6 : 2;  ///< most rows of Halves::together
/// Up to here registers hold the sums of a unit for all rows, and what decoding needs beside them.
template <class Units>
inline constexpr std::int32_t kFewUnitRows = kLanes == 16 ? 6 : (Units::kFormat == WeightFormat::fp8 ? 5 : 4);

/// Adds kRows values times the values of sixteen columns.
template <std::int32_t kRows>
HWY_INLINE void add_unit_products(const float* x, std::int64_t stride, const F16& w, F16 (&sums)[kRows]) {
  HWY_UNROLL(8)
  for (std::int32_t r = 0; r < kRows; ++r) {
    const VF value = hn::Set(DF(), x[r * stride]);
    HWY_UNROLL(16)
    for (std::int32_t part = 0; part < kParts; ++part) {
      sums[r].part[part] = add_exact_product(w.part[part], value, sums[r].part[part]);
    }
  }
}

template <std::int32_t kRows>
HWY_INLINE void clear_sums(F16 (&sums)[kRows]) {
  HWY_UNROLL(8)
  for (std::int32_t r = 0; r < kRows; ++r) {
    sums[r] = zero16();
  }
}

/// Even and odd sums of kRows rows, x in pair order, with one block of a unit: visit(row, even + odd).
template <Halves kHalves, class Units, std::int32_t kRows, class Visit>
HWY_INLINE void sum_unit_block(const float* x, std::int64_t stride, const std::uint8_t* block, const Visit& visit) {
  constexpr std::int32_t kSteps = kBlockPairs / Units::kStepPairs;
  F16 odd[kRows];
  F16 even[kRows];
  const auto add_even = [&](std::int32_t pair, const F16& w) HWY_ATTR { add_unit_products(x + pair, stride, w, even); };
  const auto add_odd = [&](std::int32_t pair, const F16& w) HWY_ATTR { add_unit_products(x + kVirtualLanes + pair, stride, w, odd); };
  clear_sums(even);
  if constexpr (kHalves == Halves::together) {
    clear_sums(odd);
    HWY_UNROLL(4)
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Units::template decode<0>(block, step, add_even);
      Units::template decode<1>(block, step, add_odd);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        even[r].part[part] = hn::Add(even[r].part[part], odd[r].part[part]);
      }
      visit(r, even[r]);
    }
  } else {
    HWY_ALIGN float kept[kRows * kUnit];
    HWY_UNROLL(4)
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Units::template decode<0>(block, step, add_even);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      store16(even[r], kept + r * kUnit);
    }
    clear_sums(odd);
    HWY_UNROLL(4)
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Units::template decode<1>(block, step, add_odd);
    }
    HWY_UNROLL(8)
    for (std::int32_t r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        odd[r].part[part] = hn::Add(load(kept + r * kUnit + part * kLanes), odd[r].part[part]);
      }
      visit(r, odd[r]);
    }
  }
}

/// sums[row, 16 columns] of one unit.
template <std::int32_t kRows, class Units>
HWY_NOINLINE void sum_unit(const Operand& x, const Units& weights, Range columns, float* sums) {
  constexpr Halves kHalves = kRows <= kRowsTogether ? Halves::together : Halves::in_turn;
  HWY_ALIGN std::uint8_t buffer[block_bytes(Units::kFormat)];
  F16 total[kRows];
  clear_sums(total);
  for (std::int32_t block = 0; block < x.k / kUnitDepth; ++block) {
    const F16 scale = weights.scales(columns, block);
    const auto add_to_total = [&](std::int32_t r, const F16& sum) HWY_ATTR {
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        total[r].part[part] = add_exact_product(sum.part[part], scale.part[part], total[r].part[part]);
      }
    };
    const std::uint8_t* codes = unit_block(weights, columns, block, buffer);
    sum_unit_block<kHalves, Units, kRows>(x.data + block * kUnitDepth, x.stride, codes, add_to_total);
  }
  HWY_UNROLL(8)
  for (std::int32_t r = 0; r < kRows; ++r) {
    store16(total[r], sums + r * kUnit);
  }
}

template <std::int32_t kMost, class Units>
inline void sum_unit_of(const Operand& x, const Units& weights, Range columns, float* sums) {
  if constexpr (kMost > 1) {
    if (x.rows < kMost) {
      return sum_unit_of<kMost - 1>(x, weights, columns, sums);
    }
  }
  sum_unit<kMost>(x, weights, columns, sums);
}

/// At most kFewUnitRows rows.
template <class T, class Units>
inline void multiply_few_units(const Operand& x, const Units& weights, Range columns, Output<T> y) {
  HWY_ALIGN float sums[kFewUnitRows<Units> * kUnit];
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    const Range own = {c, std::min(c + kUnit, columns.end)};
    sum_unit_of<kFewUnitRows<Units>>(x, weights, own, sums);
    put_sums(sums, kUnit, x.rows, own.size(), Output<T>{y.at(0, c - columns.begin), y.stride});
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
