// Masks by following keys and parser sets through the token trie.
#include <algorithm>
#include <bit>
#include <ranges>

#include "grammar/mask.h"
#include "grammar/mask_bits.h"
#include "grammar/mask_parts.h"

namespace deepinfer::grammar {

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
  const auto is_pattern = [this](const Reading& reading) {
    const Lexer::View view = lexer_->view(reading.at);
    return view.is_body && view.encoding == Encoding::json_string &&
           lexer_->pool().forget_counts(view.expr, Vocabulary::kLongBytes) == view.expr;
  };
  if (walked_readings_.size() < 2 || !std::ranges::all_of(walked_readings_, is_pattern)) {
    return false;
  }
  constexpr std::size_t kMaxNewSets = 200;
  const std::size_t max_sets = states_->size() + kMaxNewSets;
  const States::Loop loop = states_->loop(set);
  FreeText free = free_behind(set);
  open_sets_.clear();
  if (std::popcount(loop.classes) >= kWideLoop && (free.classes & ~loop.classes) == 0) {
    free = {.classes = loop.classes};
    leave_loop(set, loop, mask);
  } else {
    open_sets_.push_back({.node = 0, .set = set});
  }
  if (free.classes != 0) {
    merge(mask, vocabulary_->tokens_within(free));
    is_dense_ = true;
  }
  while (!open_sets_.empty() && states_->size() <= max_sets) {
    const OpenSet parent = open_sets_.back();
    open_sets_.pop_back();
    follow_set(vocabulary_->trie(), parent, free, mask);
  }
  return open_sets_.empty();
}

/// The set stays where it is over all characters of some classes: where tokens leave that is left open.
void MaskBuilder::leave_loop(SetId set, const States::Loop& loop, std::span<std::uint32_t> mask) {
  for (CharClasses outside = ~loop.classes & ~kNoChar; outside != 0; outside &= outside - 1) {
    for (const Arrival& arrival : vocabulary_->arrivals(static_cast<std::size_t>(std::countr_zero(outside)))) {
      if ((arrival.path & ~loop.classes) != 0) {
        continue;
      }
      const TokenTrieNode& node = vocabulary_->trie()[arrival.node];
      const SetId to = step_over(arrival.path == 0 ? set : loop.at, arrival.bytes);
      if (to == kNoSet) {
        continue;
      }
      if (node.token >= 0) {
        add_token(node.token, mask);
      }
      if (node.class_bit == TokenTrieNode::kInside || node.first_child == 0) {
        continue;
      }
      if (is_below_within(node, free_behind(to))) {
        add_tokens(vocabulary_->tokens_below(arrival.node), mask);
      } else {
        open_sets_.push_back({.node = arrival.node, .set = to, .path = arrival.path | node.class_here()});
      }
    }
  }
}

/// Behind the bytes of a character.
SetId MaskBuilder::step_over(SetId set, const std::array<std::uint8_t, 4>& bytes) {
  for (std::size_t i = 0; i < bytes.size() && set != kNoSet && (i == 0 || bytes[i] != 0); ++i) {
    set = states_->first_bytes(set)[bytes[i]] ? states_->step(set, bytes[i]) : kNoSet;
  }
  return set;
}

/// The children of a node that can follow its set: their tokens are allowed, and what is below them is looked at later.
/// `free`: texts from the root on whose tokens are known.
void MaskBuilder::follow_set(std::span<const TokenTrieNode> trie, const OpenSet& parent, const FreeText& free,
                             std::span<std::uint32_t> mask) {
  const std::bitset<256>& first = states_->first_bytes(parent.set);
  std::size_t num_chosen = 0;
  for (std::uint32_t child = trie[parent.node].first_child;; ++child) {
    const TokenTrieNode& node = trie[child];
    const CharClasses here = node.class_here();
    const bool is_known = here != 0 && ((parent.path | here | node.below) & ~free.classes) == 0 && node.most_chars <= free.length;
    chosen_.children[num_chosen] = child;
    num_chosen += first[node.byte] && !is_known ? 1U : 0U;
    if (node.is_last) {
      break;
    }
  }
  chosen_.size = num_chosen;
  if (num_chosen > kManyChildren) {
    states_->prepare(parent.set);
  }
  const bool has_ranges = trie.data() == vocabulary_->trie().data();
  for (const std::uint32_t child : std::views::reverse(chosen_.all())) {  // so that the walk goes on in the order of memory
    const TokenTrieNode& node = trie[child];
    const SetId to = states_->step(parent.set, node.byte);
    if (to == kNoSet) {
      continue;
    }
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    if (node.first_child == 0) {
      continue;
    }
    if (has_ranges && node.class_bit != TokenTrieNode::kInside && is_below_within(node, free_behind(to))) {
      add_tokens(vocabulary_->tokens_below(child), mask);
    } else {
      __builtin_prefetch(&trie[node.first_child]);
      open_sets_.push_back({.node = child, .set = to, .path = parent.path | node.class_here()});
    }
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
  const SetId set = states_->first_bytes(behind)[trie[root].byte] ? states_->step(behind, trie[root].byte) : kNoSet;
  if (set != kNoSet) {
    walk_below(trie, {.node = root, .set = set}, mask);
  }
}

/// The tokens at a node and below it that can follow the set there.
void MaskBuilder::walk_below(std::span<const TokenTrieNode> trie, const OpenSet& root, std::span<std::uint32_t> mask) {
  if (trie[root.node].token >= 0) {
    add_token(trie[root.node].token, mask);
  }
  open_sets_.clear();
  if (trie[root.node].first_child != 0) {
    open_sets_.push_back(root);
  }
  while (!open_sets_.empty()) {
    const OpenSet parent = open_sets_.back();
    open_sets_.pop_back();
    follow_set(trie, parent, {.classes = 0}, mask);
  }
}

}  // namespace deepinfer::grammar
