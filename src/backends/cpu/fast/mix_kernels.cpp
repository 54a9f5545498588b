// Mixing coefficients of the residual streams (docs/spec/model.md 5.3): sums over all streams, sigmoids, Sinkhorn iteration.
#include <algorithm>

#include "backends/cpu/fast/kernels.h"
#include "backends/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fast/mix_kernels.cpp"
#include <hwy/foreach_target.h>

#include "backends/cpu/fast/doubles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {

/// exp of the first `count` lanes; the others keep what they have.
HWY_INLINE void exp_lanes(double* values, std::int32_t count) {
  for (std::int32_t lane = 0; lane < count; ++lane) {
    values[lane] = std::exp(values[lane]);
  }
}

/// The Sinkhorn iteration on kDoubles matrices at once: entry (i, j) of all of them at comb[(i * streams + j) * kDoubles]. kStreams 0: any number,
/// else entries stay in registers.
template <std::int32_t kStreams>
class Sinkhorn {
 public:
  /// The first `num_rows` lanes hold matrices.
  Sinkhorn(double* comb, std::int32_t streams, std::int32_t num_rows, double eps)
      : comb_(comb), streams_(kStreams > 0 ? kStreams : streams), num_rows_(num_rows), eps_(hn::Set(DD(), eps)) {}

  void run(std::int32_t iterations) {
    for (std::int32_t i = 0; i < streams_; ++i) {
      softmax_row(i);
    }
    if constexpr (kStreams > 0) {
      iterate_in_registers(iterations);
    } else {
      for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
        for (std::int32_t i = 0; i < streams_ && iteration > 0; ++i) {
          normalise(at(i, 0), kDoubles);
        }
        for (std::int32_t j = 0; j < streams_; ++j) {
          normalise(at(0, j), streams_ * kDoubles);
        }
      }
    }
  }

 private:
  [[nodiscard]] HWY_INLINE double* at(std::int32_t i, std::int32_t j) const { return comb_ + (i * streams_ + j) * kDoubles; }

  HWY_INLINE void softmax_row(std::int32_t i) {
    VD peak = load_double(at(i, 0));
    for (std::int32_t j = 1; j < streams_; ++j) {
      const VD value = load_double(at(i, j));
      peak = hn::IfThenElse(hn::Gt(value, peak), value, peak);
    }
    VD sum = hn::Zero(DD());
    for (std::int32_t j = 0; j < streams_; ++j) {
      store(hn::Sub(load_double(at(i, j)), peak), at(i, j));
      exp_lanes(at(i, j), num_rows_);
      sum = hn::Add(sum, load_double(at(i, j)));
    }
    for (std::int32_t j = 0; j < streams_; ++j) {
      store(hn::Add(hn::Div(load_double(at(i, j)), sum), eps_), at(i, j));
    }
  }

  /// Divides a row or a column, entries `stride` doubles apart, by its sum + eps.
  HWY_INLINE void normalise(double* first, std::int32_t stride) const {
    VD sum = eps_;
    for (std::int32_t i = 0; i < streams_; ++i) {
      sum = hn::Add(sum, load_double(first + i * stride));
    }
    const VD inverse = hn::Div(hn::Set(DD(), 1.0), sum);
    for (std::int32_t i = 0; i < streams_; ++i) {
      store(hn::Mul(load_double(first + i * stride), inverse), first + i * stride);
    }
  }

  HWY_INLINE void iterate_in_registers(std::int32_t iterations) {
    constexpr std::int32_t kEntries = kStreams * kStreams;
    VD m[kEntries];
    HWY_UNROLL(16)
    for (std::int32_t i = 0; i < kEntries; ++i) {
      m[i] = load_double(comb_ + i * kDoubles);
    }
    for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
      if (iteration > 0) {
        normalise_all<1, kStreams>(m);
      }
      normalise_all<kStreams, 1>(m);
    }
    HWY_UNROLL(16)
    for (std::int32_t i = 0; i < kEntries; ++i) {
      store(m[i], comb_ + i * kDoubles);
    }
  }

  /// Divides each row, or each column, by its sum + eps: entries kStep apart, rows or columns kNext.
  template <std::int32_t kStep, std::int32_t kNext>
  HWY_INLINE void normalise_all(VD* m) const {
    HWY_UNROLL(4)
    for (std::int32_t line = 0; line < kStreams; ++line) {
      VD* own = m + line * kNext;
      VD sum = eps_;
      HWY_UNROLL(4)
      for (std::int32_t i = 0; i < kStreams; ++i) {
        sum = hn::Add(sum, own[i * kStep]);
      }
      const VD inverse = hn::Div(hn::Set(DD(), 1.0), sum);
      HWY_UNROLL(4)
      for (std::int32_t i = 0; i < kStreams; ++i) {
        own[i * kStep] = hn::Mul(own[i * kStep], inverse);
      }
    }
  }

  double* comb_;
  std::int32_t streams_;
  std::int32_t num_rows_;
  VD eps_;
};

/// Coefficients of at most kDoubles rows from their logits: m[n * kDoubles + lane], overwritten by the coefficients. Lanes without a row hold
/// numbers that do no harm.
inline void mixing_coefficients(const MixParams& p, std::int32_t num_rows, double* m) {
  const std::int32_t streams = p.streams;
  const double eps = static_cast<double>(p.mix_eps);
  const VD one = hn::Set(DD(), 1.0);
  for (std::int32_t n = 0; n < num_mixes(p); ++n) {
    const std::int32_t kind = std::min(n / streams, 2);
    double* values = m + n * kDoubles;
    const VD scaled = hn::Mul(load_double(values), hn::Set(DD(), static_cast<double>(p.scale[kind])));
    const VD logit = hn::Add(scaled, hn::Set(DD(), static_cast<double>(p.base[n])));
    if (kind == 2) {
      store(logit, values);
      continue;
    }
    store(hn::Neg(logit), values);
    exp_lanes(values, num_rows);
    const VD sigmoid = hn::Div(one, hn::Add(one, load_double(values)));
    store(kind == 0 ? hn::Add(sigmoid, hn::Set(DD(), eps)) : hn::Add(sigmoid, sigmoid), values);
  }
  double* comb = m + 2 * streams * kDoubles;
  if (streams == 4) {
    Sinkhorn<4>(comb, streams, num_rows, eps).run(p.sinkhorn_iterations);
  } else {
    Sinkhorn<0>(comb, streams, num_rows, eps).run(p.sinkhorn_iterations);
  }
}

inline constexpr std::int32_t kMixDepth = 128;  ///< values of k taken together: 24 rows of fn and the rows of h stay in the first cache
inline constexpr std::int32_t kMixSums = kLanes == 16 ? 24 : 12;  ///< sums that registers hold beside what is multiplied
inline constexpr std::int32_t kMixRows = kLanes == 16 ? 6 : 4;    ///< rows of h that share the loads of fn
/// Rows of fn that share the loads of kRows rows of h; a few rows load fewer at once, which may lie in one set of the cache.
template <std::int32_t kRows>
inline constexpr std::int32_t kMixColumns = std::min(kMixSums / kRows, 8);

/// Sums over k of the rows of a task: lanes[row][n] for fn[n] . h[row], the last n for h[row] . h[row]; eight lanes each.
struct MixSums {
  double* lanes;
  std::int32_t count;  // rows of fn

  [[nodiscard]] double* at(std::int32_t row, std::int32_t n) const {
    return lanes + (static_cast<std::int64_t>(row) * (count + 1) + n) * kVirtualDoubles;
  }
};

/// Some values of a few rows of h, widened: [kMixRows, kMixDepth].
struct MixRows {
  double* data;
  std::int32_t first;  // row of the sums
};

/// Some values of all rows of fn, `stride` apart.
struct MixColumns {
  const float* fn;
  std::int64_t stride;
  std::int32_t width;
  std::int32_t ahead;  // values behind them that are taken next
};

inline constexpr std::int32_t kFloatsPerLine = 16;  ///< of a cache

/// The rows of fn lie far away: asked for one step ahead, while this one is multiplied, into the second cache, which takes more requests at a time.
template <std::int32_t kColumns>
HWY_INLINE void fetch_ahead(const MixColumns& columns, std::int32_t n) {
  constexpr int kRead = 0, kSecondCache = 2;
  for (std::int32_t i = 0; i < kColumns; ++i) {
    const float* next = columns.fn + (n + i) * columns.stride + columns.width;
    for (std::int32_t at = 0; at < columns.ahead; at += kFloatsPerLine) {
      __builtin_prefetch(next + at, kRead, kSecondCache);
    }
  }
}

template <std::int32_t kRows, std::int32_t kColumns>
HWY_INLINE void add_mix_tile(const MixRows& z, const MixColumns& columns, const MixSums& sums, std::int32_t n) {
  fetch_ahead<kColumns>(columns, n);
  add_dot_products<kRows, kColumns>(DoubleRows<const double>{z.data, kMixDepth},
                                    DoubleRows<const float>{columns.fn + n * columns.stride, columns.stride}, columns.width,
                                    DoubleRows<double>{sums.at(z.first, n), sums.at(1, 0) - sums.at(0, 0)});
}

/// Adds the products of kRows rows with a range of rows of fn.
template <std::int32_t kRows>
HWY_NOINLINE void add_mix_rows(const MixRows& z, const MixColumns& columns, Range chosen, const MixSums& sums) {
  std::int32_t n = chosen.begin;
  for (; n + kMixColumns<kRows> <= chosen.end; n += kMixColumns<kRows>) {
    add_mix_tile<kRows, kMixColumns<kRows>>(z, columns, sums, n);
  }
  for (; n < chosen.end; ++n) {
    add_mix_tile<kRows, 1>(z, columns, sums, n);
  }
}

/// Widens `width` values of one row and adds their squares.
HWY_INLINE void widen_mix_row(const bf16* h, std::int32_t width, double* z, double* squares) {
  D8Sum sum;
  sum.load(squares);
  for (std::int32_t i = 0; i < width; i += kVirtualDoubles) {
    HWY_UNROLL(8)
    for (std::int32_t part = 0; part < kDoubleParts; ++part) {
      const VD value = load_double(h + i + part * kDoubles);
      store(value, z + i + part * kDoubles);
      sum.part[part] = add_product(value, value, sum.part[part]);
    }
  }
  sum.save(squares);
}

template <std::int32_t kMost>
HWY_INLINE void add_mix_rows_of(std::int32_t rows, const MixRows& z, const MixColumns& columns, Range chosen, const MixSums& sums) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return add_mix_rows_of<kMost - 1>(rows, z, columns, chosen, sums);
    }
  }
  add_mix_rows<kMost>(z, columns, chosen, sums);
}

/// Fills the sums of the rows for a range of rows of fn, kMixDepth values of k at a time. The squares come with the range that begins at 0.
inline void add_mix_products(const MixParams& p, Range rows, Range chosen, const MixSums& sums, Scratch& scratch) {
  const std::int32_t k = p.streams * p.hidden;
  const std::int32_t num_groups = (rows.size() + kMixRows - 1) / kMixRows;
  double* z = scratch.take<double>(kMixRows * kMixDepth);
  // Rows of fn are a power of two apart and would push each other out of the first cache: several groups of rows read a copy.
  float* copy = num_groups > 1 ? scratch.take<float>(std::int64_t{sums.count} * kMixDepth) : nullptr;
  HWY_ALIGN double unused[kVirtualDoubles] = {};
  for (std::int32_t at = 0; at < k; at += kMixDepth) {
    const std::int32_t width = std::min(kMixDepth, k - at);
    MixColumns columns = {p.fn + at, k, width, std::min(kMixDepth, k - at - width)};
    if (copy != nullptr) {
      for (std::int32_t n = chosen.begin; n < chosen.end; ++n) {
        std::copy_n(row_at(p.fn, n, k) + at, width, row_at(copy, n, kMixDepth));
      }
      columns = {copy, kMixDepth, width, 0};
    }
    for (std::int32_t group = 0, r = 0; group < num_groups; ++group) {  // of even size
      const std::int32_t together = (rows.size() - r + num_groups - group - 1) / (num_groups - group);
      for (std::int32_t i = 0; i < together; ++i) {
        double* squares = chosen.begin == 0 ? sums.at(r + i, sums.count) : unused;
        widen_mix_row(row_at(p.h, rows.begin + r + i, k) + at, width, z + i * kMixDepth, squares);
      }
      add_mix_rows_of<kMixRows>(together, {z, r}, columns, chosen, sums);
      r += together;
    }
  }
}

/// Coefficients of kDoubles rows, or fewer, from their sums.
inline void finish_mix(const MixParams& p, Range rows, std::int32_t first, const MixSums& sums, double* m) {
  const std::int32_t k = p.streams * p.hidden;
  const std::int32_t num_rows = std::min(kDoubles, rows.size() - first);
  std::fill_n(m, std::int64_t{sums.count} * kDoubles, 1.0);
  for (std::int32_t lane = 0; lane < num_rows; ++lane) {
    const std::int32_t row = first + lane;
    D8Sum sum;
    sum.load(sums.at(row, sums.count));
    const double inverse = 1.0 / std::sqrt(sum.fold() / k + static_cast<double>(p.norm_eps));
    for (std::int32_t n = 0; n < sums.count; ++n) {
      sum.load(sums.at(row, n));
      m[n * kDoubles + lane] = sum.fold() * inverse;
    }
  }
  mixing_coefficients(p, num_rows, m);
  for (std::int32_t lane = 0; lane < num_rows; ++lane) {
    const auto coefficient = [m, lane](std::int32_t n) { return static_cast<float>(m[n * kDoubles + lane]); };
    const std::int32_t row = rows.begin + first + lane;
    for (std::int32_t n = 0; n < p.streams; ++n) {
      row_at(p.pre, row, p.streams)[n] = coefficient(n);
      row_at(p.post, row, p.streams)[n] = coefficient(p.streams + n);
    }
    for (std::int32_t n = 0; n < p.streams * p.streams; ++n) {
      row_at(p.comb, row, p.streams * p.streams)[n] = coefficient(2 * p.streams + n);
    }
  }
}

void mix_sums(const MixParams& p, Range rows, Range chosen, double* sums, Scratch& scratch) {
  add_mix_products(p, rows, chosen, {sums, num_mixes(p)}, scratch);
}

void mix_finish(const MixParams& p, Range rows, const double* sums, Scratch& scratch) {
  double* m = scratch.take<double>(static_cast<std::int64_t>(num_mixes(p)) * kDoubles);
  for (std::int32_t first = 0; first < rows.size(); first += kDoubles) {
    finish_mix(p, rows, first, {const_cast<double*>(sums), num_mixes(p)}, m);
  }
}

void mix(const MixParams& p, Range rows, Scratch& scratch) {
  const std::int64_t num_sums = rows.size() * mix_sums_per_row(p);
  double* sums = scratch.take<double>(num_sums);
  std::fill_n(sums, num_sums, 0.0);
  mix_sums(p, rows, {0, num_mixes(p)}, sums, scratch);
  mix_finish(p, rows, sums, scratch);
}

MixKernels make_mix_kernels() { return {mix, mix_sums, mix_finish}; }

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
HWY_EXPORT(make_mix_kernels);
MixKernels mix_kernels() { return HWY_DYNAMIC_DISPATCH(make_mix_kernels)(); }
}  // namespace deepinfer::cpu
#endif
