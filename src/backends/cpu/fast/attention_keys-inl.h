// Keys of attention, decoded: rows of the window and listed compressed rows, each decoded once for the queries of a task that see it. Not here:
// what is computed with them (attention_kernels.cpp).
#if defined(DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_
#undef DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_
#else
#define DEEPINFER_CPU_FAST_ATTENTION_KEYS_INL_H_
#endif

#include <algorithm>
#include <type_traits>
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

/// What keys are decoded to: fp32 for multiply-adds, or the words of attention_pairs.h, which small values do not fit (stays_normal in
/// attention_kernels.cpp).
enum class KeyForm : std::uint8_t { floats, words };

template <KeyForm kForm>
using KeyValue = std::conditional_t<kForm == KeyForm::floats, float, std::uint32_t>;

/// Values of a decoded key.
template <KeyForm kForm>
[[nodiscard]] constexpr std::int32_t key_size(std::int32_t head_dim) {
  return kForm == KeyForm::floats ? head_dim : head_dim / 2;
}

/// The least of some numbers other than zero.
class LeastNumber {
 public:
  HWY_INLINE LeastNumber() : least_(hn::Set(DU(), 0xFFFFFFFFU)) {}

  HWY_INLINE void add(VU bits) {
    const DU du;
    least_ = hn::Min(least_, hn::Sub(hn::And(bits, hn::Set(du, 0x7FFFFFFFU)), hn::Set(du, 1U)));  // zero becomes the largest
  }
  /// Its exponent byte; of zeros alone the largest.
  [[nodiscard]] HWY_INLINE std::int32_t exponent() const {
    const std::uint32_t least = hn::GetLane(hn::MinOfLanes(DU(), least_));
    return least == 0xFFFFFFFFU ? 255 : static_cast<std::int32_t>((least + 1) >> 23U);
  }

 private:
  VU least_;
};

inline void decode_window_key(const std::uint8_t* record, std::int32_t head_dim, float* key, LeastNumber&) {
  decode_q8_plain(record, record + head_dim, head_dim, key);
}

inline void decode_listed_key(const std::uint8_t* record, std::int32_t head_dim, float* key) {
  const std::uint8_t* scales = record + head_dim / 2;
  decode_e2m1_plain(record, head_dim, [scales](std::int32_t group) { return e4m3_to_float(scales[group]); }, key);
}

#if HWY_TARGET == HWY_AVX3

/// Words of the bits of even and odd places, bf16 values as fp32.
HWY_INLINE VU words_of(VF even, VF odd) {
  return hn::Or(hn::BitCast(DU(), even), hn::ShiftRight<16>(hn::BitCast(DU(), odd)));
}

/// least: of the values of all keys.
inline void decode_window_key(const std::uint8_t* record, std::int32_t head_dim, std::uint32_t* key, LeastNumber& least) {
  const DF d;
  HWY_ALIGN float values[kQ8Group];
  for (std::int32_t group = 0; group < head_dim / kQ8Group; ++group) {
    decode_q8_plain(record + group * kQ8Group, record + head_dim + group, kQ8Group, values);
    const VF first = load(values);
    const VF second = load(values + kLanes);
    least.add(hn::BitCast(DU(), first));
    least.add(hn::BitCast(DU(), second));
    hn::StoreU(words_of(hn::ConcatEven(d, second, first), hn::ConcatOdd(d, second, first)), DU(), key + group * kLanes);
  }
}

inline void decode_listed_key(const std::uint8_t* record, std::int32_t head_dim, std::uint32_t* key) {
  HWY_ALIGN static constexpr float kValues[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  const DF d;
  const DU du;
  const hn::Half<DF> d8;
  const VF values = load(kValues);
  const std::uint8_t* scales = record + head_dim / 2;
  for (std::int32_t i = 0; i < head_dim / 2; i += kLanes, scales += 2) {  // a byte is an even and an odd place
    const VU codes = hn::PromoteTo(du, hn::LoadU(DByte(), record + i));
    const VF scale = hn::Combine(d, hn::Set(d8, e4m3_to_float(scales[1])), hn::Set(d8, e4m3_to_float(scales[0])));
    const VF even = hn::TableLookupLanes(values, hn::IndicesFromVec(d, hn::And(codes, hn::Set(du, 15U))));
    const VF odd = hn::TableLookupLanes(values, hn::IndicesFromVec(d, hn::ShiftRight<4>(codes)));
    hn::StoreU(words_of(hn::Mul(even, scale), hn::Mul(odd, scale)), du, key + i);
  }
}
static_assert(2 * kLanes == kQ8Group && kLanes == kQ4KvGroup);

#endif

/// Decoded window rows of consecutive queries of one chunk: their windows are slices of one run of positions.
template <KeyForm kForm>
class WindowKeys {
 public:
  /// For at most `most` positions.
  WindowKeys(const AttendParams& p, std::int64_t most, Scratch& scratch)
      : p_(p), stride_(key_size<kForm>(p.head_dim)), data_(scratch.take<KeyValue<kForm>>(most * stride_)) {}

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
      decode_window_key(record, p_.head_dim, row_at(data_, t - covered_.low, stride_), least_);
    }
  }
  /// Appends the keys of query r, at most room for them; returns their number.
  std::int32_t append(std::int32_t r, const KeyValue<kForm>** keys) const {
    std::int32_t count = 0;
    for (std::int32_t t = p_.window_low[r]; t <= p_.window_high[r]; ++t) {
      keys[count++] = row_at(data_, t - covered_.low, stride_);
    }
    return count;
  }
  /// Exponent byte of the least number in all keys so far, of words.
  [[nodiscard]] std::int32_t least_exponent() const { return least_.exponent(); }

 private:
  const AttendParams& p_;
  std::int32_t stride_;
  KeyValue<kForm>* data_;  // [positions, stride_]
  std::int32_t chunk_ = -1;
  LeastNumber least_;
  Positions covered_;
};

/// Decoded listed rows. Neighbouring queries list mostly the same rows: those that the query before listed too are not decoded again.
template <KeyForm kForm>
class ListedKeys {
 public:
  ListedKeys(const AttendParams& p, Scratch& scratch)
      : p_(p),
        stride_(key_size<kForm>(p.head_dim)),
        most_(p.list != nullptr ? p.top_k : 0),
        data_(scratch.take<KeyValue<kForm>>(static_cast<std::int64_t>(most_) * stride_)),
        before_(scratch.take<Entry>(most_)),
        now_(scratch.take<Entry>(most_)),
        free_(scratch.take<std::int32_t>(most_)) {}

  /// Appends the keys of query r; returns their number. They stay where they are until the next call.
  std::int32_t append(std::int32_t r, const KeyValue<kForm>** keys) {
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
    decode_listed_key(compressed_record(p_, chunk_, entry.row), p_.head_dim, row_at(data_, entry.place, stride_));
  }

  const AttendParams& p_;
  std::int32_t stride_;
  std::int32_t most_;
  KeyValue<kForm>* data_;  // [most_, stride_]
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
