// Byte-pair encoding without merging: tokens are taken longest first, a choice that the merges would not make is undone.
//
// It rests on one fact. Let every token be made by exactly one merge, of tokens made before it. Then a row of tokens is
// the encoding of its bytes if and only if each of them encodes to itself and each two neighbours side by side encode to
// themselves. So a row can grow token by token with one check per border, and there is only one row that reaches the end.
// Files that break the condition are refused and go to HeapEncoder. Time linear in the piece.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/pair_table.h"
#include "tokenizer/piece_table.h"
#include "tokenizer/tokenizer_file.h"

namespace deepinfer::tokenizer {

class LongestMatchEncoder {
 public:
  /// Memory that one thread reuses from piece to piece.
  class Scratch {
   private:
    friend class LongestMatchEncoder;
    std::vector<bool> is_dead_end;   // by position in the piece: no row of tokens goes on from here; empty: none
    std::vector<std::uint32_t> row;  // symbols chosen so far
  };

  /// nullopt when the merges do not meet the condition above.
  [[nodiscard]] static std::optional<LongestMatchEncoder> build(const TokenizerFile& file);

  /// Appends the tokens of the piece `text.substr(0, length)`. Bytes behind the piece are not part of it, but let it be
  /// fetched without a loop.
  void encode(std::string_view text, std::size_t length, Scratch& scratch, std::vector<TokenId>& out) const {
    const std::uint32_t symbol = pieces_.find(text, length);
    if (symbol != PieceTable::kNone) {
      out.push_back(symbols_[symbol].token);
    } else {
      encode_row(text.substr(0, length), scratch, out);
    }
  }

 private:
  /// A byte (0 … 255) or what the merge of rank r makes (256 + r): of two symbols the one made later is larger.
  using Symbol = std::uint32_t;
  static constexpr Symbol kNumBytes = 256;
  static constexpr Symbol kNoSymbol = PairTable::kNone;
  /// A symbol at the edge of another one while that is being merged together: it was there until `until` was made.
  struct Edge {
    Symbol symbol = kNoSymbol;
    Symbol until = kNoSymbol;
  };
  struct alignas(32) SymbolData {
    TokenId token;
    std::uint32_t num_bytes = 0;
    Edge right_edge;  // the latest symbol at the right edge that could have merged with a follower
    Edge left_edge;   // the latest symbol at the left edge that could have merged with a predecessor
  };

  explicit LongestMatchEncoder(std::size_t num_merges) : pairs_(num_merges), pieces_(num_merges + kNumBytes) {}

  /// What building needs to know of each symbol beyond SymbolData.
  struct Parts;

  [[nodiscard]] bool add_symbols(const TokenizerFile& file, Parts& parts);
  void find_edges(const Parts& parts);
  [[nodiscard]] bool index_bytes(const Parts& parts);

  /// Whether `left` followed by `right` encodes to just these two, given that each encodes to itself. Merges that make
  /// `limit` or a later symbol do not count.
  [[nodiscard]] bool stay_apart(Symbol left, Symbol right, Symbol limit = kNoSymbol) const;
  void encode_row(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  PairTable pairs_;                  // of symbols to the symbol of their merge
  PieceTable pieces_;                // short symbols that encode to themselves
  std::vector<SymbolData> symbols_;  // by symbol
  std::optional<ByteTrie> trie_;     // bytes of the symbols that encode to themselves
};

}  // namespace deepinfer::tokenizer
