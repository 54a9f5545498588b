// From a pair of small numbers to a third: which symbols merge, and into what. Open addressing, one 64-bit word per
// pair, behind a bit filter that answers most misses from a nearer cache. Not for keys of 20 bits and more.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::tokenizer {

class PairTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFF;  ///< all keys and values are smaller

  explicit PairTable(std::size_t max_pairs)
      : words_(std::bit_ceil(max_pairs * 2 + 2), kEmpty),
        filter_(words_.size() * kFilterBitsPerWord / 64 + 1),
        mask_(words_.size() - 1),
        word_shift_(64 - std::countr_zero(words_.size())),
        filter_shift_(64 - std::countr_zero(words_.size() * kFilterBitsPerWord)) {}

  /// Adds a pair; one that is already there takes the new value.
  void set(std::uint32_t left, std::uint32_t right, std::uint32_t value) {
    const std::uint64_t key = key_of(left, right);
    const std::uint64_t hash = hash_of(key);
    std::size_t at = hash >> word_shift_;
    while (words_[at] != kEmpty && words_[at] >> kBits != key) {
      at = (at + 1) & mask_;
    }
    words_[at] = key << kBits | value;
    filter_[hash >> filter_shift_ >> 6] |= std::uint64_t{1} << (hash >> filter_shift_ & 63);
  }

  /// kNone when the pair is not there.
  [[nodiscard]] std::uint32_t find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = key_of(left, right);
    const std::uint64_t hash = hash_of(key);
    if ((filter_[hash >> filter_shift_ >> 6] >> (hash >> filter_shift_ & 63) & 1) == 0) {
      return kNone;
    }
    for (std::size_t at = hash >> word_shift_;; at = (at + 1) & mask_) {
      const std::uint64_t word = words_[at];
      if (word >> kBits == key) {
        return static_cast<std::uint32_t>(word & kNone);
      }
      if (word == kEmpty) {
        return kNone;
      }
    }
  }

 private:
  static constexpr int kBits = 20;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static constexpr std::size_t kFilterBitsPerWord = 4;  // of which at most one in eight is set

  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) { return std::uint64_t{left} << kBits | right; }
  static std::uint64_t hash_of(std::uint64_t key) { return key * 0x9E3779B97F4A7C15U; }  // 2^64 / golden ratio

  std::vector<std::uint64_t> words_;   // left << 40 | right << 20 | value
  std::vector<std::uint64_t> filter_;  // bit set: some pair has this hash
  std::size_t mask_;
  int word_shift_;
  int filter_shift_;
};

}  // namespace deepinfer::tokenizer
