// Single bits and unions of token masks.
#pragma once

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
  for (std::size_t i = 0; i < mask.size(); ++i) {
    mask[i] |= other[i];
  }
}

}  // namespace deepinfer::grammar
