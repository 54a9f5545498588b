#include "backends/cpu/fast/amx.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>

#include <immintrin.h>

#include "backends/cpu/fast/e4m3_magnitudes.h"
#include "tensor/formats.h"

namespace deepinfer::cpu::amx {
namespace {

/// Asks the operating system for the registers of the unit, which it gives to a process on demand only.
bool request_use() {
  constexpr unsigned kPalette = 1U << 24U, kBf16 = 1U << 22U;  // leaf 7: EDX
  constexpr unsigned kBytes = 1U << 1U;                        // leaf 7: ECX, byte permutations (VBMI)
  constexpr unsigned kWords = 1U << 30U, kShort = 1U << 31U;   // leaf 7: EBX, AVX-512 BW and VL
  constexpr long kRequestPermission = 0x1023;                  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kPalette) == 0 || (d & kBf16) == 0 || (c & kBytes) == 0 || (b & kWords) == 0 ||
      (b & kShort) == 0) {
    return false;
  }
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool is_usable() {
  static const bool usable = request_use();
  return usable;
}

}  // namespace deepinfer::cpu::amx

// From here on only what runs on a processor with the unit: no templates of other headers, which other files might then share.
#pragma GCC push_options
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 finds them in its own intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")

namespace deepinfer::cpu::amx {
namespace {

#include "backends/cpu/fast/e4m3_lookup-inl.h"

template <int kTile>
void load_tile(const void* base, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
void store_tile(void* base, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(base), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kSum, int kRows, int kColumns>
void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
}

template <int kTile>
void begin_sums(float* sums, std::int64_t stride, bool from_zero) {
  from_zero ? clear_tile<kTile>() : load_tile<kTile>(sums, stride);
}

/// Tiles of rows from where a panel begins: one, and the one below it.
struct RowTiles {
  const std::uint8_t* upper;
  const std::uint8_t* lower;
  std::int64_t block_bytes;
};

/// Two tiles of rows, two units.
void multiply_square(const RowTiles& x, std::int32_t rows, const Panel& panel, const Sums& sums, std::int64_t sums_bytes) {
  const auto* left = reinterpret_cast<const std::uint8_t*>(panel.data);
  const std::uint8_t* right = left + static_cast<std::int64_t>(panel.num_blocks) * kTileBytes;
  float* const second = sums.data + rows * (sums_bytes / 4);
  begin_sums<0>(sums.data, sums_bytes, sums.from_zero);
  begin_sums<1>(sums.data + kTileRows, sums_bytes, sums.from_zero);
  begin_sums<2>(second, sums_bytes, sums.from_zero);
  begin_sums<3>(second + kTileRows, sums_bytes, sums.from_zero);
  for (std::int32_t block = 0; block < panel.num_blocks; ++block) {
    load_tile<4>(x.upper + block * x.block_bytes, 64);
    load_tile<6>(left + block * kTileBytes, 64);
    add_products<0, 4, 6>();
    load_tile<7>(right + block * kTileBytes, 64);
    add_products<1, 4, 7>();
    load_tile<5>(x.lower + block * x.block_bytes, 64);
    add_products<2, 5, 6>();
    add_products<3, 5, 7>();
  }
  store_tile<0>(sums.data, sums_bytes);
  store_tile<1>(sums.data + kTileRows, sums_bytes);
  store_tile<2>(second, sums_bytes);
  store_tile<3>(second + kTileRows, sums_bytes);
}

/// One tile of rows, kUnits units.
template <int kUnits>
void multiply_line(const RowTiles& x, const Panel& panel, const Sums& sums, std::int64_t sums_bytes) {
  const auto* columns = reinterpret_cast<const std::uint8_t*>(panel.data);
  const std::int64_t unit_bytes = static_cast<std::int64_t>(panel.num_blocks) * kTileBytes;
  begin_sums<0>(sums.data, sums_bytes, sums.from_zero);
  if constexpr (kUnits > 1) begin_sums<1>(sums.data + kTileRows, sums_bytes, sums.from_zero);
  if constexpr (kUnits > 2) begin_sums<2>(sums.data + 2 * kTileRows, sums_bytes, sums.from_zero);
  if constexpr (kUnits > 3) begin_sums<3>(sums.data + 3 * kTileRows, sums_bytes, sums.from_zero);
  for (std::int32_t block = 0; block < panel.num_blocks; ++block) {
    load_tile<4>(x.upper + block * x.block_bytes, 64);
    load_tile<6>(columns + block * kTileBytes, 64);
    add_products<0, 4, 6>();
    if constexpr (kUnits > 1) {
      load_tile<7>(columns + unit_bytes + block * kTileBytes, 64);
      add_products<1, 4, 7>();
    }
    if constexpr (kUnits > 2) {
      load_tile<6>(columns + 2 * unit_bytes + block * kTileBytes, 64);
      add_products<2, 4, 6>();
    }
    if constexpr (kUnits > 3) {
      load_tile<7>(columns + 3 * unit_bytes + block * kTileBytes, 64);
      add_products<3, 4, 7>();
    }
  }
  store_tile<0>(sums.data, sums_bytes);
  if constexpr (kUnits > 1) store_tile<1>(sums.data + kTileRows, sums_bytes);
  if constexpr (kUnits > 2) store_tile<2>(sums.data + 2 * kTileRows, sums_bytes);
  if constexpr (kUnits > 3) store_tile<3>(sums.data + 3 * kTileRows, sums_bytes);
}

void multiply_lines(const RowTiles& x, const Panel& panel, const Sums& sums, std::int64_t sums_bytes) {
  switch (panel.units) {
    case 1:
      return multiply_line<1>(x, panel, sums, sums_bytes);
    case 2:
      return multiply_line<2>(x, panel, sums, sums_bytes);
    case 3:
      return multiply_line<3>(x, panel, sums, sums_bytes);
    default:
      return multiply_line<4>(x, panel, sums, sums_bytes);
  }
}

void decode_fp8(const std::uint8_t* blocks, const std::uint8_t* scales, std::int32_t num_blocks, std::uint16_t* tiles) {
  for (std::int32_t block = 0; block < num_blocks; ++block, blocks += 512, tiles += kTileBytes / 2) {
    const std::int32_t exponent = scales[block] - kScaleBias;
    const Lookup lookup(kE4m3Magnitudes[static_cast<std::size_t>(exponent & 1)], exponent);
    for (std::int32_t i = 0; i < 8; ++i) {
      const Lookup::Values values = lookup(arrange_codes<ValueOrder::plain>(_mm512_loadu_si512(blocks + 64 * i)));
      _mm512_store_si512(tiles + 64 * i, values.first);
      _mm512_store_si512(tiles + 64 * i + 32, values.second);
    }
  }
}

void decode_fp4(const std::uint8_t* blocks, const std::uint8_t* scales, std::int32_t num_blocks, std::uint16_t* tiles) {
  // Values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives as bf16, twice: the look-up takes five bits of an index.
  const __m256i half = _mm256_setr_epi16(0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, static_cast<short>(0x8000),
                                         static_cast<short>(0xBF00), static_cast<short>(0xBF80), static_cast<short>(0xBFC0),
                                         static_cast<short>(0xC000), static_cast<short>(0xC040), static_cast<short>(0xC080),
                                         static_cast<short>(0xC0C0));
  const __m512i table = _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
  const __m512i lower_words = _mm512_set1_epi32(0xFFFF);
  for (std::int32_t block = 0; block < num_blocks; ++block, blocks += 256, scales += 16, tiles += kTileBytes / 2) {
    const __m512i exponents = column_exponents(scales);
    for (std::int32_t i = 0; i < 4; ++i) {
      __m512i codes = _mm512_loadu_si512(blocks + 64 * i);
      for (std::int32_t pair = 0; pair < 4; ++pair) {
        // Low words of the index: the even code in bits 0-3; high words: the odd code.
        const __m512i index = _mm512_ternarylogic_epi64(lower_words, codes, _mm512_slli_epi32(codes, 12), 0xCA);  // lower_words ? codes : shifted
        const __m512i values = _mm512_permutexvar_epi16(index, table);
        _mm512_store_si512(tiles + 128 * i + 32 * pair, scale_values(values, exponents));
        codes = _mm512_srli_epi32(codes, 8);
      }
    }
  }
}

}  // namespace

ScaleRange decode_q8_row(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::int64_t block_stride, std::uint16_t* out) {
  return decode_q8<ValueOrder::plain>(codes, scales, width, block_stride, out);
}

ScaleRange range_of(const std::uint8_t* scales, std::int64_t count) {
  __m512i least = _mm512_set1_epi8(-1);
  __m512i most = _mm512_setzero_si512();
  std::int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    const __m512i v = _mm512_loadu_si512(scales + i);
    least = _mm512_min_epu8(least, v);
    most = _mm512_max_epu8(most, v);
  }
  alignas(64) std::uint8_t low[64];
  alignas(64) std::uint8_t high[64];
  _mm512_store_si512(low, least);
  _mm512_store_si512(high, most);
  ScaleRange out;
  for (std::int32_t lane = 0; i > 0 && lane < 64; ++lane) {
    out.least = low[lane] < out.least ? low[lane] : out.least;
    out.most = high[lane] > out.most ? high[lane] : out.most;
  }
  for (; i < count; ++i) {
    out.add(scales[i]);
  }
  return out;
}

void decode(const UnitBlocks& w, std::uint16_t* tiles) {
  w.format == WeightFormat::fp8 ? decode_fp8(w.codes, w.scales, w.count, tiles) : decode_fp4(w.codes, w.scales, w.count, tiles);
}

void configure(Tiling tiling) {
  struct alignas(64) Configuration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::array<std::uint8_t, 14> reserved{};
    std::array<std::uint16_t, 16> row_bytes{};
    std::array<std::uint8_t, 16> rows{};
  } configuration;
  static_assert(sizeof(Configuration) == 64);
  for (std::size_t tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = 64;
    configuration.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? tiling.rows : kTileRows);
  }
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}

void release() { asm volatile("tilerelease"); }

void multiply(Tiling tiling, const Tiles& x, const Panel& panel, const Sums& sums) {
  const std::int64_t sums_stride = std::int64_t{kTileRows} * panel.units;
  const std::int64_t unit_size = static_cast<std::int64_t>(panel.num_blocks) * (kTileBytes / 2);
  const std::int64_t block_size = std::int64_t{tiling.rows} * kTileDepth;
  const auto rows_of = [&](std::int32_t tile) {
    const std::uint16_t* upper = x.data + (std::int64_t{tile} * x.num_blocks + x.first_block) * block_size;
    return RowTiles{reinterpret_cast<const std::uint8_t*>(upper), reinterpret_cast<const std::uint8_t*>(upper + x.num_blocks * block_size), 2 * block_size};
  };
  std::int32_t tile = 0;
  for (; tile + 2 <= tiling.count; tile += 2) {
    const RowTiles rows = rows_of(tile);
    float* const own = sums.data + std::int64_t{tile} * tiling.rows * sums_stride;
    for (std::int32_t unit = 0; unit < panel.units; unit += 2) {
      const Panel part = {panel.data + unit * unit_size, panel.units - unit, panel.num_blocks};
      const Sums here = {own + unit * kTileRows, sums.from_zero};
      if (part.units >= 2) {
        multiply_square(rows, tiling.rows, part, here, 4 * sums_stride);
      } else {
        multiply_line<1>(rows, part, here, 4 * sums_stride);
        multiply_line<1>(rows_of(tile + 1), part, {here.data + tiling.rows * sums_stride, sums.from_zero}, 4 * sums_stride);
      }
    }
  }
  if (tile < tiling.count) {
    multiply_lines(rows_of(tile), panel, {sums.data + std::int64_t{tile} * tiling.rows * sums_stride, sums.from_zero}, 4 * sums_stride);
  }
}

double multiply_in_registers(std::int64_t rounds) {
  configure({kTileRows, 1});
  for (std::int64_t round = 0; round < rounds; ++round) {
    add_products<0, 4, 6>();
    add_products<1, 4, 7>();
    add_products<2, 5, 6>();
    add_products<3, 5, 7>();
  }
  release();
  return 4.0 * 2 * kTileRows * 16 * kTileDepth * static_cast<double>(rounds);
}

}  // namespace deepinfer::cpu::amx

#pragma GCC diagnostic pop
#pragma GCC pop_options

#else

namespace deepinfer::cpu::amx {

bool is_usable() { return false; }
double multiply_in_registers(std::int64_t) { return 0; }

}  // namespace deepinfer::cpu::amx

#endif
