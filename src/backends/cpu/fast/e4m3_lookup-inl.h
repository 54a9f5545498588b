// E4M3 codes to bf16 by look-ups of bytes (AVX-512 VBMI), for files with a region for processors that have them: included inside that region, in
// an unnamed namespace, so that no other file shares these functions. Headers are the includer's: immintrin.h, e4m3_magnitudes.h,
// packed_weights.h, scale_range.h.

/// How 32 values lie as bf16.
enum class ValueOrder : std::uint8_t {
  plain,
  pairs,  ///< of each four 2, 0, 3, 1: a word for the even ones, a word for the odd ones, the earlier value in the upper half (pairs.h)
};

/// Codes so that lower and upper unpacking of bytes gives the first and the second 32 values in their order.
template <ValueOrder kOrder>
__m512i arrange_codes(__m512i codes) {
  const __m512i quarters = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes);
  if constexpr (kOrder == ValueOrder::plain) {
    return quarters;
  } else {
    return _mm512_shuffle_epi8(quarters, _mm512_set4_epi32(0x0D0F0C0E, 0x090B080A, 0x05070406, 0x01030002));
  }
}

[[nodiscard]] constexpr std::int32_t place_of(ValueOrder order, std::int32_t k) {
  constexpr std::int32_t kPlaces[4] = {1, 3, 0, 2};
  return order == ValueOrder::plain ? k : k / 4 * 4 + kPlaces[k % 4];
}

/// Looks up 64 codes; sign included.
struct Lookup {
  __m512i lower0, lower1, upper0, upper1;

  explicit Lookup(const E4m3Magnitudes& table)
      : lower0(_mm512_load_si512(table.lower.data())),
        lower1(_mm512_load_si512(table.lower.data() + 64)),
        upper0(_mm512_load_si512(table.upper.data())),
        upper1(_mm512_load_si512(table.upper.data() + 64)) {}

  /// With the scale: its exponent without the parity is added to all values but zero.
  Lookup(const E4m3Magnitudes& table, std::int32_t exponent) : Lookup(table) {
    const __m512i half = _mm512_set1_epi8(static_cast<char>((exponent - (exponent & 1)) / 2));
    upper0 = _mm512_mask_add_epi8(upper0, ~__mmask64{1}, upper0, half);
    upper1 = _mm512_add_epi8(upper1, half);
  }

  struct Values {
    __m512i first, second;  // lower and upper unpacking
  };
  /// Codes that lie as arrange_codes gives them.
  [[nodiscard]] Values operator()(__m512i v) const {
    const __m512i lower = _mm512_permutex2var_epi8(lower0, v, lower1);
    const __m512i upper = _mm512_permutex2var_epi8(upper0, v, upper1);
    const __m512i with_sign = _mm512_ternarylogic_epi64(upper, v, _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);  // upper | v & 0x80
    return {_mm512_unpacklo_epi8(lower, with_sign), _mm512_unpackhi_epi8(lower, with_sign)};
  }
};

/// Adds exponents, shifted to their place, to all values but zero.
__m512i scale_values(__m512i values, __m512i exponents) {
  const __mmask32 is_not_zero = _mm512_test_epi16_mask(values, _mm512_set1_epi16(0x7FFF));
  return _mm512_mask_add_epi16(values, is_not_zero, values, exponents);
}

/// Of the scales of sixteen columns, for two values each.
__m512i column_exponents(const std::uint8_t* scales) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  const __m512i exponents = _mm512_slli_epi16(_mm512_sub_epi16(bytes, _mm512_set1_epi32(kScaleBias)), 7);
  return _mm512_or_si512(_mm512_and_si512(exponents, _mm512_set1_epi32(0xFFFF)), _mm512_slli_epi32(exponents, 16));
}

/// A row with NaN codes, one value at a time.
template <ValueOrder kOrder>
void decode_q8_slowly(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::int64_t block_stride, std::uint16_t* out) {
  for (std::int32_t i = 0; i < width; ++i) {
    const bool is_nan = (codes[i] & 0x7FU) == 0x7FU;
    const float value = e4m3_to_float(codes[i]) * ue8m0_to_float(scales[i / kUnitDepth]);
    out[i / kUnitDepth * block_stride + place_of(kOrder, i % kUnitDepth)] =
        is_nan ? 0x7FC0U : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  }
}

/// A Q8 row as bf16, `block_stride` values from 32 values to the next 32; NaN codes stay NaN. width: multiple of 32.
template <ValueOrder kOrder>
ScaleRange decode_q8(const std::uint8_t* codes, const std::uint8_t* scales, std::int32_t width, std::int64_t block_stride, std::uint16_t* out) {
  const Lookup lookup(kE4m3Magnitudes[0]);
  const __m512i magnitude = _mm512_set1_epi8(0x7F);
  ScaleRange range;
  __mmask64 is_nan = 0;
  for (std::int32_t i = 0; i < width; i += 2 * kUnitDepth) {
    const bool is_whole = i + kUnitDepth < width;
    const __m512i bytes = is_whole ? _mm512_loadu_si512(codes + i) : _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
    const __mmask64 present = is_whole ? ~__mmask64{0} : 0xFFFFFFFFU;
    is_nan |= _mm512_mask_cmpeq_epi8_mask(present, _mm512_and_si512(bytes, magnitude), magnitude);
    const __mmask64 is_not_zero = _mm512_mask_test_epi8_mask(present, bytes, magnitude);
    const Lookup::Values values = lookup(arrange_codes<kOrder>(bytes));
    const auto put = [&](__m512i v, std::uint32_t mask, std::int32_t at) {
      const std::int32_t scale = scales[at / kUnitDepth];
      if (mask != 0) {
        range.add(scale);
      }
      _mm512_storeu_si512(out + at / kUnitDepth * block_stride, scale_values(v, _mm512_set1_epi16(static_cast<short>((scale - kScaleBias) * 128))));
    };
    put(values.first, static_cast<std::uint32_t>(is_not_zero), i);
    if (is_whole) {
      put(values.second, static_cast<std::uint32_t>(is_not_zero >> 32U), i + kUnitDepth);
    }
  }
  if (is_nan != 0) {
    decode_q8_slowly<kOrder>(codes, scales, width, block_stride, out);
  }
  return range;
}
