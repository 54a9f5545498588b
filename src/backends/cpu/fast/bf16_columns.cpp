#include "backends/cpu/fast/bf16_columns.h"

#if defined(__x86_64__) && defined(__linux__)

#include <type_traits>

#include <immintrin.h>

// From here on only what runs on such a processor: no templates of other headers, which other files might then share.
#pragma GCC push_options
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 finds them in its own intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace deepinfer::cpu::bf16_columns {
namespace {

#include "backends/cpu/fast/pair_tiles-inl.h"

using pairs::kBlockWords;

/// The order of the halves of two words: k, k + 1; k + 2, k + 3 as they lie, or k + 2, k; k + 3, k + 1 (pairs.h).
enum class Order : std::uint8_t { plain, pairs };

template <Order kOrder>
__m512i arranged(__m512i values) {
  if constexpr (kOrder == Order::plain) {
    return values;
  } else {
    return _mm512_shuffle_epi8(values, _mm512_set4_epi32(0x0B0A0F0E, 0x09080D0C, 0x03020706, 0x01000504));
  }
}

/// Least magnitude of bf16 values other than zero.
class Least {
 public:
  Least() : least_(_mm512_set1_epi16(-1)) {}

  void add(__m512i values) {
    // Twice the magnitude less one: zero becomes the largest number.
    least_ = _mm512_min_epu16(least_, _mm512_add_epi16(_mm512_add_epi16(values, values), _mm512_set1_epi16(-1)));
  }
  [[nodiscard]] std::int32_t exponent() const {
    const __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(least_), _mm512_extracti64x4_epi64(least_, 1));
    const __m128i quarter = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return (_mm_extract_epi16(_mm_minpos_epu16(quarter), 0) + 1) >> 8;
  }

 private:
  __m512i least_;
};

/// 32 values from `values`, of which `count` exist.
__m512i load_values(const std::uint16_t* values, std::int32_t count) {
  return count >= kUnitDepth ? _mm512_loadu_si512(values) : _mm512_maskz_loadu_epi16((__mmask32{1} << static_cast<unsigned>(count)) - 1, values);
}

template <Order kOrder, class Place>
std::int32_t pack_row(const std::uint16_t* row, std::int32_t count, const Place& place) {
  Least least;
  for (std::int32_t k = 0; k < count; k += kUnitDepth) {
    const __m512i values = load_values(row + k, count - k);
    least.add(values);
    _mm512_storeu_si512(place(k / kUnitDepth), arranged<kOrder>(values));
  }
  return least.exponent();
}

/// A number of a word that compilers know: what it chooses stays in registers.
template <int kIndex>
using Word = std::integral_constant<int, kIndex>;

/// Four words of sixteen rows, the first of them kWord: visit(Word, words of sixteen columns).
template <Order kOrder, int kWord, class Visit>
void visit_words(const std::uint16_t* values, std::int64_t stride, Least& least, const Visit& visit) {
  __m512i rows[4];  // of rows i, i + 4, i + 8, i + 12
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const std::uint16_t* own = values + i * stride + 2 * kWord;
    const auto part = [&](std::int64_t quarter) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(own + 4 * quarter * stride)); };
    const __m256i lower = _mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
    const __m256i upper = _mm256_inserti128_si256(_mm256_castsi128_si256(part(2)), part(3), 1);
    rows[i] = _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
    least.add(rows[i]);
    rows[i] = arranged<kOrder>(rows[i]);
  }
  const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
  visit(Word<kWord>(), _mm512_unpacklo_epi64(low01, low23));
  visit(Word<kWord + 1>(), _mm512_unpackhi_epi64(low01, low23));
  visit(Word<kWord + 2>(), _mm512_unpacklo_epi64(high01, high23));
  visit(Word<kWord + 3>(), _mm512_unpackhi_epi64(high01, high23));
}

/// The words of 32 values of sixteen rows.
template <Order kOrder, class Visit>
void visit_block(const std::uint16_t* values, std::int64_t stride, Least& least, const Visit& visit) {
  visit_words<kOrder, 0>(values, stride, least, visit);
  visit_words<kOrder, 4>(values, stride, least, visit);
  visit_words<kOrder, 8>(values, stride, least, visit);
  visit_words<kOrder, 12>(values, stride, least, visit);
}

/// Values of sixteen rows or fewer that end inside a block or later, padded with zeros.
void pad_block(const Columns& w, std::int32_t begin, std::uint16_t* values) {
  for (std::int32_t column = 0; column < kUnit; ++column) {
    const bool exists = column < w.num_columns;
    _mm512_store_si512(values + column * kUnitDepth,
                       exists ? load_values(w.first + column * w.stride + begin, w.count - begin) : _mm512_setzero_si512());
  }
}

/// work(block, values, stride) for every block of sixteen columns.
template <class Work>
void for_blocks(const Columns& w, Blocks blocks, const Work& work) {
  const std::int32_t whole = w.count / kUnitDepth;
  const std::int32_t end = blocks.first + blocks.count;
  for (std::int32_t block = blocks.first; block < (end < whole ? end : whole); ++block) {
    work(block - blocks.first, w.first + block * kUnitDepth, w.stride);
  }
  if (end > whole) {
    alignas(64) std::uint16_t padded[kUnit * kUnitDepth];
    pad_block(w, whole * kUnitDepth, padded);
    work(whole - blocks.first, padded, kUnitDepth);
  }
}

/// Asks for the values of sixteen rows, 32 each, so that memory works while others are multiplied.
void fetch_rows(const std::uint16_t* values, std::int64_t stride) {
#pragma GCC unroll 16
  for (int row = 0; row < kUnit; ++row) {
    _mm_prefetch(reinterpret_cast<const char*>(values + row * stride), _MM_HINT_T1);
  }
}

constexpr std::int32_t kAhead = 256;      // values of a row
constexpr std::int32_t kMostShort = 512;  // sixteen rows are half of the first cache

// Of several rows, whose arithmetic would leave the memory idle otherwise: units lie one after the other, and the second cache takes more
// requests at a time than the first, so this far ahead of it.
constexpr std::int32_t kWordsAhead = 4096;

template <int kRows>
void multiply_few_words(const pairs::Rows& x, const std::uint32_t* words, std::int32_t num_blocks, float* sums) {
  __m512 total[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    total[row] = _mm512_setzero_ps();
  }
  const std::uint32_t* rows = x.words;
  for (std::int32_t block = 0; block < num_blocks; ++block, rows += kRows * kBlockWords, words += kBlockWords * kUnit) {
    Sums<kRows> sums_of_block;
#pragma GCC unroll 16
    for (int place = 0; place < kBlockWords; ++place) {
      if constexpr (kRows > 1) {
        _mm_prefetch(reinterpret_cast<const char*>(words + kWordsAhead + place * kUnit), _MM_HINT_T1);
      }
      sums_of_block.add(place, _mm512_loadu_si512(words + place * kUnit), rows);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      total[row] = _mm512_add_ps(total[row], sums_of_block.joined(row));
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    _mm512_storeu_ps(sums + row * kUnit, total[row]);
  }
}

template <int kRows>
std::int32_t multiply_few_rows(const pairs::Rows& x, const Columns& w, float* sums) {
  const bool are_short = w.count <= kMostShort;  // the processor has no time to see that rows are streams: those that follow are asked for
  Least least;
  __m512 total[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    total[row] = _mm512_setzero_ps();
  }
  for_blocks(w, {0, (w.count + kUnitDepth - 1) / kUnitDepth}, [&](std::int32_t block, const std::uint16_t* values, std::int64_t stride) {
    const std::uint32_t* words = x.words + std::int64_t{block} * kRows * kBlockWords;
    if (are_short) {
      fetch_rows(values + kUnit * stride, stride);
    } else if (kRows > 2) {
      fetch_rows(values + kAhead, stride);  // arithmetic is long enough to leave the memory idle
    }
    Sums<kRows> sums_of_block;
    visit_block<Order::pairs>(values, stride, least, [&](int place, __m512i columns) { sums_of_block.add(place, columns, words); });
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      total[row] = _mm512_add_ps(total[row], sums_of_block.joined(row));
    }
  });
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    _mm512_storeu_ps(sums + row * kUnit, total[row]);
  }
  return least.exponent();
}

}  // namespace

std::int32_t pack_words(const std::uint16_t* row, std::int32_t count, std::int64_t block_stride, std::uint32_t* out) {
  return pack_row<Order::pairs>(row, count, [&](std::int32_t block) { return out + block * block_stride; });
}

std::int32_t pack_tile_row(const std::uint16_t* row, std::int32_t count, std::int64_t block_stride, std::uint16_t* out) {
  return pack_row<Order::plain>(row, count, [&](std::int32_t block) { return out + block * block_stride; });
}

std::int32_t place_unit(const Columns& w, std::uint32_t* words) {
  Least least;
  for (std::int32_t begin = 0; begin < w.count; begin += kUnitDepth, words += kBlockWords * kUnit) {
    alignas(64) std::uint16_t padded[kUnit * kUnitDepth];
    pad_block(w, begin, padded);
    visit_block<Order::pairs>(padded, kUnitDepth, least,
                              [&]<int kWord>(Word<kWord>, __m512i columns) { _mm512_storeu_si512(words + kWord * kUnit, columns); });
  }
  return least.exponent();
}

void fill_tiles(const std::uint32_t* words, std::int32_t num_blocks, std::uint16_t* tiles) {
  const __m512i upper_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (std::int32_t pair = 0; pair < num_blocks * (kBlockWords / 2); ++pair, words += 2 * kUnit, tiles += 4 * kUnit) {
    const __m512i even = _mm512_loadu_si512(words);         // k in the upper halves, k + 2 in the lower ones
    const __m512i odd = _mm512_loadu_si512(words + kUnit);  // k + 1 and k + 3
    _mm512_store_si512(tiles, _mm512_or_si512(_mm512_srli_epi32(even, 16), _mm512_and_si512(odd, upper_half)));
    _mm512_store_si512(tiles + 2 * kUnit, _mm512_or_si512(_mm512_andnot_si512(upper_half, even), _mm512_slli_epi32(odd, 16)));
  }
}

std::int32_t fill_tiles(const Columns& w, Blocks blocks, std::uint16_t* tiles) {
  Least least;
  for_blocks(w, blocks, [&](std::int32_t block, const std::uint16_t* values, std::int64_t stride) {
    fetch_rows(values + blocks.count * kUnitDepth, stride);
    std::uint16_t* out = tiles + block * kUnit * kUnitDepth;
    visit_block<Order::plain>(values, stride, least, [&]<int kWord>(Word<kWord>, __m512i columns) {
      _mm512_store_si512(out + 2 * kUnit * kWord, columns);
    });
  });
  return least.exponent();
}

std::int32_t multiply_few(const pairs::Rows& x, const Columns& w, float* sums) {
  std::int32_t exponent = kNoExponent;
  with_count<pairs::kFewTileRows>(x.tiling.rows, [&]<int kRows>(Count<kRows>) { exponent = multiply_few_rows<kRows>(x, w, sums); });
  return exponent;
}

void multiply_few(const pairs::Rows& x, const std::uint32_t* words, std::int32_t num_blocks, float* sums) {
  with_count<pairs::kFewTileRows>(x.tiling.rows, [&]<int kRows>(Count<kRows>) { multiply_few_words<kRows>(x, words, num_blocks, sums); });
}

std::int32_t multiply_panel(const pairs::Rows& x, pairs::Panel panel, const PanelColumns& w, std::uint32_t* words, float* sums) {
  Least least;
  for (std::size_t unit = 0; unit < w.units.size(); ++unit) {
    const Columns& own = w.units[unit];
    alignas(64) std::uint16_t padded[kUnit * kUnitDepth];
    multiply_first_tile(x, panel, words + unit * kUnit, sums + unit * kUnit, [&](std::int32_t block, const auto& visit) {
      const std::int32_t begin = (panel.index * pairs::kPanelBlocks + block) * kUnitDepth;
      const bool is_whole = begin + kUnitDepth <= own.count;
      fetch_rows(w.next + static_cast<std::int64_t>(unit) * kUnit * own.stride + block * kUnitDepth, own.stride);
      if (!is_whole) {
        pad_block(own, begin, padded);
      }
      visit_block<Order::pairs>(is_whole ? own.first + begin : padded, is_whole ? own.stride : kUnitDepth, least, visit);
    });
  }
  pairs::multiply_other_tiles(x, panel, words, sums);
  return least.exponent();
}

}  // namespace deepinfer::cpu::bf16_columns

#pragma GCC diagnostic pop
#pragma GCC pop_options

#endif
