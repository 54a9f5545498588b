#include "backends/cpu/fast/attention_pairs.h"

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>

// From here on only what runs on such a processor: no templates of other headers, which other files might then share.
#pragma GCC push_options
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 finds them in its own intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace deepinfer::cpu::attention_pairs {
namespace {

constexpr int kChains = 8;  // sums that do not wait for each other

__m512 add_products(__m512 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)); }

/// Scores of kChains registers of keys; operand(chain, word): what multiplies a word of the query.
template <class OperandOf>
void score_step(const std::uint32_t* query, std::int32_t num_words, float* scores, const OperandOf& operand) {
  __m512 sum[kChains];
#pragma GCC unroll 8
  for (int chain = 0; chain < kChains; ++chain) {
    sum[chain] = _mm512_setzero_ps();
  }
  for (std::int32_t word = 0; word < num_words; ++word) {
    const __m512i q = _mm512_loadu_si512(query + word * kHeads);
#pragma GCC unroll 8
    for (int chain = 0; chain < kChains; ++chain) {
      sum[chain] = add_products(sum[chain], q, operand(chain, word));
    }
  }
#pragma GCC unroll 8
  for (int chain = 0; chain < kChains; ++chain) {
    _mm512_storeu_ps(scores + chain * kHeads, sum[chain]);
  }
}

}  // namespace

void score_all_heads(const std::uint32_t* query, const Keys& keys, float* scores) {
  for (std::int32_t j = 0; j < keys.count; j += kChains) {
    const std::uint32_t* const* key = keys.rows + j;
    score_step(query, keys.width / 2, scores + j * kHeads,
               [key](int chain, std::int32_t word) { return _mm512_set1_epi32(static_cast<int>(key[chain][word])); });
  }
}

void score_few_heads(const std::uint32_t* query, const Keys& keys, float* scores) {
  constexpr __mmask16 kSecond = 0xFF00;
  for (std::int32_t j = 0; j < keys.count; j += 2 * kChains) {
    const std::uint32_t* const* key = keys.rows + j;
    score_step(query, keys.width / 2, scores + j * kFewHeads, [key](int chain, std::int32_t word) {
      const __m512i first = _mm512_set1_epi32(static_cast<int>(key[2 * chain][word]));
      return _mm512_mask_set1_epi32(first, kSecond, static_cast<int>(key[2 * chain + 1][word]));
    });
  }
}

void sum_values(const Keys& keys, const std::uint32_t* probabilities, std::int64_t stride, float* out) {
  constexpr __mmask32 kUpper = 0xAAAAAAAA;
  const __m512i lower_places = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i upper_places = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  for (std::int32_t column = 0; column < keys.width; column += kColumnStep) {
    __m512 even[kFewHeads];
    __m512 odd[kFewHeads];
#pragma GCC unroll 8
    for (int head = 0; head < kFewHeads; ++head) {
      even[head] = _mm512_setzero_ps();
      odd[head] = _mm512_setzero_ps();
    }
    for (std::int32_t j = 0; j < keys.count; j += 2) {
      const __m512i first = _mm512_loadu_si512(keys.rows[j] + column / 2);
      const __m512i second = _mm512_loadu_si512(keys.rows[j + 1] + column / 2);
      // Of both keys the even columns, of both the odd ones; the first key's in the upper half.
      const __m512i even_columns = _mm512_mask_mov_epi16(_mm512_srli_epi32(second, 16), kUpper, first);
      const __m512i odd_columns = _mm512_mask_mov_epi16(second, kUpper, _mm512_slli_epi32(first, 16));
      const std::uint32_t* own = probabilities + j / 2 * stride;
#pragma GCC unroll 8
      for (int head = 0; head < kFewHeads; ++head) {
        const __m512i p = _mm512_set1_epi32(static_cast<int>(own[head]));
        even[head] = add_products(even[head], p, even_columns);
        odd[head] = add_products(odd[head], p, odd_columns);
      }
    }
#pragma GCC unroll 8
    for (int head = 0; head < kFewHeads; ++head) {
      float* to = out + head * std::int64_t{keys.width} + column;
      _mm512_storeu_ps(to, _mm512_permutex2var_ps(even[head], lower_places, odd[head]));
      _mm512_storeu_ps(to + kColumnStep / 2, _mm512_permutex2var_ps(even[head], upper_places, odd[head]));
    }
  }
}

}  // namespace deepinfer::cpu::attention_pairs

#pragma GCC diagnostic pop
#pragma GCC pop_options

#endif
