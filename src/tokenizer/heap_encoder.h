// Byte-pair encoding by its definition: a heap of the pairs that can merge. Works for any list of merges.
// The slower encoder, for files that LongestMatchEncoder refuses; time O(n log n) in the piece.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/pair_table.h"
#include "tokenizer/tokenizer_file.h"

namespace deepinfer::tokenizer {

class HeapEncoder {
 public:
  /// Memory that one thread reuses from piece to piece.
  class Scratch {
   private:
    friend class HeapEncoder;
    struct Symbol {
      std::int32_t token;
      std::uint32_t previous;
      std::uint32_t next;
      std::uint32_t rank;  // of the merge with the next symbol
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;  // rank << 32 | index of the left symbol
  };

  explicit HeapEncoder(const TokenizerFile& file);

  /// Appends the tokens of `piece`, which is shorter than 4 GiB.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  /// Looks up the merge of a symbol with its successor and queues it.
  void rate(std::uint32_t at, std::uint32_t size, Scratch& scratch) const;

  PairTable ranks_;                    // of pairs of token ids
  std::vector<std::int32_t> results_;  // [merges] token by rank
  std::array<std::int32_t, 256> byte_tokens_;
};

}  // namespace deepinfer::tokenizer
