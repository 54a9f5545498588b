// Keys of attention, decoded: rows of the window and listed compressed rows, each decoded once for the queries of a task that see it. Not here:
// what is computed with them (attention_kernels.cpp).
#if defined(DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_
#undef DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_
#else
#define DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "backends/cpu/cache_rows.h"
#include "backends/cpu/fast/codecs-inl.h"
#include "backends/cpu/fast/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

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

/// How keys are decoded: for multiply-adds, or also for the instruction for pairs.
enum class KeyForm : std::uint8_t { floats, words_too };

/// Floats from one decoded key to the next: its values, and behind them the words of attention_pairs.h.
template <KeyForm kForm>
[[nodiscard]] constexpr std::int32_t key_stride(std::int32_t head_dim) {
  return kForm == KeyForm::words_too ? head_dim + head_dim / 2 : head_dim;
}

#if HWY_TARGET == HWY_AVX3
[[nodiscard]] inline const std::uint32_t* words_of(const float* key, std::int32_t head_dim) {
  return reinterpret_cast<const std::uint32_t*>(key + head_dim);
}

/// Fills in the words of a decoded key. width: multiple of 32.
HWY_INLINE void make_key_words(float* key, std::int32_t width) {
  const DU du;
  auto* words = reinterpret_cast<std::uint32_t*>(key + width);
  for (std::int32_t i = 0; i < width; i += 2 * kLanes) {
    const VU first = hn::BitCast(du, load(key + i));
    const VU second = hn::BitCast(du, load(key + i + kLanes));
    const VU word = hn::Or(hn::ConcatEven(du, second, first), hn::ShiftRight<16>(hn::ConcatOdd(du, second, first)));
    hn::StoreU(word, du, words + i / 2);
  }
}
#endif

template <KeyForm kForm>
HWY_INLINE void finish_key([[maybe_unused]] float* key, [[maybe_unused]] std::int32_t width) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kForm == KeyForm::words_too) {
    make_key_words(key, width);
  }
#endif
}

/// Decoded window rows of consecutive queries of one chunk: their windows are slices of one run of positions.
template <KeyForm kForm>
class WindowKeys {
 public:
  /// For at most `most` positions.
  WindowKeys(const AttendParams& p, std::int64_t most, Scratch& scratch)
      : p_(p), stride_(key_stride<kForm>(p.head_dim)), data_(scratch.take<float>(most * stride_)) {}

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
      const std::uint8_t* scales = record + p_.head_dim;
      float* key = row_at(data_, t - covered_.low, stride_);
      decode_q8_plain(record, scales, p_.head_dim, key);
      finish_key<kForm>(key, p_.head_dim);
      least_scale_ = std::min(least_scale_, *std::min_element(scales, scales + p_.head_dim / kQ8Group));
    }
  }
  /// Appends the keys of query r, at most room for them; returns their number.
  std::int32_t append(std::int32_t r, const float** keys) const {
    std::int32_t count = 0;
    for (std::int32_t t = p_.window_low[r]; t <= p_.window_high[r]; ++t) {
      keys[count++] = row_at(data_, t - covered_.low, stride_);
    }
    return count;
  }
  /// Exponent byte of the least scale of all keys so far.
  [[nodiscard]] std::int32_t least_scale() const { return least_scale_; }

 private:
  const AttendParams& p_;
  std::int32_t stride_;
  float* data_;  // [positions, stride_]
  std::int32_t chunk_ = -1;
  std::uint8_t least_scale_ = 255;
  Positions covered_;
};

/// Decoded listed rows. Neighbouring queries list mostly the same rows: those that the query before listed too are not decoded again.
template <KeyForm kForm>
class ListedKeys {
 public:
  ListedKeys(const AttendParams& p, Scratch& scratch)
      : p_(p),
        stride_(key_stride<kForm>(p.head_dim)),
        most_(p.list != nullptr ? p.top_k : 0),
        data_(scratch.take<float>(static_cast<std::int64_t>(most_) * stride_)),
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
      keys[i] = row_at(data_, entry.place, stride_);
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
    float* key = row_at(data_, entry.place, stride_);
    decode_e2m1_plain(record, p_.head_dim, [&](std::int32_t group) { return e4m3_to_float(scales[group]); }, key);
    finish_key<kForm>(key, p_.head_dim);
  }

  const AttendParams& p_;
  std::int32_t stride_;
  std::int32_t most_;
  float* data_;  // [most_, stride_]
  Entry* before_;
  Entry* now_;
  std::int32_t* free_;
  std::int32_t num_before_ = 0;
  std::int32_t num_free_ = 0;
  std::int32_t chunk_ = -1;
};

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
