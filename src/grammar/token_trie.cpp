#include "grammar/token_trie.h"

#include <algorithm>
#include <bit>

namespace deepinfer::grammar {

namespace {

/// Classes of characters at the ends of nodes and below them, from every token's text.
void describe(TokenTrie& trie, std::span<const TokenText> sorted) {
  constexpr int kMaxChars = 255;
  std::vector<TokenTrieNode*> path;  // by depth
  const auto describe_token = [&](std::string_view text) {
    const std::vector<CharClasses> classes = classes_from_each_byte(text);
    const std::vector<std::uint8_t> bits = class_bits_of_ends(text);
    int chars = 0;
    for (std::size_t depth = 0; depth < path.size(); ++depth) {
      if (depth > 0) {
        const bool begins = depth == 1 || bits[depth - 1] != TokenTrieNode::kInside;
        chars = std::min(chars + (begins ? 1 : 0), kMaxChars);
        path[depth]->class_bit = bits[depth];
        path[depth]->chars = static_cast<std::uint8_t>(chars);
      }
      path[depth]->below |= classes[depth];
    }
    for (TokenTrieNode* node : path) {
      node->most_chars = std::max(node->most_chars, static_cast<std::uint8_t>(chars));
    }
  };
  for (TrieWalk walk(trie.nodes); !walk.at_end(); walk.enter()) {
    TokenTrieNode& node = trie.nodes[walk.at()];
    path.resize(node.depth);
    path[0] = &trie.nodes[0];
    path.push_back(&node);
    if (node.token >= 0) {
      describe_token(sorted[trie.ranges[walk.at()].first].text);
    }
  }
}

}  // namespace

TokenTrie make_trie(std::span<const TokenText> sorted) {
  TokenTrie out{.nodes = {{}}, .ranges = {{.end = static_cast<std::uint32_t>(sorted.size())}}};
  std::vector<std::uint32_t> open{0};  // nodes whose children are still to be made
  while (!open.empty()) {
    const std::uint32_t parent = open.back();
    open.pop_back();
    const std::size_t depth = out.nodes[parent].depth;
    std::uint32_t at = out.ranges[parent].first;
    const std::uint32_t end = out.ranges[parent].end;
    if (depth > 0 && sorted[at].text.size() == depth) {
      out.nodes[parent].token = sorted[at].token;
    }
    while (at < end && sorted[at].text.size() == depth) {
      ++at;
    }
    out.ranges[parent].first_below = at;
    const auto first_child = static_cast<std::uint32_t>(out.nodes.size());
    while (at < end) {
      const auto byte = static_cast<std::uint8_t>(sorted[at].text[depth]);
      const std::uint32_t first = at;
      while (at < end && static_cast<std::uint8_t>(sorted[at].text[depth]) == byte) {
        ++at;
      }
      out.nodes.push_back({.depth = static_cast<std::uint16_t>(depth + 1), .byte = byte, .is_last = at == end});
      out.ranges.push_back({.first = first, .end = at});
    }
    out.nodes[parent].first_child = first_child < out.nodes.size() ? first_child : 0;
    for (auto child = static_cast<std::uint32_t>(out.nodes.size()); child-- > first_child;) {
      open.push_back(child);  // the first one on top: what is below a node follows it closely
    }
  }
  describe(out, sorted);
  return out;
}

std::vector<std::vector<Arrival>> find_arrivals(std::span<const TokenTrieNode> trie) {
  constexpr std::size_t kMaxCut = 3;  // bytes of a character that lacks its end
  std::vector<std::vector<Arrival>> out(TokenTrieNode::kInside);
  std::vector<Arrival> path{{}};  // by depth: the character that goes on there, and what is before it
  for (TrieWalk walk(trie); !walk.at_end(); walk.enter()) {
    const TokenTrieNode& node = walk.node();
    path.resize(node.depth);
    Arrival here = path.back();
    const auto length = static_cast<std::size_t>(std::ranges::find(here.bytes, 0) - here.bytes.begin());
    if (length < here.bytes.size()) {
      here.bytes[length] = node.byte;
    }
    here.node = walk.at();
    if (node.class_bit != TokenTrieNode::kInside) {
      if ((here.path & node.class_here()) == 0) {
        out[node.class_bit].push_back(here);
      }
      here = {.path = here.path | node.class_here()};
    } else if (node.token >= 0 && length < kMaxCut) {
      out[static_cast<std::size_t>(std::countr_zero(kCutChar))].push_back(here);
    }
    path.push_back(here);
  }
  return out;
}

}  // namespace deepinfer::grammar
