#include "tokenizer/byte_pair_encoder.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace deepinfer::tokenizer {

MergeTable::MergeTable(const std::vector<Merge>& merges) {
  const std::size_t num_slots = std::bit_ceil(merges.size() * 2 + 2);
  mask_ = num_slots - 1;
  shift_ = 64 - std::countr_zero(num_slots);
  slots_.assign(num_slots, kEmpty);
  results_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const std::uint64_t key = static_cast<std::uint64_t>(merge.left) << kIdBits | static_cast<std::uint64_t>(merge.right);
    std::size_t slot = slot_of(key);
    while (slots_[slot] != kEmpty && slots_[slot] >> kIdBits != key) {
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = key << kIdBits | rank;  // a repeated pair has the rank of its last place, as in the official loader
    results_.push_back(merge.result);
  }
}

BytePairEncoder::BytePairEncoder(const TokenizerFile& file, const Vocabulary&) : merges_(file.merges), byte_tokens_(file.byte_tokens) {}

void BytePairEncoder::encode(std::string_view piece, PieceScratch& scratch, std::vector<TokenId>& out) const {
  std::vector<PieceScratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  const auto size = static_cast<std::uint32_t>(piece.size());
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols.push_back({byte_tokens_[static_cast<unsigned char>(piece[i])], i - 1, i + 1, MergeTable::kNoRank});
  }
  const auto rate = [&](std::uint32_t at) {
    PieceScratch::Symbol& symbol = symbols[at];
    symbol.rank = symbol.next < size ? merges_.rank(symbol.token, symbols[symbol.next].token) : MergeTable::kNoRank;
    if (symbol.rank != MergeTable::kNoRank) {
      heap.push_back(static_cast<std::uint64_t>(symbol.rank) << 32 | at);
      std::ranges::push_heap(heap, std::greater{});
    }
  };
  for (std::uint32_t i = 0; i + 1 < size; ++i) {
    rate(i);
  }
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater{});
    const auto at = static_cast<std::uint32_t>(heap.back());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    heap.pop_back();
    PieceScratch::Symbol& left = symbols[at];
    if (left.rank != rank) {
      continue;  // one of the two has merged with something else since
    }
    PieceScratch::Symbol& right = symbols[left.next];
    left.token = merges_.result(rank);
    left.next = right.next;
    right.rank = MergeTable::kNoRank;
    if (left.next < size) {
      symbols[left.next].previous = at;
    }
    rate(at);
    if (at > 0) {
      rate(left.previous);
    }
  }
  for (std::uint32_t i = 0; i < size; i = symbols[i].next) {
    out.push_back(TokenId{symbols[i].token});
  }
}

}  // namespace deepinfer::tokenizer
