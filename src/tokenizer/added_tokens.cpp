#include "tokenizer/added_tokens.h"

#include "tokenizer/word_bytes.h"

namespace deepinfer::tokenizer {

namespace {

/// With more first bytes than this, comparing a word with each costs more than looking at its bytes one by one.
constexpr std::size_t kMaxFirstBytes = 4;

}  // namespace

std::optional<AddedTokenFinder> AddedTokenFinder::build(const std::vector<ByteTrie::Entry>& tokens) {
  std::optional<ByteTrie> trie = ByteTrie::build(tokens);
  if (!trie) {
    return std::nullopt;
  }
  AddedTokenFinder out(std::move(*trie));
  for (const ByteTrie::Entry& token : tokens) {
    const auto byte = static_cast<unsigned char>(token.text[0]);
    if (!out.is_first_byte_[byte]) {
      out.is_first_byte_[byte] = true;
      out.first_bytes_.push_back(word_bytes::kOnes * byte);
    }
  }
  if (out.first_bytes_.size() > kMaxFirstBytes) {
    out.first_bytes_.clear();
  }
  return out;
}

std::size_t AddedTokenFinder::next_start(std::string_view text, std::size_t from) const {
  std::size_t at = from;
  while (!first_bytes_.empty() && at + sizeof(std::uint64_t) <= text.size()) {
    const std::uint64_t word = word_bytes::load(text.data() + at);
    std::uint64_t flags = 0;
    for (const std::uint64_t byte : first_bytes_) {
      flags |= word_bytes::flag_zero(word ^ byte);
    }
    if (flags != 0) {
      return at + word_bytes::first_flag(flags);
    }
    at += sizeof(std::uint64_t);
  }
  while (at < text.size() && !is_first_byte_[static_cast<unsigned char>(text[at])]) {
    ++at;
  }
  return at;
}

std::optional<AddedTokenMatch> AddedTokenFinder::find_first(std::string_view text, std::size_t from) const {
  for (std::size_t at = next_start(text, from); at < text.size(); at = next_start(text, at + 1)) {
    const ByteTrie::Match match = trie_.longest_prefix(text.substr(at));
    if (match.value != ByteTrie::kNone) {
      return AddedTokenMatch{.begin = at, .end = at + match.length, .id = TokenId{match.value}};
    }
  }
  return std::nullopt;
}

std::optional<TokenId> AddedTokenFinder::find_exact(std::string_view text) const {
  const std::int32_t value = trie_.find(text);
  return value == ByteTrie::kNone ? std::nullopt : std::optional(TokenId{value});
}

}  // namespace deepinfer::tokenizer
