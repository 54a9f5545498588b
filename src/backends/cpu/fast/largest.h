// The largest of many scores, ties to the smaller index: scores become integers in the same order, a radix search finds the threshold.
// The same on every instruction set. Not here: scores (index_kernels.cpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace deepinfer::cpu {

/// Order-preserving code of a score: larger scores, larger codes; equal for +0 and -0; NaN as the smallest finite number.
[[nodiscard]] inline std::uint32_t rank_code(float score) {
  const float value = std::isnan(score) ? std::numeric_limits<float>::lowest() : score + 0.0F;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

inline constexpr std::uint32_t kNeverCode = 0x007FFFFFU;  ///< rank_code(-infinity): a row that must not be chosen

/// The smallest code among the `count` largest, and how many of the codes equal to it belong to them. 0 < count <= num_codes.
struct Threshold {
  std::uint32_t code = 0;
  std::int32_t ties = 0;
};

/// Digit by digit from the top: count the digits of the codes that still match, step into the digit that holds the count-th.
inline Threshold find_threshold(const std::uint32_t* codes, std::int32_t num_codes, std::int32_t count, std::uint32_t* rest) {
  std::copy_n(codes, num_codes, rest);
  std::uint32_t prefix = 0;
  for (std::int32_t shift = 24; shift >= 0; shift -= 8) {
    std::int32_t histogram[256] = {};
    for (std::int32_t i = 0; i < num_codes; ++i) {
      ++histogram[rest[i] >> shift & 255U];
    }
    std::int32_t digit = 255;
    for (; histogram[digit] < count; --digit) {
      count -= histogram[digit];
    }
    prefix |= static_cast<std::uint32_t>(digit) << shift;
    std::int32_t kept = 0;
    for (std::int32_t i = 0; i < num_codes; ++i) {
      const std::uint32_t code = rest[i];
      rest[kept] = code;
      kept += (code >> shift & 255U) == static_cast<std::uint32_t>(digit) ? 1 : 0;
    }
    num_codes = kept;
  }
  return {prefix, count};
}

/// Indices of the `count` largest codes, ties to the smaller index, ascending, padded with -1. kNeverCode is never chosen.
/// find(n): the threshold of the n largest codes.
template <class Find>
inline void pick_largest(const std::uint32_t* codes, std::int32_t num_codes, std::int32_t count, std::int32_t* out, const Find& find) {
  std::int32_t eligible = 0;
  for (std::int32_t i = 0; i < num_codes; ++i) {
    eligible += codes[i] > kNeverCode ? 1 : 0;
  }
  const std::int32_t chosen = std::min(count, eligible);
  Threshold threshold = {kNeverCode, 0};
  if (chosen > 0 && chosen < eligible) {
    threshold = find(chosen);
  }
  std::int32_t found = 0;
  for (std::int32_t i = 0; i < num_codes && found < chosen; ++i) {
    const bool tie = codes[i] == threshold.code && threshold.ties > 0;
    if (codes[i] > threshold.code || tie) {
      threshold.ties -= tie ? 1 : 0;
      out[found++] = i;
    }
  }
  std::fill(out + found, out + count, -1);
}

}  // namespace deepinfer::cpu
