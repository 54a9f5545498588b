// The column whose log-probability plus noise is largest (sampling/sampler.h). Most columns are out of the question after one comparison
// in single precision; of the others the sums are compared without the logarithm of the total, which moves all of them alike. It is needed
// only where rounding might decide.
#pragma once

#include "backends/cuda/kernels/draw_row.cuh"
#include "sampling/noise.h"

namespace deepinfer::cuda::draw {

inline constexpr float kLargestNoise = 17.34F;  // above that of every word (sampling/noise.h)
inline constexpr float kLeastNoise = -2.86F;    // below that of every word
inline constexpr float kSafety = 2e-3F;         // above all errors of single precision here, of noise too
/// Sums (log-probability + noise) in single precision are in order if the exact ones are so far apart: a winner has a log-probability above
/// -34 and a sum between -17 and 18, so that the two roundings of each are below 3e-6.
inline constexpr double kRounding = 1e-5;
/// Up to here differences of logits that overflow single precision are out of the question.
inline constexpr double kHighestTemperature = 1e6;

/// Which columns may have a logit plus noise, relative to the largest logit, of at least `at_least`.
struct NoiseFilter {
  float largest, scale, offset;  // weight = 2^((logit - largest) scale + offset)

  __device__ __forceinline__ NoiseFilter(const Weights& weights, float at_least)
      : largest(static_cast<float>(weights.largest)),
        scale(static_cast<float>(weights.inverse_temperature * kLog2E)),
        offset((kSafety - at_least) * static_cast<float>(kLog2E)) {}

  /// Noise -ln(-ln u) reaches n only if 1 - u <= -ln u <= e^-n. u is at least the leading 23 bits of the word.
  __device__ __forceinline__ bool passes(float logit, std::uint32_t word) const {
    constexpr float kAlmostTwo = 0x1.fffffep0F;  // 2 - 2^-23
    float weight = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(weight) : "f"(fmaf(logit - largest, scale, offset)));
    return __uint_as_float(0x3F800000U | word >> 9) + weight >= kAlmostTwo;
  }
  /// A logit that no noise lifts so far lies below this.
  __device__ __forceinline__ float least(float at_least, float temperature) const {
    return largest + (at_least - kLargestNoise - kSafety) * temperature;
  }

 private:
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
};

/// The two largest sums of the thread's columns, relative to weights.largest; smaller ones may be missing that are not among the block's two.
/// `own`: ranked, the thread's most probable column, 0: none.
template <class Kept>
__device__ TopTwo noisy_top(const Slice& slice, sampling::RandomKey key, const Weights& weights, float least_kept, std::uint64_t own,
                            const Kept& kept, Shared& shared) {
  const auto sum_at = [&](std::int32_t i, std::uint32_t word) {
    return weights.exponent(slice.values[i]) + static_cast<double>(sampling::gumbel(word));
  };
  if (threadIdx.x == 0) {
    shared.at_least = order_key(kLeastNoise);
  }
  __syncthreads();
  std::uint32_t seed = 0;
  if (const std::int32_t i = column_of(own) - slice.first; own != 0 && kept(i)) {
    const auto words = sampling::noise_words(key, (slice.first + i) / 4);
    seed = order_key(static_cast<float>(sum_at(i, i % 4 < 2 ? (i % 4 == 0 ? words[0] : words[1]) : (i % 4 == 2 ? words[2] : words[3]))));
  }
  seed = __reduce_max_sync(~0U, seed);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&shared.at_least, seed);
  }
  __syncthreads();
  const auto temperature = static_cast<float>(1.0 / weights.inverse_temperature);
  TopTwo top;
  for (std::int32_t group = threadIdx.x; group < slice.columns / 4; group += kThreads) {
    const float4 x = *reinterpret_cast<const float4*>(slice.values + 4 * group);
    const std::uint32_t reached = *const_cast<volatile std::uint32_t*>(&shared.at_least);
    const float at_least = value_of(reached);
    const NoiseFilter filter(weights, at_least);
    if (fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)) < fmaxf(least_kept, filter.least(at_least, temperature))) {
      continue;
    }
    const auto words = sampling::noise_words(key, slice.first / 4 + group);
    unsigned open = (filter.passes(x.x, words[0]) ? 1U : 0U) | (filter.passes(x.y, words[1]) ? 2U : 0U) |
                    (filter.passes(x.z, words[2]) ? 4U : 0U) | (filter.passes(x.w, words[3]) ? 8U : 0U);
    for (; open != 0; open &= open - 1) {
      const int j = __ffs(static_cast<int>(open)) - 1;
      const std::int32_t i = 4 * group + j;
      if (kept(i)) {
        const double sum = sum_at(i, j < 2 ? (j == 0 ? words[0] : words[1]) : (j == 2 ? words[2] : words[3]));
        top.offer(sum, slice.first + i);
        const std::uint32_t now = order_key(static_cast<float>(sum));
        if (now > reached) {
          atomicMax(&shared.at_least, now);
        }
      }
    }
  }
  return top;
}

/// The exact sums, rounded as the reference rounds them: the largest of the block's kept columns, ranked.
template <class Kept, class LogProb>
__device__ std::uint64_t noisy_best(const Slice& slice, sampling::RandomKey key, float at_least, const Kept& kept, const LogProb& log_prob) {
  std::uint64_t best = 0;
  for (std::int32_t group = threadIdx.x; group < (slice.size + 3) / 4; group += kThreads) {
    float log_probs[4];
    bool has_chance = false;
    for (int j = 0; j < 4; ++j) {
      const std::int32_t i = 4 * group + j;
      log_probs[j] = i < slice.size && kept(i) ? log_prob(slice.values[i]) : kRemoved;
      has_chance = has_chance || log_probs[j] + kLargestNoise >= at_least;
    }
    if (!has_chance) {
      continue;
    }
    const auto words = sampling::noise_words(key, slice.first / 4 + group);
    for (int j = 0; j < 4; ++j) {
      if (log_probs[j] > kRemoved) {
        best = larger(best, ranked(log_probs[j] + sampling::gumbel(words[j]), slice.first + 4 * group + j));
      }
    }
  }
  return best;
}

}  // namespace deepinfer::cuda::draw
