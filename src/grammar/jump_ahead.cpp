#include "grammar/jump_ahead.h"

#include <algorithm>

#include "base/utf8.h"

namespace deepinfer::grammar {

namespace {

/// Some token's bytes start with `bytes` and are longer.
bool begins_longer_token(const Vocabulary& vocabulary, std::string_view bytes) {
  const auto trie = vocabulary.trie();
  std::uint32_t node = 0;
  for (const char byte : bytes) {
    std::uint32_t child = trie[node].first_child;
    while (child != 0 && trie[child].byte != static_cast<std::uint8_t>(byte)) {
      child = trie[child].is_last ? 0 : child + 1;
    }
    if (child == 0) {
      return false;
    }
    node = child;
  }
  return trie[node].first_child != 0;
}

}  // namespace

std::vector<TokenId> forced_ids(const tokenizer::Tokenizer& tokenizer, const Vocabulary& vocabulary, std::string_view text) {
  text = text.substr(0, utf8::first_invalid(text));
  std::vector<TokenId> ids = tokenizer.encode(text, tokenizer::AddedTokens::ignore);
  // An id is settled when no suffix of the text that starts at or inside it begins a longer token: a longer text could
  // only merge across its end through such a token.
  std::size_t end = text.size();
  std::size_t settled = ids.size();
  for (std::size_t i = ids.size(); i-- > 0;) {
    const std::size_t begin = end - vocabulary.text(ids[i]).size();
    for (std::size_t at = begin; at < end; ++at) {
      if (begins_longer_token(vocabulary, text.substr(at))) {
        settled = std::min(settled, i);
      }
    }
    end = begin;
  }
  ids.resize(settled);
  return ids;
}

}  // namespace deepinfer::grammar
