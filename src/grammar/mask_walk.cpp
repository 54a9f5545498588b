// Masks by following lexemes, keys and parser states through the token trie.
#include <algorithm>
#include <bit>

#include "grammar/mask.h"
#include "grammar/mask_bits.h"

namespace deepinfer::grammar {

namespace {

/// Nodes of a walk that a trie of its own is worth, should it be taken again.
constexpr std::size_t kLongWalk = 4000;

CharClasses classes_of_bytes(const std::bitset<256>& bytes) {
  CharClasses out = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    out |= bytes[byte] ? classes_of_first_byte(static_cast<std::uint8_t>(byte)) : 0;
  }
  return out;
}

/// Whatever tokens have below `node` is within `text`.
bool is_below_within(const TokenTrieNode& node, const FreeText& text) {
  return (node.below & ~text.classes) == 0 && static_cast<std::uint32_t>(node.most_chars - node.chars) <= text.length;
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

const FreeText& MaskBuilder::find_free_behind(SetId set) {
  auto known = free_behind_.find(set);
  if (known == free_behind_.end()) {
    FreeText text{.classes = 0, .length = 0};
    for (const Scan& scan : states_->scans(set)) {
      if (states_->lexeme_of(scan) != nullptr) {
        const FreeText free = lexer_->reach(scan.at).free;
        text = std::popcount(free.classes) > std::popcount(text.classes) ? free : text;
      }
    }
    known = free_behind_.emplace(set, text).first;
    bytes_ += sizeof(FreeBehind) + 32;
  }
  last_free_behind_ = {.set = set, .text = known->second};
  return last_free_behind_.text;
}

/// Several lexemes at once, by the parser states: patterns of keys share nearly all their ways through the trie. False when that leads to
/// too many states; what is in the mask then belongs there.
bool MaskBuilder::walk_together(SetId set, std::span<std::uint32_t> mask) {
  constexpr std::size_t kMaxNewSets = 200;
  const auto is_pattern = [this](const Reading& reading) {
    const Lexer::View view = lexer_->view(reading.at);
    return view.is_body && view.encoding == Encoding::json_string &&
           lexer_->pool().forget_counts(view.expr, Vocabulary::kLongBytes) == view.expr;
  };
  if (walked_readings_.size() < 2 || !std::ranges::all_of(walked_readings_, is_pattern)) {
    return false;
  }
  const std::size_t num_sets = states_->size();
  const FreeText free = free_behind(set);
  if (free.classes != 0) {
    merge(mask, vocabulary_->tokens_within(free));
    is_dense_ = true;
  }
  set_stack_.resize(vocabulary_->max_token_bytes() + 1);
  free_stack_.resize(set_stack_.size());
  set_stack_[0] = set;
  free_stack_[0] = free.classes != 0;
  for (TrieWalk walk(vocabulary_->trie()); !walk.at_end();) {
    const TokenTrieNode& node = walk.node();
    const CharClasses here = node.class_here();
    const bool is_free = free_stack_[node.depth - 1U] && (here & ~free.classes) == 0;
    free_stack_[node.depth] = is_free;
    const bool is_known = is_free && here != 0 && node.most_chars <= free.length && (node.below & ~free.classes) == 0;
    const SetId from = set_stack_[node.depth - 1U];
    const SetId to = is_known || !states_->first_bytes(from)[node.byte] ? kNoSet : states_->step(from, node.byte);
    if (to == kNoSet) {
      walk.pass();
      continue;
    }
    if (states_->size() > num_sets + kMaxNewSets) {
      return false;
    }
    set_stack_[node.depth] = to;
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    if (here != 0 && node.first_child != 0 && is_below_within(node, free_behind(to))) {
      add_tokens(vocabulary_->tokens_below(walk.at()), mask);
      walk.pass();
      continue;
    }
    walk.enter();
  }
  return true;
}

/// Follows the lexeme through the whole trie but for the parts whose tokens are all allowed (their characters are free) or all of them
/// beyond what can follow, which the classes of their characters tell.
void MaskBuilder::walk_by_classes(const Start& start, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  const std::bitset<256> follows = start.behind == kNoSet ? std::bitset<256>() : states_->first_bytes(start.behind);
  const Lexer::Reach reach = lexer_->reach(start.from);
  const Lexer::View view = lexer_->view(start.from);
  const bool ends_in_quote = view.is_body && view.encoding == Encoding::json_string;  // what follows does so behind another mark
  const CharClasses following = ends_in_quote ? 0 : classes_of_bytes(follows);
  const CharClasses live = reach.other | following;
  if (reach.free.classes != 0) {
    merge(mask, vocabulary_->tokens_within(reach.free));
    is_dense_ = true;
  }
  const bool is_free_throughout = std::min(start.max_depth, vocabulary_->max_token_bytes()) <= reach.free.length;
  const bool leaves_once = reach.free.classes != 0 && is_free_throughout && (following & reach.free.classes) == 0;
  if (leaves_once) {
    const std::span<const TokenTrieNode> leaving = vocabulary_->tokens_leaving(reach.free.classes, live);
    if (!leaving.empty()) {
      return walk_plainly(leaving, start, mask);
    }
  }
  lexeme_stack_.resize(vocabulary_->max_token_bytes() + 1);
  free_stack_.resize(lexeme_stack_.size());
  lexeme_stack_[0] = start.from;
  free_stack_[0] = reach.free.classes != 0;
  const std::bitset<256> first = lexer_->first_bytes(start.from);
  std::size_t num_seen = 0;
  for (TrieWalk walk(trie); !walk.at_end(); ++num_seen) {
    const TokenTrieNode& node = walk.node();
    if (node.depth > start.max_depth || (node.depth == 1 && !first[node.byte])) {
      walk.pass();
      continue;
    }
    const LexId from = lexeme_stack_[node.depth - 1U];
    if (follows[node.byte] && node.depth > 1 && lexer_->accepting(from)) {
      walk_sets(trie, walk.at(), start.behind, mask);
    }
    const CharClasses here = node.class_here();
    const bool is_free = free_stack_[node.depth - 1U] && (here & ~reach.free.classes) == 0;
    free_stack_[node.depth] = is_free;
    const bool has_known_fate = (node.below & ~reach.free.classes) == 0 || (node.below & live) == 0;
    const bool is_known = is_free && here != 0 && node.most_chars <= reach.free.length && has_known_fate;
    const LexId at = is_known ? kDead : lexer_->next(from, node.byte);
    if (at == kDead) {
      walk.pass();
      continue;
    }
    lexeme_stack_[node.depth] = at;
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    if (here == 0 || node.first_child == 0) {
      walk.enter();
      continue;
    }
    const Lexer::Reach reach_here = lexer_->reach(at);
    const bool is_whole = is_below_within(node, reach_here.free);
    const bool is_over = (node.below & (reach_here.free.classes | reach_here.other | following)) == 0;
    if (is_whole) {
      add_tokens(vocabulary_->tokens_below(walk.at()), mask);
    }
    if (is_whole || is_over) {
      walk.pass();
    } else {
      walk.enter();
    }
  }
  if (leaves_once && num_seen > kLongWalk) {
    vocabulary_->expect_leaving(reach.free.classes, live);
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

/// Keys end in a quote, so no state of theirs both ends and goes on; behind each name stands another set.
void MaskBuilder::walk_keys(SetId set, const Scan& scan, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  lexeme_stack_.resize(vocabulary_->max_token_bytes() + 1);
  lexeme_stack_[0] = scan.at;
  for (TrieWalk walk(trie); !walk.at_end();) {
    const TokenTrieNode& node = walk.node();
    const std::uint32_t from = lexeme_stack_[node.depth - 1U];
    if (node.depth > 1 && states_->ends_at(scan, from)) {
      const SetId behind = states_->behind(set, scan, from);
      if (behind != kNoSet && states_->first_bytes(behind)[node.byte]) {
        walk_sets(trie, walk.at(), behind, mask);
      }
      walk.pass();
      continue;
    }
    const std::uint32_t at = states_->next_in(scan, from, node.byte);
    if (at == 0) {
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

/// The tokens at `root` and below it whose bytes from that of `root` on can follow `behind`.
void MaskBuilder::walk_sets(std::span<const TokenTrieNode> trie, std::uint32_t root, SetId behind, std::span<std::uint32_t> mask) {
  set_stack_.resize(vocabulary_->max_token_bytes() + 1);
  set_stack_[trie[root].depth - 1U] = behind;
  const auto step_to = [&](const TokenTrieNode& node) {
    const SetId from = set_stack_[node.depth - 1U];
    const SetId to = states_->first_bytes(from)[node.byte] ? states_->step(from, node.byte) : kNoSet;
    set_stack_[node.depth] = to;
    if (to != kNoSet && node.token >= 0) {
      add_token(node.token, mask);
    }
    return to != kNoSet;
  };
  if (!step_to(trie[root])) {
    return;
  }
  const bool has_ranges = trie.data() == vocabulary_->trie().data();
  for (TrieWalk walk(trie, root); !walk.at_end();) {
    const TokenTrieNode& node = walk.node();
    if (!step_to(node)) {
      walk.pass();
    } else if (has_ranges && node.class_here() != 0 && node.first_child != 0 && is_below_within(node, free_behind(set_stack_[node.depth]))) {
      add_tokens(vocabulary_->tokens_below(walk.at()), mask);
      walk.pass();
    } else {
      walk.enter();
    }
  }
}

void MaskBuilder::add_token(std::int32_t token, std::span<std::uint32_t> mask) {
  set_bit(mask, token);
  if (added_.size() <= kSparseTokens) {
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
