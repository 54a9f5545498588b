#include "grammar/mask.h"

#include <algorithm>

namespace deepinfer::grammar {

namespace {

/// Masks with at most this many ids are kept as lists.
constexpr std::size_t kSparseTokens = 1024;
/// Kept masks are dropped beyond this; they are rebuilt when asked for again.
constexpr std::size_t kMaxKeptBytes = 16U << 20;
/// A string state whose differences from a plain one touch more bytes than this is walked instead of corrected.
constexpr std::size_t kMaxDifferingBytes = 64;

void set_bit(std::span<std::uint32_t> mask, std::int32_t token) {
  mask[static_cast<std::size_t>(token) / 32] |= 1U << (static_cast<std::uint32_t>(token) % 32);
}

CharClasses classes_of_bytes(const std::bitset<256>& bytes) {
  CharClasses out = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    out |= bytes[byte] ? classes_of_first_byte(static_cast<std::uint8_t>(byte)) : 0;
  }
  return out;
}

void clear_bit(std::span<std::uint32_t> mask, std::int32_t token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(1U << (static_cast<std::uint32_t>(token) % 32));
}

void merge(std::span<std::uint32_t> mask, std::span<const std::uint32_t> other) {
  for (std::size_t i = 0; i < mask.size(); ++i) {
    mask[i] |= other[i];
  }
}

}  // namespace

MaskBuilder::MaskBuilder(const Vocabulary& vocabulary, Lexer& lexer, States& states)
    : vocabulary_(&vocabulary), lexer_(&lexer), states_(&states), scratch_(vocabulary.mask_words(), 0) {
  plain_body_ = lexer.next(lexer.start(ExprPool::kAnyText, Encoding::json_string), '"');
  closed_ = lexer.next(plain_body_, '"');
}

void MaskBuilder::fill(SetId set, std::span<std::uint32_t> mask) {
  if (const auto kept = kept_.find(set); kept != kept_.end()) {
    if (!kept->second.dense.empty()) {
      std::ranges::copy(kept->second.dense, mask.begin());
      return;
    }
    std::ranges::fill(mask, 0U);
    for (const std::int32_t token : kept->second.tokens) {
      set_bit(mask, token);
    }
    return;
  }
  std::ranges::fill(mask, 0U);
  build(set, mask);
  if (bytes_ > kMaxKeptBytes) {
    kept_.clear();
    walked_.clear();
    bytes_ = 0;
  }
  Kept& kept = kept_[set];
  if (is_dense_ || added_.size() > kSparseTokens) {
    kept.dense.assign(mask.begin(), mask.end());
  } else {
    kept.tokens = added_;
  }
  bytes_ += sizeof(Kept) + 64 + kept.dense.size() * 4 + kept.tokens.size() * 4;
}

void MaskBuilder::build(SetId set, std::span<std::uint32_t> mask) {
  added_.clear();
  is_dense_ = false;
  const std::vector<Scan> scans(states_->scans(set).begin(), states_->scans(set).end());
  for (const Scan& scan : scans) {
    add_scan(set, scan, mask);
  }
  for (const std::int32_t token : states_->tokens(set)) {
    if (token < vocabulary_->num_rows()) {
      set_bit(mask, token);
      added_.push_back(token);
    }
  }
}

void MaskBuilder::add_scan(SetId set, const Scan& scan, std::span<std::uint32_t> mask) {
  if (states_->lexeme_of(scan) == nullptr) {
    walk_keys(set, scan, mask);
  } else if (!add_by_table(set, scan, mask) && !add_by_difference(set, scan, mask)) {
    walk_lexeme(set, scan, mask);
  }
}

SetId MaskBuilder::closing_set(SetId set, const Scan& scan) { return states_->behind(set, scan, closed_); }

bool MaskBuilder::add_by_table(SetId set_id, const Scan& scan, std::span<std::uint32_t> mask) {
  const Lexer::View view = lexer_->view(scan.at);
  if (view.encoding == Encoding::raw_bytes) {
    is_dense_ = true;
    merge(mask, vocabulary_->text_mask());  // any bytes: whatever ends inside a token is covered by going on
    return true;
  }
  ExprPool::Repeat repeat{.least = 0, .most = kUnbounded, .body = ExprPool::kAny};
  if (!view.is_body || (view.expr != ExprPool::kAnyText && !lexer_->pool().as_repeat(view.expr, repeat))) {
    return false;
  }
  if (view.encoding == Encoding::json_string && repeat.body == ExprPool::kAny) {
    add_loop(vocabulary_->json_body(), closing_set(set_id, scan), {repeat.least, repeat.most}, mask);
    return true;
  }
  if (view.encoding == Encoding::json_string) {
    const CodeSet set = lexer_->pool().as_class(repeat.body);
    const LoopTable* table = set.empty() ? nullptr : vocabulary_->json_loop(set);
    if (table != nullptr) {
      add_loop(*table, closing_set(set_id, scan), {repeat.least, repeat.most}, mask);
    }
    return table != nullptr;
  }
  if (view.encoding == Encoding::text && repeat.body == ExprPool::kBlank) {
    const SetId behind = states_->behind(set_id, scan, scan.at);
    const std::bitset<256>& first = states_->first_bytes(behind);
    if (first[' '] || first['\t'] || first['\n'] || first['\r']) {
      return false;
    }
    add_loop(vocabulary_->blanks(), behind, {repeat.least, repeat.most}, mask);
    return true;
  }
  return false;
}

void MaskBuilder::add_loop(const LoopTable& table, SetId behind, Bounds bounds, std::span<std::uint32_t> mask) {
  if (bounds.most >= table.max_chars) {
    merge(mask, table.inside_mask);
    is_dense_ = is_dense_ || table.inside.size() > kSparseTokens;
    if (!is_dense_) {
      for (const LoopTable::Inside& inside : table.inside) {
        added_.push_back(inside.token);
      }
    }
  } else {
    for (const LoopTable::Inside& inside : table.inside) {
      if (inside.chars > bounds.most) {
        break;
      }
      set_bit(mask, inside.token);
      added_.push_back(inside.token);
    }
  }
  if (behind == kNoSet) {
    return;
  }
  const auto add_exits = [&](const LoopTable::Suffix& node) {
    for (std::uint32_t i = 0; i < node.num_exits; ++i) {
      const LoopTable::Exit& exit = table.exits[node.first_exit + i];
      if (exit.chars >= bounds.least && exit.chars <= bounds.most) {
        set_bit(mask, exit.token);
        added_.push_back(exit.token);
      }
    }
  };
  add_exits(table.suffixes[0]);
  set_stack_.resize(vocabulary_->max_token_bytes() + 1);
  set_stack_[0] = behind;
  for (std::uint32_t i = 1; i < table.suffixes[0].end;) {
    const LoopTable::Suffix& node = table.suffixes[i];
    const SetId from = set_stack_[node.depth - 1U];
    const SetId to = states_->first_bytes(from)[node.byte] ? states_->step(from, node.byte) : kNoSet;
    if (to == kNoSet) {
      i = node.end;
      continue;
    }
    set_stack_[node.depth] = to;
    add_exits(node);
    ++i;
  }
}

const std::bitset<256>& MaskBuilder::differing(LexId state) {
  const auto known = differing_.find(state);
  return known != differing_.end() ? known->second : differing_.emplace(state, lexer_->differing_bytes(state)).first->second;
}

bool MaskBuilder::add_by_difference(SetId set, const Scan& scan, std::span<std::uint32_t> mask) {
  const Lexer::View view = lexer_->view(scan.at);
  if (!view.is_body || view.encoding != Encoding::json_string || differing(scan.at).count() > kMaxDifferingBytes) {
    return false;
  }
  std::ranges::fill(scratch_, 0U);
  add_loop(vocabulary_->json_body(), closing_set(set, scan), {0, kUnbounded}, scratch_);
  correct(scan, plain_body_, scratch_);
  merge(mask, scratch_);
  is_dense_ = true;
  return true;
}

/// Follows the state beside a plain string wherever the two differ; where they meet, the plain string's tokens stand.
void MaskBuilder::correct(const Scan& scan, LexId plain, std::span<std::uint32_t> mask) {
  struct Open {
    LexId at;
    LexId plain;
    bool is_body;  // differing() applies: bytes outside it need no look
  };
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  std::vector<Open> open{{scan.at, plain, true}};
  for (std::uint32_t i = 1; i < trie[0].end;) {
    const TokenTrieNode& node = trie[i];
    open.resize(node.depth);
    const Open from = open.back();
    if (from.is_body && !differing(from.at)[node.byte]) {
      i = node.end;
      continue;
    }
    const LexId at = lexer_->next(from.at, node.byte);
    const LexId plain_at = lexer_->next(from.plain, node.byte);
    if (at == plain_at) {
      i = node.end;
      continue;
    }
    if (at == kDead) {
      clear_tokens(i, node.end, mask);
      i = node.end;
      continue;
    }
    open.push_back({at, plain_at, plain_at == plain_body_ && lexer_->view(at).is_body});
    ++i;
  }
}

/// All tokens, by the state with its far counts forgotten; then those long enough to tell the difference, by the state itself.
void MaskBuilder::walk_lexeme(SetId set, const Scan& scan, std::span<std::uint32_t> mask) {
  const SetId behind = states_->behind(set, scan, scan.at);
  const Lexer::View view = lexer_->view(scan.at);
  const ExprId general = view.is_body ? lexer_->pool().forget_counts(view.expr, Vocabulary::kLongBytes) : view.expr;
  if (general == view.expr) {
    walk_trie(vocabulary_->trie(), {.from = scan.at, .behind = behind}, mask);
    return;
  }
  const LexId from = lexer_->with_expr(scan.at, general);
  Kept& kept = walked_[{from, behind}];
  if (kept.dense.empty()) {
    kept.dense.assign(mask.size(), 0U);
    walk_trie(vocabulary_->trie(), {.from = from, .behind = behind, .max_depth = Vocabulary::kLongBytes}, kept.dense);
    for (const TokenTrieNode& node : vocabulary_->long_trie()) {
      for (std::int32_t token = node.token; token >= 0; token = vocabulary_->same_text(token)) {
        clear_bit(kept.dense, token);
      }
    }
    bytes_ += sizeof(Kept) + 64 + kept.dense.size() * 4;
  }
  merge(mask, kept.dense);
  is_dense_ = true;
  walk_trie(vocabulary_->long_trie(), {.from = scan.at, .behind = behind}, mask);
}

/// Follows the lexeme through the trie. Of the whole trie, parts are left out whose tokens are all allowed (their characters are free)
/// or all of them beyond what can follow, which the classes of their characters tell.
void MaskBuilder::walk_trie(std::span<const TokenTrieNode> trie, const Walk& walk, std::span<std::uint32_t> mask) {
  const bool has_classes = trie.data() == vocabulary_->trie().data();
  const std::bitset<256> follows = walk.behind == kNoSet ? std::bitset<256>() : states_->first_bytes(walk.behind);
  const Lexer::Reach reach = has_classes ? lexer_->reach(walk.from) : Lexer::Reach{};
  const auto is_within = [this](std::uint32_t node, std::uint32_t chars_before, const FreeText& text) {
    return (vocabulary_->classes_below(node) & ~text.classes) == 0 && vocabulary_->most_chars(node) - chars_before <= text.length;
  };
  if (reach.free.classes != 0) {
    merge(mask, vocabulary_->tokens_within(reach.free));
    is_dense_ = true;
  }
  const CharClasses live = reach.other | classes_of_bytes(follows);
  lexeme_stack_.resize(vocabulary_->max_token_bytes() + 1);
  free_stack_.resize(lexeme_stack_.size());
  lexeme_stack_[0] = walk.from;
  free_stack_[0] = reach.free.classes != 0;
  const std::bitset<256> first = lexer_->first_bytes(walk.from);
  for (std::uint32_t i = 1; i < trie[0].end;) {
    const TokenTrieNode& node = trie[i];
    if (node.depth > walk.max_depth || (node.depth == 1 && !first[node.byte])) {
      i = node.end;
      continue;
    }
    const LexId from = lexeme_stack_[node.depth - 1U];
    if (follows[node.byte] && node.depth > 1 && lexer_->accepting(from)) {
      walk_sets(i, walk.behind, mask);
    }
    const CharClasses here = has_classes ? vocabulary_->class_at(i) : 0;
    const bool is_free = free_stack_[node.depth - 1U] && (here & ~reach.free.classes) == 0;
    free_stack_[node.depth] = is_free;
    if (is_free && here != 0 && vocabulary_->most_chars(i) <= reach.free.length) {
      const CharClasses below = vocabulary_->classes_below(i);
      if ((below & ~reach.free.classes) == 0 || (below & live) == 0) {
        i = node.end;
        continue;
      }
    }
    const LexId at = lexer_->next(from, node.byte);
    if (at == kDead) {
      i = node.end;
      continue;
    }
    lexeme_stack_[node.depth] = at;
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    if (has_classes && here != 0 && node.end > i + 1 && is_within(i, vocabulary_->chars_at(i), lexer_->reach(at).free)) {
      add_tokens(vocabulary_->tokens_below(i), mask);
      i = node.end;
      continue;
    }
    ++i;
  }
}

/// Keys end in a quote, so no state of theirs both ends and goes on; behind each name stands another set.
void MaskBuilder::walk_keys(SetId set, const Scan& scan, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  lexeme_stack_.resize(vocabulary_->max_token_bytes() + 1);
  lexeme_stack_[0] = scan.at;
  for (std::uint32_t i = 1; i < trie[0].end;) {
    const TokenTrieNode& node = trie[i];
    const std::uint32_t from = lexeme_stack_[node.depth - 1U];
    if (node.depth > 1 && states_->ends_at(scan, from)) {
      const SetId behind = states_->behind(set, scan, from);
      if (behind != kNoSet && states_->first_bytes(behind)[node.byte]) {
        walk_sets(i, behind, mask);
      }
      i = node.end;
      continue;
    }
    const std::uint32_t at = states_->next_in(scan, from, node.byte);
    if (at == 0) {
      i = node.end;
      continue;
    }
    lexeme_stack_[node.depth] = at;
    if (node.token >= 0) {
      add_token(node.token, mask);
    }
    ++i;
  }
}

/// The tokens in the subtree of `node` whose bytes from there on can follow `behind`.
void MaskBuilder::walk_sets(std::uint32_t node, SetId behind, std::span<std::uint32_t> mask) {
  const std::span<const TokenTrieNode> trie = vocabulary_->trie();
  const std::uint32_t end = trie[node].end;
  const std::uint32_t base = trie[node].depth - 1U;
  set_stack_.resize(vocabulary_->max_token_bytes() + 1);
  set_stack_[0] = behind;
  for (std::uint32_t i = node; i < end;) {
    const TokenTrieNode& at = trie[i];
    const SetId from = set_stack_[at.depth - base - 1U];
    const SetId to = states_->first_bytes(from)[at.byte] ? states_->step(from, at.byte) : kNoSet;
    if (to == kNoSet) {
      i = at.end;
      continue;
    }
    set_stack_[at.depth - base] = to;
    if (at.token >= 0) {
      add_token(at.token, mask);
    }
    ++i;
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

void MaskBuilder::clear_tokens(std::uint32_t begin, std::uint32_t end, std::span<std::uint32_t> mask) const {
  for (std::uint32_t i = begin; i < end; ++i) {
    for (std::int32_t token = vocabulary_->trie()[i].token; token >= 0; token = vocabulary_->same_text(token)) {
      clear_bit(mask, token);
    }
  }
}

}  // namespace deepinfer::grammar
