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
  unsigned open = 0;  // one branch for all
  Vector out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float product = w.v[i] * x.v[i];
    const float y = product * quick_inverse;
    const unsigned bounds = bf16_pair(y * (1.0F - kError), y * (1.0F + kError));
    out.v[i] = __uint_as_float(bounds << 16);
    open |= bounds >> 16 == (bounds & 0xFFFFU) && fminf(fabsf(product), fabsf(y)) > kLeast && fabsf(y) < INFINITY ? 0U : 1U << i;
  }
  if (open != 0) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if ((open >> i & 1U) != 0) {
        out.v[i] = scale_exactly(x.v[i], w.v[i], inverse);
      }
    }
  }
  x = out;
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
