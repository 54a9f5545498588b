#include "tokenizer/heap_encoder.h"

#include <algorithm>
#include <functional>

namespace deepinfer::tokenizer {

HeapEncoder::HeapEncoder(const TokenizerFile& file) : ranks_(file.merges.size()), byte_tokens_(file.byte_tokens) {
  results_.reserve(file.merges.size());
  for (const Merge& merge : file.merges) {
    // A repeated pair has the rank of its last place, as in the official loader.
    ranks_.set(static_cast<std::uint32_t>(merge.left), static_cast<std::uint32_t>(merge.right),
               static_cast<std::uint32_t>(results_.size()));
    results_.push_back(merge.result);
  }
}

void HeapEncoder::rate(std::uint32_t at, std::uint32_t size, Scratch& scratch) const {
  Scratch::Symbol& symbol = scratch.symbols[at];
  symbol.rank = symbol.next == size
                    ? PairTable::kNone
                    : ranks_.find(static_cast<std::uint32_t>(symbol.token), static_cast<std::uint32_t>(scratch.symbols[symbol.next].token));
  if (symbol.rank != PairTable::kNone) {
    scratch.heap.push_back(std::uint64_t{symbol.rank} << 32 | at);
    std::ranges::push_heap(scratch.heap, std::greater{});
  }
}

void HeapEncoder::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto size = static_cast<std::uint32_t>(piece.size());
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols.push_back({byte_tokens_[static_cast<unsigned char>(piece[i])], i - 1, i + 1, PairTable::kNone});
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    rate(i, size, scratch);
  }
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater{});
    const auto at = static_cast<std::uint32_t>(heap.back());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    heap.pop_back();
    Scratch::Symbol& left = symbols[at];
    if (left.rank != rank) {
      continue;  // one of the two has merged with something else since
    }
    Scratch::Symbol& right = symbols[left.next];
    left.token = results_[rank];
    left.next = right.next;
    right.rank = PairTable::kNone;
    if (left.next < size) {
      symbols[left.next].previous = at;
    }
    rate(at, size, scratch);
    if (at > 0) {
      rate(left.previous, size, scratch);
    }
  }
  for (std::uint32_t i = 0; i < size; i = symbols[i].next) {
    out.push_back(TokenId{symbols[i].token});
  }
}

}  // namespace deepinfer::tokenizer
