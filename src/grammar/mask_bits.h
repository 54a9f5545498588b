// Single bits and unions of token masks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer::grammar {

inline void set_bit(std::span<std::uint32_t> mask, std::int32_t token) {
  mask[static_cast<std::size_t>(token) / 32] |= 1U << (static_cast<std::uint32_t>(token) % 32);
}

inline void clear_bit(std::span<std::uint32_t> mask, std::int32_t token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(1U << (static_cast<std::uint32_t>(token) % 32));
}

inline void merge(std::span<std::uint32_t> mask, std::span<const std::uint32_t> other) {
  constexpr std::size_t kBlock = 16;  // through a block of its own, since the two might overlap for all that the compiler knows
  std::size_t first = 0;
  for (; first + kBlock <= mask.size(); first += kBlock) {
    std::array<std::uint32_t, kBlock> both;
    for (std::size_t i = 0; i < kBlock; ++i) {
      both[i] = mask[first + i] | other[first + i];
    }
    std::ranges::copy(both, mask.begin() + static_cast<std::ptrdiff_t>(first));
  }
  for (; first < mask.size(); ++first) {
    mask[first] |= other[first];
  }
}

}  // namespace deepinfer::grammar
