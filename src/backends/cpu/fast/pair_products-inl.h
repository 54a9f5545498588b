// Rows times quantised weights with the instruction for pairs of bf16 (pairs.h), unit by unit.
#if defined(DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#undef DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#else
#define DEEPINFER_CPU_FAST_PAIR_PRODUCTS_INL_H_
#endif

#include "backends/cpu/fast/activations-inl.h"
#include "backends/cpu/fast/units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

template <class Units, class T>
HWY_NOINLINE void multiply_pairs(Activations& x, const Units& weights, Range columns, Output<T> y, Scratch& scratch) {
  const std::int32_t num_blocks = x.k() / kUnitDepth;
  const bool is_packed = weights.layout() == WeightLayout::units;
  auto* packed = scratch.take<std::uint8_t>(is_packed ? 0 : packed_bytes(Units::kFormat, num_blocks));
  float* sums = scratch.take<float>(std::int64_t{x.rows()} * kUnit);
  for (std::int32_t c = columns.begin; c < columns.end; c += kUnit) {
    const Range own = {c, std::min(c + kUnit, columns.end)};
    pairs::multiply(x.pair_words(), unit_blocks(weights, own, {0, num_blocks}, packed), sums);
    put_sums(sums, kUnit, x.rows(), own.size(), Output<T>{y.at(0, c - columns.begin), y.stride});
  }
}

#endif

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
