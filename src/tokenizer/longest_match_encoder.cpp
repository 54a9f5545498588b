#include "tokenizer/longest_match_encoder.h"

#include <algorithm>
#include <string>

namespace deepinfer::tokenizer {

struct LongestMatchEncoder::Parts {
  [[nodiscard]] std::string_view bytes_of(Symbol symbol) const {
    return std::string_view(bytes).substr(begin[symbol], begin[symbol + 1] - begin[symbol]);
  }

  std::string bytes;                       // of all symbols, one after the other
  std::vector<std::size_t> begin{0};       // [symbols + 1] into `bytes`
  std::vector<Symbol> left;                // [symbols] parts of the merge; a byte has itself
  std::vector<Symbol> right;               // [symbols]
  std::vector<Symbol> first_merge_before;  // [symbols] the earliest merge of the symbol with a predecessor
  std::vector<Symbol> first_merge_after;   // [symbols] the earliest merge of the symbol with a follower
};

std::optional<LongestMatchEncoder> LongestMatchEncoder::build(const TokenizerFile& file) {
  if (file.merges.size() + kNumBytes >= kNoSymbol) {
    return std::nullopt;
  }
  LongestMatchEncoder out(file.merges.size());
  Parts parts;
  if (!out.add_symbols(file, parts)) {
    return std::nullopt;
  }
  out.find_edges(parts);
  if (!out.index_bytes(parts)) {
    return std::nullopt;
  }
  return out;
}

/// False when a merge breaks the condition.
bool LongestMatchEncoder::add_symbols(const TokenizerFile& file, Parts& parts) {
  std::vector<Symbol> symbol_of(file.spellings.size(), kNoSymbol);  // by token id
  const auto add = [&](std::int32_t token, Symbol left, Symbol right) {
    symbol_of[static_cast<std::size_t>(token)] = static_cast<Symbol>(symbols_.size());
    const std::size_t num_bytes = parts.bytes.size() - parts.begin.back();
    symbols_.push_back({.token = TokenId{token}, .num_bytes = static_cast<std::uint32_t>(num_bytes), .right_edge = {}, .left_edge = {}});
    parts.begin.push_back(parts.bytes.size());
    parts.left.push_back(left);
    parts.right.push_back(right);
    parts.first_merge_before.push_back(kNoSymbol);
    parts.first_merge_after.push_back(kNoSymbol);
  };
  for (Symbol byte = 0; byte < kNumBytes; ++byte) {
    parts.bytes.push_back(static_cast<char>(byte));
    add(file.byte_tokens[byte], byte, byte);
  }
  for (const Merge& merge : file.merges) {
    const Symbol left = symbol_of[static_cast<std::size_t>(merge.left)];
    const Symbol right = symbol_of[static_cast<std::size_t>(merge.right)];
    if (left == kNoSymbol || right == kNoSymbol || symbol_of[static_cast<std::size_t>(merge.result)] != kNoSymbol) {
      return false;
    }
    const auto merged = static_cast<Symbol>(symbols_.size());
    pairs_.set(left, right, merged);
    parts.first_merge_after[left] = std::min(parts.first_merge_after[left], merged);
    parts.first_merge_before[right] = std::min(parts.first_merge_before[right], merged);
    parts.bytes.append(parts.bytes, parts.begin[left], symbols_[left].num_bytes);
    parts.bytes.append(parts.bytes, parts.begin[right], symbols_[right].num_bytes);
    add(merge.result, left, right);
  }
  return true;
}

/// Most symbols inside another one had no merge with the outside early enough, so most edges can be passed over.
void LongestMatchEncoder::find_edges(const Parts& parts) {
  for (Symbol symbol = kNumBytes; symbol < symbols_.size(); ++symbol) {
    const Symbol right = parts.right[symbol];
    symbols_[symbol].right_edge =
        parts.first_merge_after[right] < symbol ? Edge{.symbol = right, .until = symbol} : symbols_[right].right_edge;
    const Symbol left = parts.left[symbol];
    symbols_[symbol].left_edge =
        parts.first_merge_before[left] <= symbol ? Edge{.symbol = left, .until = symbol} : symbols_[left].left_edge;
  }
}

/// False when the bytes of all symbols are too many for the trie.
bool LongestMatchEncoder::index_bytes(const Parts& parts) {
  std::vector<bool> encodes_to_itself(symbols_.size(), true);
  std::vector<ByteTrie::Entry> entries;
  entries.reserve(symbols_.size());
  for (Symbol symbol = 0; symbol < symbols_.size(); ++symbol) {
    const Symbol left = parts.left[symbol];
    const Symbol right = parts.right[symbol];
    if (symbol >= kNumBytes) {
      encodes_to_itself[symbol] = encodes_to_itself[left] && encodes_to_itself[right] && stay_apart(left, right, symbol);
    }
    if (!encodes_to_itself[symbol]) {
      continue;
    }
    const std::string_view bytes = parts.bytes_of(symbol);
    entries.push_back({.text = bytes, .value = static_cast<std::int32_t>(symbol)});
    if (bytes.size() <= PieceTable::kMaxPieceBytes) {
      pieces_.add(bytes, symbol);
    }
  }
  trie_ = ByteTrie::build(std::move(entries));
  return trie_.has_value();
}

// Takes the merges that made the two symbols back, latest first, and looks at each moment whether the symbols that then
// stood at the border would have merged before the merge that is taken back. Merges of equal rank happen from left to
// right: at the border, a merge inside `left` comes before one across it, and that before one inside `right`.
bool LongestMatchEncoder::stay_apart(Symbol left, Symbol right, Symbol limit) const {
  for (;;) {
    if (pairs_.find(left, right) < limit) {
      return false;
    }
    const bool is_left_later = left > right;
    const Edge edge = is_left_later ? symbols_[left].right_edge : symbols_[right].left_edge;
    if (edge.symbol == kNoSymbol) {
      return true;
    }
    (is_left_later ? left : right) = edge.symbol;
    limit = std::min(limit, is_left_later ? edge.until : edge.until + 1);
  }
}

void LongestMatchEncoder::encode_row(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<Symbol>& row = scratch.row;
  std::vector<bool>& is_dead_end = scratch.is_dead_end;
  row.clear();
  is_dead_end.clear();
  std::size_t at = 0;  // where the row ends
  ByteTrie::Match next = trie_->longest_prefix(piece);
  while (at < piece.size()) {
    const auto symbol = static_cast<Symbol>(next.value);
    const std::size_t end = at + next.length;
    if ((is_dead_end.empty() || !is_dead_end[end]) && (row.empty() || stay_apart(row.back(), symbol))) {
      row.push_back(symbol);
      at = end;
      next = trie_->longest_prefix(piece.substr(at));
      continue;
    }
    next = trie_->longest_prefix(piece.substr(at, next.length - 1));
    if (next.value == ByteTrie::kNone) {
      // No symbol fits here: the one before was wrong. The row cannot be empty, because the piece has an encoding.
      is_dead_end.resize(piece.size() + 1);
      is_dead_end[at] = true;
      const Symbol last = row.back();
      row.pop_back();
      at -= symbols_[last].num_bytes;
      next = {.value = static_cast<std::int32_t>(last), .length = symbols_[last].num_bytes};
    }
  }
  for (const Symbol symbol : row) {
    out.push_back(symbols_[symbol].token);
  }
}

}  // namespace deepinfer::tokenizer
