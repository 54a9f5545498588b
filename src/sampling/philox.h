// Philox4x32-10, the counter-based generator behind every random number: a function, not a stream.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace deepinfer::sampling {

/// Four random words of (key, counter, sequence). Key words: seed low, seed high. Counter words: counter low, counter high,
/// sequence low, sequence high.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter, std::uint64_t sequence) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;  // the paper's table 2
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) − 1
  constexpr int kNumRounds = 10;

  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(sequence);
  std::uint32_t c3 = static_cast<std::uint32_t>(sequence >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kNumRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c0;
    const std::uint64_t product1 = kMultiplier1 * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(product1);
    c3 = static_cast<std::uint32_t>(product0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

}  // namespace deepinfer::sampling
