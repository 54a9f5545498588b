// Attention core (docs/spec/model.md 5.4). Lanes are heads while scoring and in the softmax, and columns of the keys in the value sum, so
// no sum crosses lanes: scores add the columns in order, values add the keys in order (window ascending, then list ascending). Two of them at a
// time where there is an instruction for it (attention_pairs.h).
#include <limits>

#include "backends/cpu/fast/attention_pairs.h"
#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/fast/scale_range.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/attention_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/attention_keys-inl.h"
#include "backends/cpu/fast/columns-inl.h"
#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kKeyStep = 8;                          ///< keys scored together
inline constexpr std::int32_t kKeyPadding = 16;                      ///< of buffers, for any number of keys scored together
inline constexpr std::int32_t kHeadVectors = kHeadChunk / kLanes;    ///< vectors that hold one float of every head
inline constexpr std::int32_t kCodeBits = 3;                         ///< of the fraction of an E4M3 code
inline constexpr std::int32_t kListedKeyStep = -10;                  ///< E2M1 codes are multiples of 2^-1, their E4M3 scales of 2^-9
inline constexpr std::int32_t kValueHeads = 4;                       ///< heads whose value sums share the loaded key
inline constexpr std::int32_t kValueWidth = kLanes == 16 ? 32 : 16;  ///< columns of one value tile

/// Decoded keys of one query, each [head_dim] fp32; kKeyPadding more pointers behind the last one may be read.
struct Keys {
  const float* const* rows;
  std::int32_t count;
};

/// What one query works in.
struct Workspace {
  float* query;   // [head_dim, kHeadChunk] transposed
  float* scores;  // [keys, kHeadChunk], then probabilities rounded to bf16
  std::uint32_t* words;   // [head_dim / 2, kHeadChunk] the query, then probabilities
  std::uint32_t* no_key;  // [head_dim / 2] zeros
  bf16* o;        // [head_dim]
  float* values;  // [head_dim]
};

/// query[i, head] of `count` heads; the other heads repeat some: of up to eight each lies there twice.
inline void transpose_query(const bf16* q, std::int32_t head_dim, std::int32_t count, float* query) {
  for (std::int32_t first = 0; first < head_dim; first += kUnitPlaces) {
    UnitRows<bf16> heads;
    for (std::int32_t head = 0; head < kUnitRows; ++head) {
      const std::int32_t own = head < count ? head : head % (kHeadChunk / 2);
      heads.at[head] = q + (own < count ? own : 0) * static_cast<std::int64_t>(head_dim) + first;
    }
    float* out = query + first * kHeadChunk;
    bf16_columns(heads, [&](std::int32_t place, const F16& values) HWY_ATTR { store16(values, out + place * kHeadChunk); });
  }
}
static_assert(kUnitRows == kHeadChunk);

/// scores[key, head] = query . key for kKeys keys and kVectors vectors of heads.
template <std::int32_t kKeys, std::int32_t kVectors>
HWY_INLINE void score_step(const float* query, const float* const* keys, std::int32_t head_dim, float* scores) {
  const float* key[kKeys];
  VF sum[kKeys][kVectors];
  HWY_UNROLL(8)
  for (std::int32_t j = 0; j < kKeys; ++j) {
    key[j] = keys[j];
    HWY_UNROLL(4)
    for (std::int32_t v = 0; v < kVectors; ++v) {
      sum[j][v] = hn::Zero(DF());
    }
  }
  for (std::int32_t i = 0; i < head_dim; ++i) {
    HWY_UNROLL(4)
    for (std::int32_t v = 0; v < kVectors; ++v) {
      const VF q = load(query + i * kHeadChunk + v * kLanes);
      HWY_UNROLL(8)
      for (std::int32_t j = 0; j < kKeys; ++j) {
        sum[j][v] = add_exact_product(q, hn::Set(DF(), key[j][i]), sum[j][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (std::int32_t j = 0; j < kKeys; ++j) {
    HWY_UNROLL(4)
    for (std::int32_t v = 0; v < kVectors; ++v) {
      store(sum[j][v], scores + j * kHeadChunk + v * kLanes);
    }
  }
}

/// Scores of all keys, in steps of kKeyStep; the buffer holds the padding.
HWY_NOINLINE void score_keys(const Workspace& w, const Keys& keys, std::int32_t head_dim, std::int32_t num_heads) {
  for (std::int32_t j = 0; j < keys.count; j += kKeyStep) {
    const float* const* key = keys.rows + j;
    std::int32_t v = 0;
    for (; (v + 1) * kLanes < num_heads; v += 2) {
      const float* query = w.query + v * kLanes;
      float* out = row_at(w.scores, j, kHeadChunk) + v * kLanes;
      constexpr std::int32_t kTwo = kHeadVectors >= 2 ? 2 : 1;
      score_step<kKeyStep / 2, kTwo>(query, key, head_dim, out);
      score_step<kKeyStep / 2, kTwo>(query, key + kKeyStep / 2, head_dim, out + kKeyStep / 2 * kHeadChunk);
    }
    for (; v * kLanes < num_heads; ++v) {
      score_step<kKeyStep, 1>(w.query + v * kLanes, key, head_dim, row_at(w.scores, j, kHeadChunk) + v * kLanes);
    }
  }
}

/// Scores to probabilities relative to the largest score, rounded to bf16; denominator[head] = sum of the unrounded ones + sink term.
HWY_NOINLINE void softmax(float* scores, std::int32_t num_keys, std::int32_t num_heads, float factor, const float* sink,
                          float* denominator) {
  const DF d;
  for (std::int32_t head = 0; head < num_heads; head += kLanes) {
    float* column = scores + head;
    VF peak = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (std::int32_t j = 0; j < num_keys; ++j) {
      const VF score = hn::Mul(load(column + j * kHeadChunk), hn::Set(d, factor));
      store(score, column + j * kHeadChunk);
      peak = hn::Max(peak, score);
    }
    VF sum = hn::Zero(d);
    for (std::int32_t j = 0; j < num_keys; ++j) {
      const VF p = exp(hn::Sub(load(column + j * kHeadChunk), peak));
      sum = hn::Add(sum, p);
      store(round_to_bf16(p), column + j * kHeadChunk);
    }
    store(hn::Add(sum, exp(hn::Sub(load(sink + head), peak))), denominator + head);
  }
}

/// kHeads heads, kValueWidth columns from `column` on: sum over keys of probability * key.
template <std::int32_t kHeads>
HWY_INLINE void value_tile(const Keys& keys, std::int32_t column, const float* probabilities, std::int32_t head_dim, float* out) {
  constexpr std::int32_t kVectors = kValueWidth / kLanes;
  VF sum[kHeads][kVectors];
  HWY_UNROLL(4)
  for (std::int32_t h = 0; h < kHeads; ++h) {
    HWY_UNROLL(16)
    for (std::int32_t v = 0; v < kVectors; ++v) {
      sum[h][v] = hn::Zero(DF());
    }
  }
  for (std::int32_t j = 0; j < keys.count; ++j, probabilities += kHeadChunk) {
    const float* key = keys.rows[j] + column;
    VF columns[kVectors];
    HWY_UNROLL(16)
    for (std::int32_t v = 0; v < kVectors; ++v) {
      columns[v] = load(key + v * kLanes);
    }
    HWY_UNROLL(4)
    for (std::int32_t h = 0; h < kHeads; ++h) {
      const VF p = hn::Set(DF(), probabilities[h]);
      HWY_UNROLL(16)
      for (std::int32_t v = 0; v < kVectors; ++v) {
        sum[h][v] = add_exact_product(p, columns[v], sum[h][v]);
      }
    }
  }
  HWY_UNROLL(4)
  for (std::int32_t h = 0; h < kHeads; ++h) {
    HWY_UNROLL(16)
    for (std::int32_t v = 0; v < kVectors; ++v) {
      store(sum[h][v], out + h * head_dim + v * kLanes);
    }
  }
}

/// out[head, head_dim] for num_heads heads, not yet divided by the denominator.
HWY_NOINLINE void sum_values(const Keys& keys, const float* probabilities, std::int32_t head_dim, std::int32_t num_heads, float* out) {
  for (std::int32_t i = 0; i < head_dim; i += kValueWidth) {
    std::int32_t head = 0;
    for (; head + kValueHeads <= num_heads; head += kValueHeads) {
      value_tile<kValueHeads>(keys, i, probabilities + head, head_dim, row_at(out, head, head_dim) + i);
    }
    for (; head < num_heads; ++head) {
      value_tile<1>(keys, i, probabilities + head, head_dim, row_at(out, head, head_dim) + i);
    }
  }
}

/// Divides, rounds, rotates back and stores the heads [first, first + count) of query r; values: [count, head_dim].
inline void finish_query(const AttendParams& p, std::int32_t r, Range heads, const float* values, const float* denominator,
                         const Workspace& w) {
  const std::int32_t half = p.rope_dim / 2;
  for (std::int32_t i = 0; i < heads.size(); ++i) {
    const std::int64_t head = static_cast<std::int64_t>(r) * p.heads + heads.begin + i;
    for (std::int32_t c = 0; c < p.head_dim; c += kLanes) {
      store(hn::Div(load(row_at(values, i, p.head_dim) + c), hn::Set(DF(), denominator[i])), w.o + c);
    }
    rotate_row<Direction::inverse>(w.o + (p.head_dim - p.rope_dim), row_at(p.rope.cos, r, half), row_at(p.rope.sin, r, half), p.rope_dim);
    if (p.o != nullptr) {
      std::copy_n(w.o, p.head_dim, row_at(p.o, head, p.head_dim));
    }
    if (p.q8.codes != nullptr) {
      for (std::int32_t c = 0; c < p.head_dim; c += kLanes) {
        store(load(w.o + c), w.values + c);
      }
      quantise_q8_row(w.values, p.head_dim, row_at(p.q8.codes, head, p.head_dim), row_at(p.q8.scales, head, p.head_dim / kQ8Group));
    }
  }
}

/// What softmax and value sums of one query give.
struct QueryResults {
  float* values;
  float* denominator;
};

[[nodiscard]] inline float score_factor(const AttendParams& p) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim))); }

#if HWY_TARGET == HWY_AVX3

/// True when bf16 numbers with exponents from `exponent` on, keys that are multiples of 2^key_step and all sums of their products are zero or normal
/// numbers: sums are multiples of the least product.
[[nodiscard]] constexpr bool stays_normal(std::int32_t exponent, std::int32_t key_step) {
  constexpr std::int32_t kFractionBits = 7;
  constexpr std::int32_t kLeast = -126;
  return exponent > 0 && key_step >= kLeast && exponent - kScaleBias - kFractionBits + key_step >= kLeast;
}

/// The words of a transposed query. Returns the exponent byte of its least number.
HWY_NOINLINE std::int32_t make_query_words(const float* query, std::int32_t head_dim, std::uint32_t* words) {
  const DU du;
  LeastNumber least;
  for (std::int32_t i = 0; i < head_dim; i += 2) {
    const VU first = hn::BitCast(du, load(query + i * kHeadChunk));
    const VU second = hn::BitCast(du, load(query + (i + 1) * kHeadChunk));
    least.add(first);
    least.add(second);
    hn::StoreU(hn::Or(first, hn::ShiftRight<16>(second)), du, words + i / 2 * kHeadChunk);
  }
  return least.exponent();
}

/// Probabilities, [keys, kHeadChunk], as words of two keys. Returns the exponent byte of the least one.
HWY_NOINLINE std::int32_t make_probability_words(const float* probabilities, std::int32_t num_keys, std::uint32_t* words) {
  const DU du;
  LeastNumber least;
  for (std::int32_t j = 0; j < num_keys; j += 2, probabilities += 2 * kHeadChunk, words += kHeadChunk) {
    const VU first = hn::BitCast(du, load(probabilities));
    const VU second = j + 1 < num_keys ? hn::BitCast(du, load(probabilities + kHeadChunk)) : hn::Zero(du);
    least.add(first);
    least.add(second);
    hn::StoreU(hn::Or(first, hn::ShiftRight<16>(second)), du, words);
  }
  return least.exponent();
}

/// softmax of up to eight heads, scores [keys, 8]: two keys in a register, and the words of both. Scores remain.
HWY_NOINLINE std::int32_t softmax_few_heads(float* scores, std::int32_t num_keys, float factor, const float* sink, float* denominator,
                                            std::uint32_t* words) {
  constexpr std::int32_t kFewHeads = attention_pairs::kFewHeads;
  const DF d;
  const hn::Half<DF> d8;
  const DU du;
  const hn::Half<DU> du8;
  if (num_keys % 2 != 0) {  // nothing beside the last key
    std::fill_n(scores + num_keys * kFewHeads, kFewHeads, -std::numeric_limits<float>::infinity());
  }
  VF both = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::int32_t j = 0; j < num_keys; j += 2) {
    const VF score = hn::Mul(load(scores + j * kFewHeads), hn::Set(d, factor));
    store(score, scores + j * kFewHeads);
    both = hn::Max(both, score);
  }
  const auto peak_of_head = hn::Max(hn::LowerHalf(d8, both), hn::UpperHalf(d8, both));
  const VF peak = hn::Combine(d, peak_of_head, peak_of_head);
  auto sum = hn::Zero(d8);
  LeastNumber least;
  for (std::int32_t j = 0; j < num_keys; j += 2) {
    const VF p = exp(hn::Sub(load(scores + j * kFewHeads), peak));
    sum = hn::Add(hn::Add(sum, hn::LowerHalf(d8, p)), hn::UpperHalf(d8, p));
    const VU bits = hn::BitCast(du, round_to_bf16(p));
    least.add(bits);
    hn::StoreU(hn::Or(hn::LowerHalf(du8, bits), hn::ShiftRight<16>(hn::UpperHalf(du8, bits))), du8, words + j / 2 * kFewHeads);
  }
  hn::StoreU(hn::Add(sum, hn::LowerHalf(d8, exp(hn::Sub(load(sink), peak)))), d8, denominator);
  return least.exponent();
}

/// One query with the instruction for pairs; key_step: what keys are multiples of, as an exponent. False when numbers are too small for it: results are
/// not complete.
inline bool attend_in_pairs(const AttendParams& p, const Workspace& w, const attention_pairs::Keys& keys, std::int32_t key_step,
                            std::int32_t num_heads, const float* sink, const QueryResults& out) {
  constexpr std::int32_t kFewHeads = attention_pairs::kFewHeads;
  const std::int32_t d = p.head_dim;
  if (!stays_normal(make_query_words(w.query, d, w.words), key_step)) {
    return false;
  }
  const float factor = score_factor(p);
  if (num_heads <= kFewHeads) {
    attention_pairs::score_few_heads(w.words, keys, w.scores);
    const bool is_normal = stays_normal(softmax_few_heads(w.scores, keys.count, factor, sink, out.denominator, w.words), key_step);
    if (is_normal) {
      attention_pairs::sum_values(keys, w.words, kFewHeads, out.values);
    }
    return is_normal;
  }
  attention_pairs::score_all_heads(w.words, keys, w.scores);
  softmax(w.scores, keys.count, num_heads, factor, sink, out.denominator);
  const bool is_normal = stays_normal(make_probability_words(w.scores, keys.count, w.words), key_step);
  for (std::int32_t head = 0; head < num_heads && is_normal; head += kFewHeads) {
    attention_pairs::sum_values(keys, w.words + head, kHeadChunk, row_at(out.values, head, d));
  }
  return is_normal;
}
static_assert(attention_pairs::kHeads == kHeadChunk && attention_pairs::kKeyStep <= kKeyPadding);

#endif

/// One query with multiply-adds.
inline void attend_plainly(const AttendParams& p, const Workspace& w, const Keys& keys, std::int32_t num_heads, const float* sink,
                           const QueryResults& out) {
  score_keys(w, keys, p.head_dim, num_heads);
  softmax(w.scores, keys.count, num_heads, score_factor(p), sink, out.denominator);
  sum_values(keys, w.scores, p.head_dim, num_heads, out.values);
}

template <KeyForm kForm>
void attend(const AttendParams& p, Range rows, Range heads, Scratch& scratch) {
  check(heads.size() <= kHeadChunk, "an attention task has at most one chunk of heads");
  const std::int64_t most_window = most_window_keys(p, rows);
  const std::int64_t most_keys = most_window + (p.list != nullptr ? p.top_k : 0) + kKeyPadding;
  const std::int32_t d = p.head_dim;
  WindowKeys<kForm> windows(p, most_window, scratch);
  ListedKeys<kForm> listed(p, scratch);
  const KeyValue<kForm>** keys = scratch.take<const KeyValue<kForm>*>(most_keys);
  const Workspace w = {.query = scratch.take<float>(static_cast<std::int64_t>(d) * kHeadChunk),
                       .scores = scratch.take<float>(most_keys * kHeadChunk),
                       .words = scratch.take<std::uint32_t>(std::max<std::int64_t>(d, most_keys) / 2 * kHeadChunk),
                       .no_key = scratch.take<std::uint32_t>(d / 2),
                       .o = scratch.take<bf16>(d),
                       .values = scratch.take<float>(d)};
  std::fill_n(w.no_key, d / 2, 0U);
  float* values = scratch.take<float>(static_cast<std::int64_t>(d) * kHeadChunk);
  HWY_ALIGN float sink[kHeadChunk] = {};
  HWY_ALIGN float denominator[kHeadChunk];
  std::copy_n(p.sink + heads.begin, heads.size(), sink);
  for (std::int32_t r = rows.begin; r < rows.end; ++r) {
    windows.cover(r, rows.end);
    std::int32_t count = windows.append(r, keys);
    count += p.list != nullptr ? listed.append(r, keys + count) : 0;
    if (count == 0) {
      std::fill_n(values, static_cast<std::int64_t>(d) * kHeadChunk, 0.0F);
      std::fill_n(denominator, kHeadChunk, 1.0F);
    } else {
      transpose_query(row_at(p.q, static_cast<std::int64_t>(r) * p.heads + heads.begin, d), d, heads.size(), w.query);
#if HWY_TARGET == HWY_AVX3
      if constexpr (kForm == KeyForm::words) {
        const std::int32_t key_step = std::min(kListedKeyStep, windows.least_exponent() - kScaleBias - kCodeBits);
        std::fill_n(keys + count, kKeyPadding, w.no_key);
        if (!attend_in_pairs(p, w, {keys, count, d}, key_step, heads.size(), sink, {values, denominator})) {
          return attend<KeyForm::floats>(p, {r, rows.end}, heads, scratch);  // seldom: not worth going on in between
        }
      }
#endif
      if constexpr (kForm == KeyForm::floats) {
        std::fill_n(keys + count, kKeyPadding, keys[0]);
        attend_plainly(p, w, {keys, count}, heads.size(), sink, {values, denominator});
      }
    }
    finish_query(p, r, heads, values, denominator, w);
  }
}

AttentionKernels make_attention_kernels([[maybe_unused]] ProductUnit unit) {
#if HWY_TARGET == HWY_AVX3
  if (unit != ProductUnit::vector) {
    return {attend<KeyForm::words>};
  }
#endif
  return {attend<KeyForm::floats>};
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_attention_kernels);
AttentionKernels attention_kernels(ProductUnit unit) { return HWY_DYNAMIC_DISPATCH(make_attention_kernels)(unit); }
}  // namespace deepinfer::cpu
#endif
