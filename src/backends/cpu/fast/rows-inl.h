// Vector forms of what happens to single rows: RMSNorm and rotation (docs/spec/model.md 4.5, 4.6).
#if defined(DEEPINFER_CPU_FAST_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_ROWS_INL_H_
#undef DEEPINFER_CPU_FAST_ROWS_INL_H_
#else
#define DEEPINFER_CPU_FAST_ROWS_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/fast/codecs-inl.h"
#include "backends/cpu/fast/doubles-inl.h"
#include "backends/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// Sum of squares of `width` values, a multiple of 16, exact in bf16.
template <class T>
HWY_INLINE float sum_of_squares(const T* x, std::int32_t width) {
  F16 sum = zero16();
  for (std::int32_t i = 0; i < width; i += kVirtualLanes) {
    const F16 v = load16(x + i);
    accumulate<Products::exact>(sum, v, v);
  }
  return sum_lanes(sum);
}

HWY_INLINE float inverse_rms(float sum_of_squares, std::int32_t width, float eps) {
  return 1.0F / std::sqrt(sum_of_squares / static_cast<float>(width) + eps);
}

/// values = bf16(x * rsqrt(mean(x^2) + eps) * weight) as floats, one rounding; x is fp32 that is exact in bf16, or bf16. values may be x.
template <class T>
HWY_INLINE void rms_norm_values(const T* x, const bf16* weight, std::int32_t width, float eps, float* values) {
  D8Sum squares;
  squares.clear();
  add_squares(x, width, squares);
  const VD inverse = hn::Set(DD(), 1.0 / std::sqrt(squares.fold() / width + static_cast<double>(eps)));
  for (std::int32_t i = 0; i < width; i += kLanes) {
    DoubleLanes y;
    HWY_UNROLL(2)
    for (std::int32_t half = 0; half < DoubleLanes::kHalves; ++half) {
      const std::int32_t at = i + half * kDoubles;
      y.half[half] = hn::Mul(hn::Mul(load_double(x + at), inverse), load_double(weight + at));
    }
    store(round_to_bf16(to_floats(y)), values + i);
  }
}

/// Floats that are exact in bf16 to bf16; count is a multiple of 16.
HWY_INLINE void store_values(const float* values, std::int32_t count, bf16* out) {
  for (std::int32_t i = 0; i < count; i += kLanes) {
    const VU bits = hn::BitCast(DU(), load(values + i));
    hn::StoreU(hn::TruncateTo(DHalf(), hn::ShiftRight<16>(bits)), DHalf(), reinterpret_cast<std::uint16_t*>(out + i));
  }
}

/// Rotates kLanes pairs in place; each 32-bit word of x holds one pair, the first value in its lower half.
HWY_INLINE VU rotate_words(VU words, VF c, VF s) {
  const DF d;
  const DU du;
  const VF x0 = hn::BitCast(d, hn::ShiftLeft<16>(words));
  const VF x1 = hn::BitCast(d, hn::And(words, hn::Set(du, 0xFFFF0000U)));
  const VF y0 = fma(x0, c, hn::Neg(hn::Mul(x1, s)));
  const VF y1 = fma(x0, s, hn::Mul(x1, c));
  return hn::Or(bf16_bits(y0), hn::ShiftLeft<16>(bf16_bits(y1)));
}

/// rotate_pairs of rows.h. cos, sin: [rope_dim / 2].
template <Direction kDirection>
HWY_INLINE void rotate_row(bf16* x, const float* cos, const float* sin, std::int32_t rope_dim) {
  const DU du;
  const auto sine = [](VF s) HWY_ATTR { return kDirection == Direction::forward ? s : hn::Neg(s); };
  const std::int32_t half = rope_dim / 2;
  std::int32_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    auto* words = reinterpret_cast<std::uint32_t*>(x + 2 * i);
    hn::StoreU(rotate_words(hn::LoadU(du, words), load(cos + i), sine(load(sin + i))), du, words);
  }
  if (i < half) {
#if HWY_TARGET == HWY_AVX3
    auto* words = reinterpret_cast<std::uint32_t*>(x + 2 * i);
    const auto rest = hn::FirstN(du, static_cast<std::size_t>(half - i));
    const auto rest_of_floats = hn::RebindMask(DF(), rest);
    const VF c = hn::MaskedLoad(rest_of_floats, DF(), cos + i);
    const VF s = hn::MaskedLoad(rest_of_floats, DF(), sin + i);
    hn::BlendedStore(rotate_words(hn::MaskedLoad(rest, du, words), c, sine(s)), rest, du, words);
#else
    // In padded copies.
    HWY_ALIGN std::uint32_t words[kLanes] = {};
    HWY_ALIGN float c[kLanes] = {};
    HWY_ALIGN float s[kLanes] = {};
    const std::int32_t count = half - i;
    std::copy_n(reinterpret_cast<const std::byte*>(x + 2 * i), 4 * count, reinterpret_cast<std::byte*>(words));
    std::copy_n(cos + i, count, c);
    std::copy_n(sin + i, count, s);
    hn::StoreU(rotate_words(hn::LoadU(du, words), load(c), sine(load(s))), du, words);
    std::copy_n(reinterpret_cast<const std::byte*>(words), 4 * count, reinterpret_cast<std::byte*>(x + 2 * i));
#endif
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
