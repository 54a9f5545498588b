// Masks by following lexemes through the token trie.
#include <algorithm>
#include <bit>
#include <ranges>

#include "grammar/mask.h"
#include "grammar/mask_bits.h"
#include "grammar/mask_parts.h"

namespace deepinfer::grammar {

namespace {

CharClasses classes_of_bytes(const std::bitset<256>& bytes) {
  CharClasses out = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    out |= bytes[byte] ? classes_of_first_byte(static_cast<std::uint8_t>(byte)) : 0;
  }
  return out;
}

}  // namespace

/// All tokens, by the state with its far counts forgotten; then those long enough to tell the difference, by the state itself.
void MaskBuilder::walk_lexeme(const Reading& reading, std::span<std::uint32_t> mask) {
  const Lexer::View view = lexer_->view(reading.at);
  const ExprId general = view.is_body ? lexer_->pool().forget_counts(view.expr, Vocabulary::kLongBytes) : view.expr;
  if (general == view.expr) {
    walk_by_classes({.from = reading.at, .behind = reading.behind}, mask);
    return;
  }
  const LexId from = lexer_->with_expr(reading.at, general);
  Kept& kept = walked_[{from, reading.behind}];
  if (kept.dense.empty()) {
    kept.dense.assign(mask.size(), 0U);
    walk_by_classes({.from = from, .behind = reading.behind, .max_depth = Vocabulary::kLongBytes}, kept.dense);
    for (const TokenTrieNode& node : vocabulary_->long_trie()) {
      for (std::int32_t token = node.token; token >= 0; token = vocabulary_->same_text(token)) {
        clear_bit(kept.dense, token);
      }
    }
    bytes_ += sizeof(Kept) + 64 + kept.dense.size() * 4;
  }
  merge(mask, kept.dense);
  is_dense_ = true;
  walk_plainly(vocabulary_->long_trie(), {.from = reading.at, .behind = reading.behind}, mask);
}

/// Follows the lexeme through the whole trie but for the parts whose tokens are all allowed (their characters are free) or all of them
/// beyond what can follow, which the classes of their characters tell.
void MaskBuilder::walk_by_classes(const Start& start, std::span<std::uint32_t> mask) {
  const std::bitset<256> follows = start.behind == kNoSet ? std::bitset<256>() : states_->first_bytes(start.behind);
  const Lexer::Reach reach = lexer_->reach(start.from);
  const Lexer::View view = lexer_->view(start.from);
  const bool ends_in_quote = view.is_body && view.encoding == Encoding::json_string;  // what follows does so behind another mark
  const CharClasses following = ends_in_quote ? 0 : classes_of_bytes(follows);
  const Lexer::Loop loop = lexer_->loop(start.from);
  const bool is_all_free = (reach.free.classes & ~loop.classes) == 0;  // otherwise tokens that leave the loop are known as well
  const bool is_wide = std::popcount(loop.classes) >= kWideLoop;
  if (is_wide && is_all_free && (following & loop.classes) == 0) {
    return walk_loop(start, loop, mask);
  }
  if (reach.free.classes != 0) {
    merge(mask, vocabulary_->tokens_within(reach.free));
    is_dense_ = true;
  }
  const Known known{.free = reach.free,
                    .live = reach.other | following,
                    .gate = reach.gate.length <= reach.free.length ? reach.gate.classes | following : ~CharClasses{0},
                    .following = following,
                    .max_depth = start.max_depth};
  open_lexemes_.assign(1, {.node = 0, .at = start.from});
  walk_open(start, known, mask);
}

void MaskBuilder::walk_open(const Start& start, const Known& known, std::span<std::uint32_t> mask) {
  const std::bitset<256> follows = start.behind == kNoSet ? std::bitset<256>() : states_->first_bytes(start.behind);
  while (!open_lexemes_.empty()) {
    const OpenLexeme parent = open_lexemes_.back();
    open_lexemes_.pop_back();
    if (vocabulary_->trie()[parent.node].depth >= start.max_depth) {
      continue;
    }
    if (parent.node != 0 && follows.any() && lexer_->accepting(parent.at)) {
      walk_behind(parent.node, {.follows = follows, .behind = start.behind}, mask);
    }
    choose_children(parent, known);
    follow_lexeme(parent, known, mask);
  }
}

/// The lexeme stays in one place over all characters of some classes: what is to be looked at are tokens from where others come first.
void MaskBuilder::walk_loop(const Start& start, const Lexer::Loop& loop, std::span<std::uint32_t> mask) {
  const std::bitset<256> follows = start.behind == kNoSet ? std::bitset<256>() : states_->first_bytes(start.behind);
  const Lexer::View view = lexer_->view(start.from);
  const CharClasses following = view.encoding == Encoding::json_string ? 0 : classes_of_bytes(follows);
  const Lexer::Reach reach = lexer_->reach(start.from);
  merge(mask, vocabulary_->tokens_within({.classes = loop.classes}));
  is_dense_ = true;
  const Known known{.free = {.classes = 0}, .following = following, .max_depth = start.max_depth};
  open_lexemes_.clear();
  for (CharClasses live = (reach.free.classes | reach.other | following) & ~loop.classes & ~kNoChar; live != 0; live &= live - 1) {
    for (const Arrival& arrival : vocabulary_->arrivals(static_cast<std::size_t>(std::countr_zero(live)))) {
      const TokenTrieNode& node = vocabulary_->trie()[arrival.node];
      if ((arrival.path & ~loop.classes) != 0 || node.depth > start.max_depth) {
        continue;
      }
      if (arrival.path != 0 && follows[arrival.bytes[0]] && lexer_->accepting(loop.at)) {
        arrive_behind(arrival, start.behind, mask);
      }
      const LexId at = next_over(arrival.path == 0 ? start.from : loop.at, arrival.bytes);
      if (at == kDead) {
        continue;
      }
      if (node.class_bit == TokenTrieNode::kInside) {
        add_token(node.token, mask);
      } else {
        follow_chain({.node = arrival.node, .at = at, .path = arrival.path | node.class_here()}, known, mask);
      }
    }
  }
  walk_open(start, known, mask);
}

/// Behind the bytes of a character.
LexId MaskBuilder::next_over(LexId at, const std::array<std::uint8_t, 4>& bytes) {
  at = lexer_->next(at, bytes[0]);
  for (std::size_t i = 1; i < bytes.size() && bytes[i] != 0 && at != kDead; ++i) {
    at = lexer_->next(at, bytes[i]);
  }
  return at;
}

/// A character with which what is behind the lexeme begins.
void MaskBuilder::arrive_behind(const Arrival& arrival, SetId behind, std::span<std::uint32_t> mask) {
  behind = step_over(behind, arrival.bytes);
  const TokenTrieNode& node = vocabulary_->trie()[arrival.node];
  if (behind == kNoSet) {
    return;
  }
  if (node.class_bit == TokenTrieNode::kInside) {
    add_token(node.token, mask);
  } else {
    walk_below(vocabulary_->trie(), {.node = arrival.node, .set = behind}, mask);
  }
}

/// Into chosen_: the children that the lexeme may take, but for those below which all is known.
void MaskBuilder::choose_children(const OpenLexeme& parent, const Known& known) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  const bool is_free = (parent.path & ~known.free.classes) == 0;
  const Lexer::Row* row = &lexer_->row(parent.at);
  const auto choose = [&](const auto& is_known) {
    std::size_t num_unknown = 0;
    std::size_t num_chosen = 0;
    for (std::uint32_t child = trie[parent.node].first_child;; ++child) {
      const TokenTrieNode& node = trie[child];
      const LexId at = (*row)[node.byte];
      num_unknown += at == Lexer::kUnknown ? 1U : 0U;
      chosen_.children[num_chosen] = child;
      num_chosen += at != kDead && !is_known(node) ? 1U : 0U;  // no branch: which ones they are cannot be foreseen
      if (node.is_last) {
        break;
      }
    }
    chosen_.size = num_chosen;
    return num_unknown;
  };
  const auto is_known = [&](const TokenTrieNode& node) {
    const CharClasses here = node.class_here();
    const bool is_within = (here & ~known.free.classes) == 0;
    const bool is_short = node.most_chars <= known.free.length;  // the longer ones then do not pass the gate
    const bool is_sure = is_short || ((parent.path | here | node.below) & known.gate) == 0;
    const bool has_fate = (node.below & ~known.free.classes) == 0 || (node.below & known.live) == 0;
    return here != 0 && is_within && is_sure && has_fate;
  };
  const auto choose_among_all = [&] { return is_free ? choose(is_known) : choose([](const TokenTrieNode&) { return false; }); };
  if (choose_among_all() > kManyChildren) {
    lexer_->prepare(parent.at);
    row = &lexer_->row(parent.at);
    choose_among_all();
  }
}

/// The chosen children that the lexeme takes: their tokens are allowed, and what is below them is looked at later.
void MaskBuilder::follow_lexeme(const OpenLexeme& parent, const Known& known, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  for (const std::uint32_t child : std::views::reverse(chosen_.all())) {  // so that the walk goes on in the order of memory
    const LexId at = lexer_->next(parent.at, trie[child].byte);
    if (at != kDead) {
      follow_chain({.node = child, .at = at, .path = parent.path | trie[child].class_here()}, known, mask);
    }
  }
}

/// From a node on as long as there is one child; what is left to look at stays open.
void MaskBuilder::follow_chain(OpenLexeme place, const Known& known, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  while (true) {
    const TokenTrieNode& node = trie[place.node];
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    if (node.first_child == 0) {
      return;
    }
    if (node.class_bit != TokenTrieNode::kInside) {
      const Lexer::Reach& reach = lexer_->reach(place.at);
      if (is_below_within(node, reach.free)) {
        add_tokens(vocabulary_->tokens_below(place.node), mask);
        return;
      }
      if ((node.below & (reach.free.classes | reach.other | known.following)) == 0) {
        return;
      }
    }
    const TokenTrieNode& child = trie[node.first_child];
    const bool is_open = !child.is_last || (place.path & ~known.free.classes) == 0 || child.depth > known.max_depth || lexer_->accepting(place.at);
    if (is_open) {
      __builtin_prefetch(&child);
      open_lexemes_.push_back(place);
      return;
    }
    place = {.node = node.first_child, .at = lexer_->next(place.at, child.byte), .path = place.path | child.class_here()};
    if (place.at == kDead) {
      return;
    }
  }
}

/// The lexeme may end at `node`: of its children those that what is behind it takes.
void MaskBuilder::walk_behind(std::uint32_t parent, const Behind& behind, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  for (std::uint32_t child = trie[parent].first_child; child != 0; child = trie[child].is_last ? 0 : child + 1) {
    if (behind.follows[trie[child].byte]) {
      walk_sets(trie, child, behind.behind, mask);
    }
  }
}

void MaskBuilder::walk_plainly(std::span<const TokenTrieNode> trie, const Start& start, std::span<std::uint32_t> mask) {
  const std::bitset<256> follows = start.behind == kNoSet ? std::bitset<256>() : states_->first_bytes(start.behind);
  const std::bitset<256> first = lexer_->first_bytes(start.from);
  lexeme_stack_.resize(vocabulary_->max_token_bytes() + 1);
  lexeme_stack_[0] = start.from;
  for (TrieWalk walk(trie); !walk.at_end();) {
    const TokenTrieNode& node = walk.node();
    if (node.depth > start.max_depth || (node.depth == 1 && !first[node.byte])) {
      walk.pass();
      continue;
    }
    const LexId from = lexeme_stack_[node.depth - 1U];
    if (follows[node.byte] && node.depth > 1 && lexer_->accepting(from)) {
      walk_sets(trie, walk.at(), start.behind, mask);
    }
    const LexId at = lexer_->next(from, node.byte);
    if (at == kDead) {
      walk.pass();
      continue;
    }
    lexeme_stack_[node.depth] = at;
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    walk.enter();
  }
}

void MaskBuilder::add_token(std::int32_t token, std::span<std::uint32_t> mask) {
  set_bit(mask, token);
  if (!is_dense_ && added_.size() <= kSparseTokens) {
    added_.push_back(token);
  }
  if (vocabulary_->has_duplicates()) {
    for (token = vocabulary_->same_text(token); token >= 0; token = vocabulary_->same_text(token)) {
      set_bit(mask, token);
      added_.push_back(token);
    }
  }
}

void MaskBuilder::add_tokens(std::span<const std::int32_t> tokens, std::span<std::uint32_t> mask) {
  for (const std::int32_t token : tokens) {
    set_bit(mask, token);
  }
  if (added_.size() + tokens.size() > kSparseTokens) {
    is_dense_ = true;
  } else {
    added_.insert(added_.end(), tokens.begin(), tokens.end());
  }
}

}  // namespace deepinfer::grammar
