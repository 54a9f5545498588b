// exp, sigmoid and softplus on vectors: one polynomial for every instruction set, so results are bit-equal everywhere.
// Errors, measured by tests/backends/math_test.cpp: exp 1.0 ulp, sigmoid 2.4 ulp, softplus 2.3 ulp.
#if defined(DEEPINFER_CPU_FAST_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_MATH_INL_H_
#undef DEEPINFER_CPU_FAST_MATH_INL_H_
#else
#define DEEPINFER_CPU_FAST_MATH_INL_H_
#endif

#include "backends/cpu/fast/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// 2^n for -126 <= n <= 127.
HWY_INLINE VF power_of_two(VI n) { return hn::BitCast(DF(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(DI(), 127)))); }

/// e^x: x = n ln 2 + r with |r| <= ln 2 / 2, minimax polynomial for e^r, scaled in two steps so that subnormal results are right.
HWY_INLINE VF exp(VF x) {
  const DF d;
  const DI di;
  // Below -104 the result rounds to zero, above 89 it is infinite.
  const VF bounded = hn::Min(hn::Max(x, hn::Set(d, -104.0F)), hn::Set(d, 89.0F));
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const VF magic = hn::Set(d, 0x1.8p23F);
  const VF shifted = hn::Add(hn::Mul(bounded, hn::Set(d, 0x1.715476p+0F)), magic);
  const VI n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const VF integer = hn::Sub(shifted, magic);
  VF r = fma(integer, hn::Set(d, -0x1.62e4p-1F), bounded);  // ln 2 in two parts: the first product is exact
  r = fma(integer, hn::Set(d, -0x1.7f7d1cp-20F), r);
  // (e^r - 1 - r) / r^2, Chebyshev-weighted fit on [-0.3466, 0.3466], error 3.2e-9.
  VF p = hn::Set(d, 0x1.6db42ap-10F);
  p = fma(p, r, hn::Set(d, 0x1.123b56p-7F));
  p = fma(p, r, hn::Set(d, 0x1.55545ep-5F));
  p = fma(p, r, hn::Set(d, 0x1.55548ep-3F));
  p = fma(p, r, hn::Set(d, 0.5F));
  const VF result = hn::Add(fma(hn::Mul(r, r), p, r), hn::Set(d, 1.0F));
  const VI half = hn::ShiftRight<1>(n);
  const VF scaled = hn::Mul(hn::Mul(result, power_of_two(half)), power_of_two(hn::Sub(n, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, scaled);
}

HWY_INLINE VF sigmoid(VF x) {
  const VF one = hn::Set(DF(), 1.0F);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}

/// log(1 + e^x) = max(x, 0) + log1p(y), y = e^-|x| in [0, 1]; log1p(y) = 2 atanh(y / (2 + y)).
HWY_INLINE VF softplus(VF x) {
  const DF d;
  const VF y = exp(hn::Neg(hn::Abs(x)));
  const VF s = hn::Div(y, hn::Add(y, hn::Set(d, 2.0F)));
  const VF t = hn::Mul(s, s);
  // (atanh(s) / s - 1) / s^2 in t = s^2, fit on [0, 1/9], error 4.6e-9.
  VF p = hn::Set(d, 0.14015637F);
  p = fma(p, t, hn::Set(d, 0.13998932F));
  p = fma(p, t, hn::Set(d, 0.20010886F));
  p = fma(p, t, hn::Set(d, 0.33333206F));
  const VF atanh = fma(hn::Mul(s, t), p, s);
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::Add(atanh, atanh));
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
