// Rotation, attention and activations of the vision tower (docs/spec/model.md section 6). Attention goes over tiles of keys with a running
// maximum, so that memory does not grow with the image: lanes are queries while scoring and in the softmax, columns of the values in the
// sum, which adds the keys in order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/rows.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/vision_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kTileKeys = 64;                       ///< keys that are decoded together: two tiles of 16 KB for 64 columns
inline constexpr std::int32_t kGroupQueries = kVirtualLanes;        ///< queries that are scored together
inline constexpr std::int32_t kGroups = kQueryBlock / kGroupQueries;
inline constexpr std::int32_t kScoredKeys = 4;                      ///< keys scored at once
inline constexpr std::int32_t kSummedQueries = 4;                   ///< queries whose value sums share a loaded key

/// What one task works in. `width` is head_dim padded to whole vectors with zeros.
struct Tiles {
  std::int32_t width;
  float* query;   // [kGroups, width, kGroupQueries] transposed
  float* key;     // [kTileKeys, width]
  float* value;   // [kTileKeys, width]
  float* score;   // [kTileKeys, kGroupQueries], then probabilities
  float* sum;     // [kQueryBlock, width]
  float* peak;    // [kQueryBlock] largest score so far
  float* total;   // [kQueryBlock] sum of probabilities so far
  float* shrink;  // [kGroupQueries] what sums of earlier tiles are multiplied by
};

Tiles make_tiles(const AttendAllParams& p, Scratch& scratch) {
  const std::int32_t width = (p.head_dim + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  const auto take = [&](std::int64_t count) {
    float* out = scratch.take<float>(count);
    std::fill_n(out, count, 0.0F);
    return out;
  };
  const std::int64_t row = width;
  return {.width = width,
          .query = take(row * kQueryBlock),
          .key = take(row * kTileKeys),
          .value = take(row * kTileKeys),
          .score = take(std::int64_t{kTileKeys} * kGroupQueries),
          .sum = take(row * kQueryBlock),
          .peak = take(kQueryBlock),
          .total = take(kQueryBlock),
          .shrink = take(kGroupQueries)};
}

inline void widen_row(const bf16* from, std::int32_t count, float* to) {
  std::int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(load(from + i), to + i);
  }
  for (; i < count; ++i) {
    to[i] = to_float(from[i]);
  }
}

/// Queries that do not exist stay zero.
void transpose_queries(const AttendAllParams& p, Range rows, std::int32_t head, const Tiles& t) {
  for (std::int32_t r = 0; r < rows.size(); ++r) {
    const bf16* q = row_at(p.q, rows.begin + r, p.q_stride) + std::int64_t{head} * p.head_dim;
    float* group = row_at(t.query, r / kGroupQueries, std::int64_t{t.width} * kGroupQueries);
    for (std::int32_t i = 0; i < p.head_dim; ++i) {
      group[i * kGroupQueries + r % kGroupQueries] = to_float(q[i]);
    }
  }
}

/// score[key, query] = query . key, columns in order; keys beyond the tile's are computed and not used.
HWY_NOINLINE void score_tile(const float* query, const Tiles& t, std::int32_t num_keys) {
  for (std::int32_t j = 0; j < num_keys; j += kScoredKeys) {
    F16 sum[kScoredKeys];
    HWY_UNROLL(4)
    for (std::int32_t key = 0; key < kScoredKeys; ++key) {
      sum[key] = zero16();
    }
    const float* keys = row_at(t.key, j, t.width);
    for (std::int32_t i = 0; i < t.width; ++i) {
      const F16 q = load16(query + i * kGroupQueries);
      HWY_UNROLL(4)
      for (std::int32_t key = 0; key < kScoredKeys; ++key) {
        const VF value = hn::Set(DF(), keys[key * t.width + i]);
        HWY_UNROLL(16)
        for (std::int32_t part = 0; part < kParts; ++part) {
          sum[key].part[part] = add_exact_product(q.part[part], value, sum[key].part[part]);
        }
      }
    }
    HWY_UNROLL(4)
    for (std::int32_t key = 0; key < kScoredKeys; ++key) {
      store16(sum[key], row_at(t.score, j + key, kGroupQueries));
    }
  }
}

/// Scores to probabilities relative to the largest score so far; peak, total and shrink follow.
HWY_NOINLINE void soften_tile(const Tiles& t, std::int32_t first_query, std::int32_t num_keys, float factor) {
  const DF d;
  for (std::int32_t lane = 0; lane < kGroupQueries; lane += kLanes) {
    float* column = t.score + lane;
    const VF before = load(t.peak + first_query + lane);
    VF peak = before;
    for (std::int32_t j = 0; j < num_keys; ++j) {
      const VF score = hn::Mul(load(column + j * kGroupQueries), hn::Set(d, factor));
      store(score, column + j * kGroupQueries);
      peak = hn::Max(peak, score);
    }
    const VF shrink = exp(hn::Sub(before, peak));
    VF total = hn::Mul(load(t.total + first_query + lane), shrink);
    for (std::int32_t j = 0; j < num_keys; ++j) {
      const VF p = exp(hn::Sub(load(column + j * kGroupQueries), peak));
      total = hn::Add(total, p);
      store(p, column + j * kGroupQueries);
    }
    store(peak, t.peak + first_query + lane);
    store(total, t.total + first_query + lane);
    store(shrink, t.shrink + lane);
  }
}

/// sum[query] = sum[query] * shrink + sum over keys of probability * value, for kSummedQueries queries from `lane` on.
HWY_NOINLINE void sum_tile_values(const Tiles& t, std::int32_t first_query, std::int32_t lane, std::int32_t num_keys) {
  for (std::int32_t c = 0; c < t.width; c += kVirtualLanes) {
    F16 sum[kSummedQueries];
    HWY_UNROLL(4)
    for (std::int32_t q = 0; q < kSummedQueries; ++q) {
      sum[q] = load16(row_at(t.sum, first_query + lane + q, t.width) + c);
      HWY_UNROLL(16)
      for (std::int32_t part = 0; part < kParts; ++part) {
        sum[q].part[part] = hn::Mul(sum[q].part[part], hn::Set(DF(), t.shrink[lane + q]));
      }
    }
    for (std::int32_t j = 0; j < num_keys; ++j) {
      const F16 value = load16(row_at(t.value, j, t.width) + c);
      const float* p = row_at(t.score, j, kGroupQueries) + lane;
      HWY_UNROLL(4)
      for (std::int32_t q = 0; q < kSummedQueries; ++q) {
        const VF weight = hn::Set(DF(), p[q]);
        HWY_UNROLL(16)
        for (std::int32_t part = 0; part < kParts; ++part) {
          sum[q].part[part] = fma(weight, value.part[part], sum[q].part[part]);
        }
      }
    }
    HWY_UNROLL(4)
    for (std::int32_t q = 0; q < kSummedQueries; ++q) {
      store16(sum[q], row_at(t.sum, first_query + lane + q, t.width) + c);
    }
  }
}

void attend_all(const AttendAllParams& p, Range rows, std::int32_t head, Scratch& scratch) {
  check(rows.size() <= kQueryBlock, "a task of full attention has at most one block of queries");
  const Tiles t = make_tiles(p, scratch);
  std::fill_n(t.peak, kQueryBlock, -std::numeric_limits<float>::infinity());
  transpose_queries(p, rows, head, t);
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.head_dim)));
  const std::int64_t column = std::int64_t{head} * p.head_dim;
  for (std::int32_t first = 0; first < p.num_keys; first += kTileKeys) {
    const std::int32_t num_keys = std::min(kTileKeys, p.num_keys - first);
    for (std::int32_t j = 0; j < num_keys; ++j) {
      widen_row(row_at(p.k, first + j, p.kv_stride) + column, p.head_dim, row_at(t.key, j, t.width));
      widen_row(row_at(p.v, first + j, p.kv_stride) + column, p.head_dim, row_at(t.value, j, t.width));
    }
    for (std::int32_t query = 0; query < rows.size(); query += kGroupQueries) {
      score_tile(row_at(t.query, query, t.width), t, num_keys);
      soften_tile(t, query, num_keys, factor);
      for (std::int32_t lane = 0; lane < kGroupQueries; lane += kSummedQueries) {
        sum_tile_values(t, query, lane, num_keys);
      }
    }
  }
  for (std::int32_t r = 0; r < rows.size(); ++r) {
    bf16* o = row_at(p.o, std::int64_t{rows.begin + r} * p.heads + head, p.head_dim);
    for (std::int32_t i = 0; i < p.head_dim; ++i) {
      o[i] = to_bf16(row_at(t.sum, r, t.width)[i] / t.total[r]);
    }
  }
}

void rotate_halves(const RotateHalvesParams& p, Range rows) {
  const std::int32_t half = p.head_dim / 2;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    for (std::int64_t head = 0; head < p.heads; ++head) {
      if (half % kVirtualLanes != 0) {
        rotate_half_row(p, r, head);
        continue;
      }
      bf16* x = row_at(row_at(p.x, r, p.x_stride), head, p.head_dim);
      for (std::int32_t i = 0; i < half; i += kLanes) {
        const VF c = load(row_at(p.cos, r, half) + i);
        const VF s = load(row_at(p.sin, r, half) + i);
        const VF a = load(x + i);
        const VF b = load(x + half + i);
        store(fma(a, c, hn::Neg(hn::Mul(b, s))), x + i);
        store(fma(a, s, hn::Mul(b, c)), x + half + i);
      }
    }
  }
}

/// Values [first, end) of two vectors; `work` gets whole vectors of floats and what follows is done value by value in a padded copy.
template <class Work>
HWY_INLINE void for_vectors(const bf16* a, const bf16* b, std::int64_t count, bf16* out, const Work& work) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(work(load(a + i), load(b + i)), out + i);
  }
  if (i < count) {
    bf16 rest[3][kLanes] = {};
    std::copy_n(a + i, count - i, rest[0]);
    std::copy_n(b + i, count - i, rest[1]);
    store(work(load(rest[0]), load(rest[1])), rest[2]);
    std::copy_n(rest[2], count - i, out + i);
  }
}

void add(const AddParams& p, Range rows) {
  const std::int64_t first = std::int64_t{rows.begin} * p.width;
  for_vectors(p.x + first, p.y + first, std::int64_t{rows.size()} * p.width, p.x + first,
              [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); });
}

void silu_product(const SiluProductParams& p, Range rows) {
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const bf16* gate = row_at(p.gate_up, r, 2 * p.width);
    for_vectors(gate, gate + p.width, p.width, row_at(p.y, r, p.width),
                [](VF g, VF up) HWY_ATTR {
                  return hn::Mul(hn::Div(g, hn::Add(hn::Set(DF(), 1.0F), exp(hn::Neg(g)))), up);
                });
  }
}

VisionKernels make_vision_kernels() { return {rotate_halves, attend_all, add, silu_product}; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_vision_kernels);
VisionKernels vision_kernels() { return HWY_DYNAMIC_DISPATCH(make_vision_kernels)(); }
}  // namespace deepinfer::cpu
#endif
