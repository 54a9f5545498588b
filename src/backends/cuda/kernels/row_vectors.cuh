// A row held by the threads of one block, eight neighbouring values a thread: one 16-byte access each, one pass, quantised in place.
// For widths that are multiples of 32 and at most kMaxVectorWidth.
#pragma once

#include "backends/cuda/kernels/block_sums.cuh"
#include "backends/cuda/kernels/codecs.cuh"

namespace deepinfer::cuda {

inline constexpr int kVector = 8;
inline constexpr std::int32_t kMaxVectorWidth = kRowThreads * kVector;

[[nodiscard]] constexpr bool fits_vectors(std::int32_t width) { return width % kQ8Group == 0 && width <= kMaxVectorWidth; }
/// Whole warps that hold a row.
[[nodiscard]] constexpr int vector_threads(std::int32_t width) { return (width / kVector + 31) / 32 * 32; }

struct Vector {
  float v[kVector];
};

__device__ __forceinline__ Vector vector_of(const uint4& words) {
  const unsigned w[4] = {words.x, words.y, words.z, words.w};
  Vector out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    out.v[i] = __uint_as_float(i % 2 == 0 ? w[i / 2] << 16 : w[i / 2] & 0xFFFF0000U);
  }
  return out;
}
__device__ __forceinline__ Vector load_vector(const bf16* x) { return vector_of(*reinterpret_cast<const uint4*>(x)); }

/// Values must be exact in bf16.
__device__ __forceinline__ void store_vector(const Vector& x, bf16* out) {
  unsigned w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    w[i] = __float_as_uint(x.v[2 * i]) >> 16 | (__float_as_uint(x.v[2 * i + 1]) & 0xFFFF0000U);
  }
  *reinterpret_cast<uint4*>(out) = make_uint4(w[0], w[1], w[2], w[3]);
}

// --- roundings that single precision decides ----------------------------------------------------------------------

/// min and max that give NaN for NaN.
__device__ __forceinline__ float min_of(float a, float b) {
  float out = 0;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}
__device__ __forceinline__ float max_of(float a, float b) {
  float out = 0;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
  return out;
}

/// The bf16 next to x.
__device__ __forceinline__ float rounded_bf16(float x) { return __uint_as_float(bf16_pair(0.0F, x) & 0xFFFF0000U); }
__device__ __forceinline__ Vector rounded_bf16(const Vector& x) {
  Vector out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    out.v[i] = rounded_bf16(x.v[i]);
  }
  return out;
}

/// 0 where both bounds of a value have the same bf16.
__device__ __forceinline__ unsigned halves_differ(unsigned bounds) { return bounds ^ __byte_perm(bounds, 0, 0x1032); }

/// Whether some of a thread's values are left to double precision: their bounds round differently, or what they were made of is too small for
/// all of its digits, too large or no number.
struct OpenRoundings {
  unsigned differs = 0;
  float least = INFINITY;
  float most = 0;

  __device__ __forceinline__ void look(unsigned bounds, float size) {
    differs |= halves_differ(bounds);
    least = fminf(least, size);
    most = max_of(most, size);
  }
  [[nodiscard]] __device__ __forceinline__ bool has_digits(float least_size) const { return least > least_size && most < INFINITY; }
};

/// bf16(w (x inverse)) in double precision.
inline __device__ __noinline__ float scale_exactly(float x, float w, double inverse) { return to_float(round_bf16(w * (x * inverse))); }

/// x <- rms(x; weight), rounded; `weight`: the thread's eight values, bf16. All threads of the block take part; those beyond the row hold zeros.
/// Single precision decides the rounding of nearly all values: of w x, which is exact, times the inverse it is wrong by less than 2^-22.
__device__ __forceinline__ void norm_vector(Vector& x, const uint4& weight, std::int32_t width, float eps, bool inside, BlockSums<1>& shared) {
  constexpr float kError = 0x1p-22F;
  constexpr float kLeast = 0x1p-90F;  // below it products may have fewer digits
  double squares = 0;
#pragma unroll
  for (const float value : x.v) {
    squares = fma(static_cast<double>(value), static_cast<double>(value), squares);  // products are exact
  }
  const double inverse = inverse_norm(squares, width, eps, shared);
  if (!inside) {
    return;
  }
  const auto quick_inverse = static_cast<float>(inverse);
  const Vector w = vector_of(weight);
  const auto bounds_of = [](float y) { return bf16_pair(y * (1.0F - kError), y * (1.0F + kError)); };
  Vector y;
  OpenRoundings open;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float product = w.v[i] * x.v[i];
    y.v[i] = product * quick_inverse;
    open.look(bounds_of(y.v[i]), fabsf(y.v[i]));
    open.least = fminf(open.least, fabsf(product));
  }
  const bool has_digits = open.has_digits(kLeast);
  if (open.differs == 0 && has_digits) {  // one branch for all
    x = rounded_bf16(y);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const bool is_open = !has_digits || halves_differ(bounds_of(y.v[i])) != 0;
    x.v[i] = is_open ? scale_exactly(x.v[i], w.v[i], inverse) : rounded_bf16(y.v[i]);
  }
}

struct VectorQ8 {
  uint2 codes;
  std::uint8_t scale;
};

/// The largest magnitude of x and `amax`.
__device__ __forceinline__ float largest_magnitude(const Vector& x, float amax) {
#pragma unroll
  for (const float value : x.v) {
    const float magnitude = fabsf(value);
    amax = magnitude > amax ? magnitude : amax;  // false for NaN
  }
  return amax;
}

/// Q8 of the thread's values; a group lies in four neighbouring lanes. All lanes of the warp take part.
__device__ __forceinline__ VectorQ8 quantise_vector(const Vector& x) {
  float amax = largest_magnitude(x, kQ8Floor);
  amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 2));
  const std::uint8_t scale = power_of_two_scale(amax, kE4M3Max);
  const float inverse = 1.0F / ue8m0_to_float(scale);
  VectorQ8 out;
  out.codes.x = to_e4m3_pair(x.v[0] * inverse, x.v[1] * inverse) | to_e4m3_pair(x.v[2] * inverse, x.v[3] * inverse) << 16;
  out.codes.y = to_e4m3_pair(x.v[4] * inverse, x.v[5] * inverse) | to_e4m3_pair(x.v[6] * inverse, x.v[7] * inverse) << 16;
  out.scale = scale;
  return out;
}

/// To a row's codes and scales, `first` being the first value.
__device__ __forceinline__ void store_vector_q8(const VectorQ8& x, std::int64_t first, std::uint8_t* codes, std::uint8_t* scales) {
  *reinterpret_cast<uint2*>(codes + first) = x.codes;
  if (first % kQ8Group == 0) {
    scales[first / kQ8Group] = x.scale;
  }
}

}  // namespace deepinfer::cuda
