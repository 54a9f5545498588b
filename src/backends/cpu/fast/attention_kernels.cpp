// Attention core (docs/spec/model.md 5.4). Lanes are heads while scoring and in the softmax, and columns of the keys in the value sum, so
// no sum crosses lanes: scores add the columns in order, values add the keys in order (window ascending, then list ascending).
#include <limits>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/fast/kernels.h"
#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/attention_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/columns-inl.h"
#include "backends/cpu/fast/math-inl.h"
#include "backends/cpu/fast/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

inline constexpr std::int32_t kKeyStep = 8;                          ///< keys scored together; buffers are padded to it
inline constexpr std::int32_t kHeadVectors = kHeadChunk / kLanes;    ///< vectors that hold one float of every head
inline constexpr std::int32_t kValueHeads = 4;                       ///< heads whose value sums share the loaded key
inline constexpr std::int32_t kValueWidth = kLanes == 16 ? 32 : 16;  ///< columns of one value tile

/// Decoded keys of one query, each [head_dim] fp32; kKeyStep - 1 more pointers behind the last one may be read.
struct Keys {
  const float* const* rows;
  std::int32_t count;
};

/// What one query works in.
struct Workspace {
  float* query;   // [head_dim, kHeadChunk] transposed
  float* scores;  // [keys, kHeadChunk], then probabilities rounded to bf16
  bf16* o;        // [head_dim]
  float* values;  // [head_dim]
};

/// query[i, head] of `count` heads; the other heads repeat the first one.
inline void transpose_query(const bf16* q, std::int32_t head_dim, std::int32_t count, float* query) {
  for (std::int32_t first = 0; first < head_dim; first += kUnitPlaces) {
    UnitRows<bf16> heads;
    for (std::int32_t head = 0; head < kUnitRows; ++head) {
      heads.at[head] = q + (head < count ? head : 0) * static_cast<std::int64_t>(head_dim) + first;
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

/// Positions low .. high; empty when low > high.
struct Positions {
  std::int32_t low = 0;
  std::int32_t high = -1;

  [[nodiscard]] std::int32_t count() const { return high - low + 1; }
};

/// What row r and the rows of its chunk right after it, up to `end`, see of the window.
inline Positions windows_of_run(const AttendParams& p, std::int32_t r, std::int32_t end) {
  Positions out;
  for (std::int32_t i = r; i < end && p.rows.chunk[i] == p.rows.chunk[r]; ++i) {
    if (p.window_low[i] <= p.window_high[i]) {
      out.low = out.count() > 0 ? std::min(out.low, p.window_low[i]) : p.window_low[i];
      out.high = std::max(out.high, p.window_high[i]);
    }
  }
  return out;
}

/// Decoded window rows of consecutive queries of one chunk: their windows are slices of one run of positions.
class WindowKeys {
 public:
  WindowKeys(const AttendParams& p, float* data) : p_(p), data_(data) {}

  /// Decodes what row r and the rows after it see, unless that is done already.
  void cover(std::int32_t r, std::int32_t end) {
    const std::int32_t chunk = p_.rows.chunk[r];
    if (chunk == chunk_) {
      return;
    }
    chunk_ = chunk;
    covered_ = windows_of_run(p_, r, end);
    for (std::int32_t t = covered_.low; t <= covered_.high; ++t) {
      const std::uint8_t* record = window_record(p_, chunk, t);
      decode_q8_plain(record, record + p_.head_dim, p_.head_dim, row_at(data_, t - covered_.low, p_.head_dim));
    }
  }
  /// Appends the keys of query r, at most room for them; returns their number.
  std::int32_t append(std::int32_t r, const float** keys) const {
    std::int32_t count = 0;
    for (std::int32_t t = p_.window_low[r]; t <= p_.window_high[r]; ++t) {
      keys[count++] = row_at(data_, t - covered_.low, p_.head_dim);
    }
    return count;
  }

 private:
  const AttendParams& p_;
  float* data_;
  std::int32_t chunk_ = -1;
  Positions covered_;
};

/// Decoded listed rows. Neighbouring queries list mostly the same rows: those that the query before listed too are not decoded again.
class ListedKeys {
 public:
  ListedKeys(const AttendParams& p, Scratch& scratch)
      : p_(p),
        most_(p.list != nullptr ? p.top_k : 0),
        data_(scratch.take<float>(static_cast<std::int64_t>(most_) * p.head_dim)),
        before_(scratch.take<Entry>(most_)),
        now_(scratch.take<Entry>(most_)),
        free_(scratch.take<std::int32_t>(most_)) {}

  /// Appends the keys of query r; returns their number. They stay where they are until the next call.
  std::int32_t append(std::int32_t r, const float** keys) {
    if (p_.rows.chunk[r] != chunk_) {
      chunk_ = p_.rows.chunk[r];
      num_before_ = 0;
      for (num_free_ = 0; num_free_ < most_; ++num_free_) {
        free_[num_free_] = num_free_;
      }
    }
    const std::int32_t count = match(row_at(p_.list, r, most_));
    for (std::int32_t i = 0; i < count; ++i) {
      Entry& entry = now_[i];
      if (entry.place < 0) {
        entry.place = free_[--num_free_];
        decode(entry);
      }
      keys[i] = row_at(data_, entry.place, p_.head_dim);
    }
    std::swap(before_, now_);
    num_before_ = count;
    return count;
  }

 private:
  struct Entry {
    std::int32_t row;    ///< compressed row
    std::int32_t place;  ///< where it lies decoded; -1: not yet
  };

  /// Fills now_ from a list; both lists ascend. Places of rows that are listed no more become free.
  std::int32_t match(const std::int32_t* list) {
    std::int32_t count = 0;
    std::int32_t old = 0;
    for (std::int32_t l = 0; l < most_; ++l) {
      if (list[l] < 0) {
        continue;
      }
      for (; old < num_before_ && before_[old].row < list[l]; ++old) {
        free_[num_free_++] = before_[old].place;
      }
      const bool is_known = old < num_before_ && before_[old].row == list[l];
      now_[count++] = {list[l], is_known ? before_[old++].place : -1};
    }
    for (; old < num_before_; ++old) {
      free_[num_free_++] = before_[old].place;
    }
    return count;
  }

  void decode(const Entry& entry) {
    const std::uint8_t* record = compressed_record(p_, chunk_, entry.row);
    const std::uint8_t* scales = record + p_.head_dim / 2;
    decode_e2m1_plain(
        record, p_.head_dim, [&](std::int32_t group) { return e4m3_to_float(scales[group]); }, row_at(data_, entry.place, p_.head_dim));
  }

  const AttendParams& p_;
  std::int32_t most_;
  float* data_;  // [most_, head_dim]
  Entry* before_;
  Entry* now_;
  std::int32_t* free_;
  std::int32_t num_before_ = 0;
  std::int32_t num_free_ = 0;
  std::int32_t chunk_ = -1;
};

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

/// Most keys that the windows of a run of rows cover.
inline std::int64_t most_window_keys(const AttendParams& p, Range rows) {
  std::int64_t out = 0;
  for (std::int32_t r = rows.begin; r < rows.end; ++r) {
    if (r == rows.begin || p.rows.chunk[r] != p.rows.chunk[r - 1]) {
      out = std::max<std::int64_t>(out, windows_of_run(p, r, rows.end).count());
    }
  }
  return out;
}

void attend(const AttendParams& p, Range rows, Range heads, Scratch& scratch) {
  check(heads.size() <= kHeadChunk, "an attention task has at most one chunk of heads");
  const std::int64_t most_window = most_window_keys(p, rows);
  const std::int64_t most_keys = most_window + (p.list != nullptr ? p.top_k : 0) + kKeyStep;
  const std::int32_t d = p.head_dim;
  WindowKeys windows(p, scratch.take<float>(most_window * d));
  ListedKeys listed(p, scratch);
  const float** keys = scratch.take<const float*>(most_keys);
  const Workspace w = {scratch.take<float>(static_cast<std::int64_t>(d) * kHeadChunk), scratch.take<float>(most_keys * kHeadChunk),
                       scratch.take<bf16>(d), scratch.take<float>(d)};
  float* values = scratch.take<float>(static_cast<std::int64_t>(d) * kHeadChunk);
  HWY_ALIGN float sink[kHeadChunk] = {};
  HWY_ALIGN float denominator[kHeadChunk];
  std::copy_n(p.sink + heads.begin, heads.size(), sink);
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  for (std::int32_t r = rows.begin; r < rows.end; ++r) {
    windows.cover(r, rows.end);
    std::int32_t count = windows.append(r, keys);
    count += p.list != nullptr ? listed.append(r, keys + count) : 0;
    if (count == 0) {
      std::fill_n(values, static_cast<std::int64_t>(d) * kHeadChunk, 0.0F);
      std::fill_n(denominator, kHeadChunk, 1.0F);
    } else {
      transpose_query(row_at(p.q, static_cast<std::int64_t>(r) * p.heads + heads.begin, d), d, heads.size(), w.query);
      std::fill_n(keys + count, kKeyStep, keys[0]);
      score_keys(w, {keys, count}, d, heads.size());
      softmax(w.scores, count, heads.size(), factor, sink, denominator);
      sum_values({keys, count}, w.scores, d, heads.size(), values);
    }
    finish_query(p, r, heads, values, denominator, w);
  }
}

AttentionKernels make_attention_kernels() { return {attend}; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_attention_kernels);
AttentionKernels attention_kernels() { return HWY_DYNAMIC_DISPATCH(make_attention_kernels)(); }
}  // namespace deepinfer::cpu
#endif
