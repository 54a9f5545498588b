// From a short piece of text to its token in one cache line: most pieces of ordinary text are one token.
// Longer pieces and pieces of several tokens are not here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace deepinfer::tokenizer {

class PieceTable {
 public:
  static constexpr std::size_t kMaxPieceBytes = 12;
  static constexpr std::uint32_t kNone = 0xFFFFFF;  ///< all values are smaller

  explicit PieceTable(std::size_t max_pieces)
      : slots_(std::bit_ceil(max_pieces * 2 + 2)), mask_(slots_.size() - 1), shift_(64 - std::countr_zero(slots_.size())) {}

  /// Adds a piece of 1 … kMaxPieceBytes bytes that is not there yet. What is added earlier is found faster.
  void add(std::string_view piece, std::uint32_t value) {
    const Key key = key_of(piece, piece.size());
    std::size_t at = key.hash() >> shift_;
    while (slots_[at].length_and_value != 0) {
      at = (at + 1) & mask_;
    }
    slots_[at] = {.low = key.low, .high = key.high, .length_and_value = static_cast<std::uint32_t>(piece.size()) << kValueBits | value};
  }

  /// The value of `text.substr(0, length)`; kNone when it is not there. `text` may go on behind the piece: with
  /// kReadBytes readable bytes the piece is fetched without a loop.
  [[nodiscard]] std::uint32_t find(std::string_view text, std::size_t length) const {
    if (length > kMaxPieceBytes) {
      return kNone;
    }
    const Key key = key_of(text, length);
    for (std::size_t at = key.hash() >> shift_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.low == key.low && slot.high == key.high && slot.length_and_value >> kValueBits == length) {
        return slot.length_and_value & kNone;
      }
      if (slot.length_and_value == 0) {
        return kNone;
      }
    }
  }

 private:
  static constexpr std::size_t kReadBytes = 16;
  static constexpr int kValueBits = 24;

  /// The bytes of a piece, zeros behind them.
  struct Key {
    std::uint64_t low = 0;   // bytes 0 … 7
    std::uint32_t high = 0;  // bytes 8 … 11

    [[nodiscard]] std::uint64_t hash() const {
      const std::uint64_t mixed = (low ^ (std::uint64_t{high} << 29 | high)) * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
      return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93U;
    }
  };
  struct Slot {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t length_and_value = 0;  // 0: free
  };

  static Key key_of(std::string_view text, std::size_t length) {
    static_assert(std::endian::native == std::endian::little, "the bytes of a piece fill a word from its low end");
    Key key;
    if (text.size() < kReadBytes) {
      char bytes[kReadBytes] = {};
      std::memcpy(bytes, text.data(), length);
      std::memcpy(&key.low, bytes, sizeof(key.low));
      std::memcpy(&key.high, bytes + sizeof(key.low), sizeof(key.high));
      return key;
    }
    std::memcpy(&key.low, text.data(), sizeof(key.low));
    if (length < sizeof(key.low)) {
      key.low &= (std::uint64_t{1} << length * 8) - 1;
      return key;
    }
    std::memcpy(&key.high, text.data() + sizeof(key.low), sizeof(key.high));
    key.high &= static_cast<std::uint32_t>((std::uint64_t{1} << (length - sizeof(key.low)) * 8) - 1);
    return key;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
  int shift_;
};

}  // namespace deepinfer::tokenizer
