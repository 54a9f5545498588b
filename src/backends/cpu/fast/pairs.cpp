#include "backends/cpu/fast/pairs.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>

#include <array>
#include <bit>

#include <immintrin.h>

#include "backends/cpu/fast/e4m3_magnitudes.h"
#include "tensor/formats.h"

namespace deepinfer::cpu::pairs {

bool is_usable() {
  constexpr unsigned kBytes = 1U << 1U;                       // leaf 7: ECX, byte permutations (VBMI)
  constexpr unsigned kWords = 1U << 30U, kShort = 1U << 31U;  // leaf 7: EBX, AVX-512 BW and VL
  constexpr unsigned kBf16 = 1U << 5U;                        // leaf 7, second part: EAX
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (c & kBytes) == 0 || (b & kWords) == 0 || (b & kShort) == 0) {
    return false;
  }
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kBf16) != 0;
}

}  // namespace deepinfer::cpu::pairs

// From here on only what runs on such a processor: no templates of other headers, which other files might then share.
#pragma GCC push_options
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 finds them in its own intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,avx512bf16")

namespace deepinfer::cpu::pairs {
namespace {

#include "backends/cpu/fast/e4m3_lookup-inl.h"

#include "backends/cpu/fast/pair_tiles-inl.h"

/// Whether decoded values are times their scales.
enum class Scales : std::uint8_t { left_out, applied };

/// Decodes blocks of one format: visit(place, words of sixteen columns) for the places of a step, ascending from the first one.
template <Scales kScales>
class Fp8 {
 public:
  static constexpr std::int32_t kSteps = 8, kStepPlaces = 2, kStepBytes = 64, kBlockScales = 1;

  Fp8() : lookup_(kE4m3Magnitudes[0]) {}

  void begin_block(const std::uint8_t* scales) {
    if constexpr (kScales == Scales::applied) {
      const std::int32_t exponent = *scales - kScaleBias;
      lookup_ = Lookup(kE4m3Magnitudes[static_cast<std::size_t>(exponent & 1)], exponent);
    }
  }

  template <class Visit>
  void decode(const std::uint8_t* codes, std::int32_t place, const Visit& visit) const {
    // Bytes of four values of k: of 16 columns the first two, of 16 columns the others. Unpacking takes eight bytes of each quarter for the even
    // ones and eight for the odd ones.
    alignas(64) static constexpr std::array<std::uint8_t, 64> kArranged = [] {
      std::array<std::uint8_t, 64> out{};
      for (std::uint8_t i = 0; i < 64; ++i) {
        const auto column = static_cast<std::uint8_t>(i / 16 * 4 + i % 8 / 2);
        out[i] = static_cast<std::uint8_t>((i % 2 == 0 ? 32 : 0) + 2 * column + (i % 16 >= 8 ? 1 : 0));
      }
      return out;
    }();
    const __m512i arranged = _mm512_permutexvar_epi8(_mm512_load_si512(&kArranged), _mm512_loadu_si512(codes));
    const Lookup::Values values = lookup_(arranged);
    visit(place, values.first);
    visit(place + 1, values.second);
  }

  static __m512 scales(const std::uint8_t* bytes) { return _mm512_set1_ps(ue8m0_to_float(*bytes)); }

 private:
  Lookup lookup_;
};

template <Scales kScales>
class Fp4 {
 public:
  static constexpr std::int32_t kSteps = 4, kStepPlaces = 4, kStepBytes = 64, kBlockScales = kUnit;

  Fp4() {
    // Values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives as bf16, twice: the look-up takes five bits of an index.
    const __m256i half = _mm256_setr_epi16(0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, static_cast<short>(0x8000),
                                           static_cast<short>(0xBF00), static_cast<short>(0xBF80), static_cast<short>(0xBFC0),
                                           static_cast<short>(0xC000), static_cast<short>(0xC040), static_cast<short>(0xC080),
                                           static_cast<short>(0xC0C0));
    values_ = _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
  }

  void begin_block(const std::uint8_t* scales) {
    if constexpr (kScales == Scales::applied) {
      exponents_ = column_exponents(scales);
    }
  }

  template <class Visit>
  void decode(const std::uint8_t* codes, std::int32_t place, const Visit& visit) const {
    // Bytes 0 .. 3 of a column hold k, k + 1; k + 2, k + 3; ..: as 1, 3, 0, 2 each half has four indices, of which the lowest is looked up.
    const __m512i index = _mm512_shuffle_epi8(_mm512_loadu_si512(codes), _mm512_set4_epi32(0x0E0C0F0D, 0x0A080B09, 0x06040705, 0x02000301));
    visit(place, look_up(index));
    visit(place + 1, look_up(_mm512_srli_epi16(index, 4)));
    visit(place + 2, look_up(_mm512_srli_epi16(index, 8)));
    visit(place + 3, look_up(_mm512_srli_epi16(index, 12)));
  }

  static __m512 scales(const std::uint8_t* bytes) {
    const __m512i exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(exponents, 23), _mm512_set1_epi32(0x00400000)));  // 2^-127 is a subnormal number
  }

 private:
  [[nodiscard]] __m512i look_up(__m512i index) const {
    const __m512i values = _mm512_permutexvar_epi16(index, values_);
    return kScales == Scales::applied ? scale_values(values, exponents_) : values;
  }

  __m512i values_;
  __m512i exponents_;
};

// Units lie one after the other, so what is asked for ahead is needed soon; the arithmetic of several rows would leave the memory idle
// otherwise. The second cache takes more requests at a time than the first, so this far ahead of it.
constexpr std::int32_t kAhead = 8192;
constexpr std::int32_t kLineBytes = 64;

/// Words of a block: visit(place, words) for its sixteen places.
template <class Format, class Visit>
void decode_block(const Format& format, const std::uint8_t* codes, const Visit& visit) {
#pragma GCC unroll 8
  for (std::int32_t step = 0; step < Format::kSteps; ++step) {
    format.decode(codes + step * Format::kStepBytes, step * Format::kStepPlaces, visit);
  }
}

/// kRows rows, which keep nothing of what they decode.
template <int kRows, class Format>
void multiply_tile(const Rows& x, std::int32_t tile, const UnitBlocks& w, float* sums) {
  constexpr std::int32_t kBytes = Format::kSteps * Format::kStepBytes;
  const Format format;
  __m512 total[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    total[row] = _mm512_setzero_ps();
  }
  const std::uint32_t* words = nullptr;
  const std::uint8_t* codes = w.codes;
  for (std::int32_t block = 0; block < w.count; ++block, words += kRows * kBlockWords, codes += kBytes) {
    if (block % kPanelBlocks == 0) {
      words = x.words + x.tiling.offset(block / kPanelBlocks, tile);
    }
    if constexpr (kRows > 1) {
#pragma GCC unroll 8
      for (std::int32_t line = 0; line < kBytes; line += kLineBytes) {
        _mm_prefetch(codes + kAhead + line, _MM_HINT_T1);
      }
    }
    Sums<kRows> sums_of_block;
    decode_block(format, codes, [&](std::int32_t place, __m512i columns) { sums_of_block.add(place, columns, words); });
    const __m512 scale = Format::scales(w.scales + block * Format::kBlockScales);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      total[row] = _mm512_fmadd_ps(sums_of_block.joined(row), scale, total[row]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    _mm512_storeu_ps(sums + row * kUnit, total[row]);
  }
}

template <class Format>
void multiply_unit(const Rows& x, const UnitBlocks& w, float* sums) {
  for (std::int32_t tile = 0; tile < x.tiling.count; ++tile) {
    float* own = sums + std::int64_t{x.tiling.first_row(tile)} * kUnit;
    with_count<kFewTileRows>(x.tiling.size(tile), [&]<int kRows>(Count<kRows>) { multiply_tile<kRows, Format>(x, tile, w, own); });
  }
}

template <class Format>
void multiply_codes(const Rows& x, std::int32_t panel, const PanelCodes& w, std::uint32_t* words, float* sums) {
  constexpr std::int32_t kBytes = Format::kSteps * Format::kStepBytes;
  const std::int32_t num_blocks = w.units[0].count;
  Format format;
  for (std::size_t unit = 0; unit < w.units.size(); ++unit) {
    const UnitBlocks& own = w.units[unit];
    _mm_prefetch(w.next[unit].scales, _MM_HINT_T1);
    multiply_first_tile(x, {panel, num_blocks}, words + unit * kUnit, sums + unit * kUnit, [&](std::int32_t block, const auto& visit) {
#pragma GCC unroll 8
      for (std::int32_t line = 0; line < kBytes; line += kLineBytes) {
        _mm_prefetch(w.next[unit].codes + block * kBytes + line, _MM_HINT_T1);
      }
      format.begin_block(own.scales + block * Format::kBlockScales);
      decode_block(format, own.codes + block * kBytes, visit);
    });
  }
  multiply_other_tiles(x, {panel, num_blocks}, words, sums);
}

/// Where both units of a panel lie, kStride words from place to place.
template <std::int32_t kStride>
struct UnitWords {
  const std::uint32_t* first;
  const std::uint32_t* second;
};

/// kRows rows times a panel, added to sums; step(place) at every second place of it, counted from its first block on.
template <int kRows, std::int32_t kStride, class Step>
void multiply_panel_tile(const std::uint32_t* x, UnitWords<kStride> w, std::int32_t num_blocks, float* sums, const Step& step) {
  constexpr int kUnits = kPanelColumns / kUnit;
  for (std::int32_t block = 0; block < num_blocks; ++block, x += kRows * kBlockWords) {
    __m512 sum[2][kRows][kUnits];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      sum[0][row][0] = sum[0][row][1] = sum[1][row][0] = sum[1][row][1] = _mm512_setzero_ps();
    }
#pragma GCC unroll 1
    for (std::int32_t word = 0; word < kBlockWords; word += 2, w.first += 2 * kStride, w.second += 2 * kStride) {
      step(block * kBlockWords + word);
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        const __m512i first = _mm512_load_si512(w.first + odd * kStride);
        const __m512i second = _mm512_load_si512(w.second + odd * kStride);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          const __m512i own = _mm512_set1_epi32(static_cast<int>(x[row * kBlockWords + word + odd]));
          sum[odd][row][0] = add_products(sum[odd][row][0], first, own);
          sum[odd][row][1] = add_products(sum[odd][row][1], second, own);
        }
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
      for (int unit = 0; unit < kUnits; ++unit) {
        float* total = sums + row * kPanelColumns + unit * kUnit;
        _mm512_store_ps(total, _mm512_add_ps(_mm512_load_ps(total), _mm512_add_ps(sum[0][row][unit], sum[1][row][unit])));
      }
    }
  }
}

/// A tile of the rows.
template <std::int32_t kStride, class Step>
void multiply_one_tile(const Rows& x, Panel panel, std::int32_t tile, UnitWords<kStride> w, float* sums, const Step& step) {
  const std::uint32_t* own = x.words + x.tiling.offset(panel.index, tile);
  float* own_sums = sums + std::int64_t{x.tiling.first_row(tile)} * kPanelColumns;
  with_count<kPanelTileRows>(x.tiling.size(tile),
                             [&]<int kRows>(Count<kRows>) { multiply_panel_tile<kRows>(own, w, panel.num_blocks, own_sums, step); });
}

}  // namespace

ScaleRange decode_q8_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::int64_t block_stride, std::uint32_t* out) {
  return decode_q8<ValueOrder::pairs>(codes, scales, width, 2 * block_stride, reinterpret_cast<std::uint16_t*>(out));
}

void multiply(const Rows& x, const UnitBlocks& w, float* sums) {
  w.format == WeightFormat::fp8 ? multiply_unit<Fp8<Scales::left_out>>(x, w, sums) : multiply_unit<Fp4<Scales::left_out>>(x, w, sums);
}

void multiply_other_tiles(const Rows& x, Panel panel, const std::uint32_t* words, float* sums) {
  for (std::int32_t tile = 1; tile < x.tiling.count; ++tile) {
    multiply_one_tile(x, panel, tile, UnitWords<kPanelColumns>{words, words + kUnit}, sums, [](std::int32_t) {});
  }
}

void multiply_panel(const Rows& x, Panel panel, const PanelUnits& w, float* sums) {
  const UnitWords<kUnit> units = {w.units[0], w.units[1]};
  multiply_one_tile(x, panel, 0, units, sums, [&](std::int32_t place) {
    for (const std::uint32_t* next : w.next) {
      _mm_prefetch(reinterpret_cast<const char*>(next + place * kUnit), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(next + (place + 1) * kUnit), _MM_HINT_T1);
    }
  });
  for (std::int32_t tile = 1; tile < x.tiling.count; ++tile) {
    multiply_one_tile(x, panel, tile, units, sums, [](std::int32_t) {});
  }
}

void multiply_panel(const Rows& x, std::int32_t panel, const PanelCodes& w, std::uint32_t* words, float* sums) {
  w.units[0].format == WeightFormat::fp8 ? multiply_codes<Fp8<Scales::applied>>(x, panel, w, words, sums)
                                         : multiply_codes<Fp4<Scales::applied>>(x, panel, w, words, sums);
}

void add_pair_products(const std::uint32_t* a, const std::uint32_t* b, float* acc) {
  _mm512_storeu_ps(acc, add_products(_mm512_loadu_ps(acc), _mm512_loadu_si512(a), _mm512_loadu_si512(b)));
}

double multiply_in_registers(std::int64_t rounds) {
  constexpr int kChains = 12;
  __m512 sum[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    sum[chain] = _mm512_setzero_ps();
  }
  const __m512i values = _mm512_set1_epi32(0x3C003C00);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int chain = 0; chain < kChains; ++chain) {
      sum[chain] = add_products(sum[chain], values, values);
      asm volatile("" : "+v"(sum[chain]));
    }
  }
  return 4.0 * kUnit * kChains * static_cast<double>(rounds);
}

}  // namespace deepinfer::cpu::pairs

#pragma GCC diagnostic pop
#pragma GCC pop_options

#else

namespace deepinfer::cpu::pairs {

bool is_usable() { return false; }
double multiply_in_registers(std::int64_t) { return 0; }

}  // namespace deepinfer::cpu::pairs

#endif
