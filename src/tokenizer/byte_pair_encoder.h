// Byte-pair encoding of one piece of text: the lowest-ranked adjacent pair merges first, leftmost of equals.
// Not pre-tokenisation and not added tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer::tokenizer {

/// Rank and result of every pair that merges: open addressing, one 64-bit word per pair.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xFFFFF;

  explicit MergeTable(const std::vector<Merge>& merges);

  /// Rank of the merge of `left` and `right`; kNoRank when they do not merge.
  [[nodiscard]] std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = static_cast<std::uint64_t>(left) << kIdBits | static_cast<std::uint64_t>(right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const std::uint64_t word = slots_[slot];
      if (word >> kIdBits == key) {
        return static_cast<std::uint32_t>(word & kNoRank);
      }
      if (word == kEmpty) {
        return kNoRank;
      }
    }
  }

  [[nodiscard]] std::int32_t result(std::uint32_t rank) const { return results_[rank]; }

 private:
  static constexpr int kIdBits = 20;  // ids and ranks stay below 2^20 - 1, tokenizer_file.cpp
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const { return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> shift_); }

  std::vector<std::uint64_t> slots_;  // left << 40 | right << 20 | rank
  std::vector<std::int32_t> results_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

/// Memory that one thread reuses from piece to piece.
struct PieceScratch {
  struct Symbol {
    std::int32_t token;
    std::uint32_t previous;
    std::uint32_t next;
    std::uint32_t rank;  // of the merge with the next symbol
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;  // rank << 32 | index of the left symbol
};

class BytePairEncoder {
 public:
  BytePairEncoder(const TokenizerFile& file, const Vocabulary& vocabulary);

  /// Appends the tokens of `piece`. Time O(n log n) in its length.
  void encode(std::string_view piece, PieceScratch& scratch, std::vector<TokenId>& out) const;

 private:
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_tokens_;
};

}  // namespace deepinfer::tokenizer
