#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <string>

namespace deepinfer::tokenizer {

namespace {

constexpr std::size_t kNumBytePairs = 1U << 16;

std::size_t byte_pair(std::string_view text, std::size_t at) {
  const std::size_t first = static_cast<unsigned char>(text[at]);
  const std::size_t second = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0;
  return first << 8 | second;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<std::pair<std::string_view, TokenId>>& tokens) : starts_(kNumBytePairs) {
  std::vector<std::pair<std::string_view, TokenId>> sorted = tokens;
  std::ranges::sort(sorted);
  struct Pending {
    std::size_t begin;  // the tokens [begin, end) of `sorted` share their first `depth` bytes: the path of `node`
    std::size_t end;
    std::size_t depth;
    std::size_t node;
  };
  nodes_.emplace_back();
  std::vector<Pending> pending{{0, sorted.size(), 0, 0}};
  while (!pending.empty()) {
    Pending group = pending.back();
    pending.pop_back();
    if (group.begin < group.end && sorted[group.begin].first.size() == group.depth) {
      nodes_[group.node].token = sorted[group.begin].second.value;
      ++group.begin;
    }
    nodes_[group.node].first_edge = static_cast<std::int32_t>(edges_.size());
    for (std::size_t i = group.begin; i < group.end;) {
      const char byte = sorted[i].first[group.depth];
      std::size_t end = i;
      while (end < group.end && sorted[end].first[group.depth] == byte) {
        ++end;
      }
      edges_.push_back({static_cast<unsigned char>(byte), static_cast<std::int32_t>(nodes_.size())});
      pending.push_back({i, end, group.depth + 1, nodes_.size()});
      nodes_.emplace_back();
      i = end;
    }
    nodes_[group.node].num_edges = static_cast<std::int32_t>(edges_.size()) - nodes_[group.node].first_edge;
  }
  for (const auto& [text, id] : sorted) {
    const std::size_t pair = byte_pair(text, 0);
    if (text.size() > 1) {
      starts_[pair] = true;
    } else {
      std::fill_n(starts_.begin() + static_cast<std::ptrdiff_t>(pair), 256, true);
    }
  }
}

std::int32_t AddedTokenFinder::child(std::int32_t node, unsigned char byte) const {
  const Node& parent = nodes_[static_cast<std::size_t>(node)];
  for (std::int32_t i = parent.first_edge; i < parent.first_edge + parent.num_edges; ++i) {
    if (edges_[static_cast<std::size_t>(i)].byte == byte) {
      return edges_[static_cast<std::size_t>(i)].node;
    }
  }
  return kNone;
}

std::optional<AddedTokenMatch> AddedTokenFinder::longest_at(std::string_view text, std::size_t begin) const {
  std::optional<AddedTokenMatch> longest;
  std::int32_t node = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    node = child(node, static_cast<unsigned char>(text[at]));
    if (node == kNone) {
      break;
    }
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token != kNone) {
      longest = AddedTokenMatch{.begin = begin, .end = at + 1, .id = TokenId{token}};
    }
  }
  return longest;
}

std::optional<AddedTokenMatch> AddedTokenFinder::find_first(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!starts_[byte_pair(text, at)]) {
      continue;
    }
    if (const std::optional<AddedTokenMatch> match = longest_at(text, at)) {
      return match;
    }
  }
  return std::nullopt;
}

std::optional<TokenId> AddedTokenFinder::find_exact(std::string_view text) const {
  std::int32_t node = 0;
  for (const char byte : text) {
    node = child(node, static_cast<unsigned char>(byte));
    if (node == kNone) {
      return std::nullopt;
    }
  }
  const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
  return token == kNone ? std::nullopt : std::optional(TokenId{token});
}

}  // namespace deepinfer::tokenizer
