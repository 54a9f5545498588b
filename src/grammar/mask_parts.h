// What walks of lexemes and walks of parser sets share. Private to mask_walk.cpp and mask_sets.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "grammar/char_classes.h"
#include "grammar/token_trie.h"

namespace deepinfer::grammar {

/// More than these are worth finding what follows each byte at once.
inline constexpr std::size_t kManyChildren = 16;

/// Classes of a loop that more tokens stay in than leave it; what leaves narrower ones is found from the root.
inline constexpr int kWideLoop = 24;

/// Whatever tokens have below `node` is within `text`.
inline bool is_below_within(const TokenTrieNode& node, const FreeText& text) {
  return (node.below & ~text.classes) == 0 && static_cast<std::uint32_t>(node.most_chars - node.chars) <= text.length;
}

}  // namespace deepinfer::grammar
