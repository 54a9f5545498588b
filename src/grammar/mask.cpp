#include "grammar/mask.h"

#include <algorithm>

#include "grammar/mask_bits.h"

namespace deepinfer::grammar {

namespace {

/// Kept masks are dropped beyond this; they are rebuilt when asked for again.
constexpr std::size_t kMaxKeptBytes = 16U << 20;
/// A string state whose differences from a plain one touch more bytes than this is walked instead of corrected.
constexpr std::size_t kMaxDifferingBytes = 64;

}  // namespace

MaskBuilder::MaskBuilder(const Vocabulary& vocabulary, Lexer& lexer, States& states)
    : vocabulary_(&vocabulary), lexer_(&lexer), states_(&states), scratch_(vocabulary.mask_words(), 0) {
  plain_body_ = lexer.next(lexer.start(ExprPool::kAnyText, Encoding::json_string), '"');
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
    free_behind_.clear();
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
  scans_.clear();
  for (const Scan& scan : std::vector<Scan>(states_->scans(set).begin(), states_->scans(set).end())) {
    if (states_->lexeme_of(scan) == nullptr) {
      walk_keys(set, scan, mask);
    } else {
      scans_.push_back(scan);
    }
  }
  // Lexemes in the same state take the same bytes and differ only in what comes behind: they are followed once.
  std::ranges::sort(scans_, {}, &Scan::at);
  walked_readings_.clear();
  for (auto first = scans_.begin(); first != scans_.end();) {
    const auto last = std::find_if(first, scans_.end(), [first](const Scan& scan) { return scan.at != first->at; });
    const Reading reading{.at = first->at, .behind = states_->behind(set, std::span(first, last))};
    if (!add_by_table(reading, mask) && !add_by_difference(reading, mask)) {
      walked_readings_.push_back(reading);
    }
    first = last;
  }
  if (!walk_together(set, mask)) {
    for (const Reading& reading : walked_readings_) {
      walk_lexeme(reading, mask);
    }
  }
  for (const std::int32_t token : states_->tokens(set)) {
    if (token < vocabulary_->num_rows()) {
      set_bit(mask, token);
      added_.push_back(token);
    }
  }
}

/// A union of loops is one table after the other.
bool MaskBuilder::add_by_table(const Reading& reading, std::span<std::uint32_t> mask) {
  const Lexer::View view = lexer_->view(reading.at);
  if (view.encoding == Encoding::raw_bytes) {
    is_dense_ = true;
    merge(mask, vocabulary_->text_mask());  // any bytes: whatever ends inside a token is covered by going on
    return true;
  }
  const std::vector<ExprId> parts = lexer_->pool().alternatives(view.expr);
  if (parts.size() == 1) {
    return add_loop_of(view, reading.behind, mask);
  }
  ExprPool::Repeat counted;
  const auto counts_characters = [&](ExprId part) { return lexer_->pool().as_repeat(part, counted) && counted.body == ExprPool::kAny; };
  if (!view.is_body || view.encoding != Encoding::json_string || !std::ranges::all_of(parts, counts_characters)) {
    return false;
  }
  return std::ranges::all_of(parts, [&](ExprId part) {
    return add_loop_of({.expr = part, .encoding = view.encoding, .is_body = true}, reading.behind, mask);
  });
}

bool MaskBuilder::add_loop_of(const Lexer::View& view, SetId behind, std::span<std::uint32_t> mask) {
  ExprPool::Repeat repeat{.least = 0, .most = kUnbounded, .body = ExprPool::kAny};
  if (!view.is_body || (view.expr != ExprPool::kAnyText && !lexer_->pool().as_repeat(view.expr, repeat))) {
    return false;
  }
  if (view.encoding == Encoding::json_string && repeat.body == ExprPool::kAny) {
    add_loop(vocabulary_->json_body(), behind, {repeat.least, repeat.most}, mask);
    return true;
  }
  if (view.encoding == Encoding::text && repeat.body == ExprPool::kBlank) {
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

bool MaskBuilder::add_by_difference(const Reading& reading, std::span<std::uint32_t> mask) {
  const Lexer::View view = lexer_->view(reading.at);
  if (!view.is_body || view.encoding != Encoding::json_string || differing(reading.at).count() > kMaxDifferingBytes) {
    return false;
  }
  std::ranges::fill(scratch_, 0U);
  add_loop(vocabulary_->json_body(), reading.behind, {0, kUnbounded}, scratch_);
  correct(reading.at, plain_body_, scratch_);
  merge(mask, scratch_);
  is_dense_ = true;
  return true;
}

/// Follows the state beside a plain string wherever the two differ; where they meet, the plain string's tokens stand.
void MaskBuilder::correct(LexId at, LexId plain, std::span<std::uint32_t> mask) {
  struct Open {
    LexId at;
    LexId plain;
    bool is_body;  // differing() applies: bytes outside it need no look
  };
  std::vector<Open> open{{at, plain, true}};
  const auto forbid_from = [&](std::uint32_t node) {
    for (const std::int32_t token : vocabulary_->tokens_from(node)) {
      clear_bit(mask, token);
    }
  };
  for (TrieWalk walk(vocabulary_->trie()); !walk.at_end();) {
    const TokenTrieNode& node = walk.node();
    open.resize(node.depth);
    const Open from = open.back();
    if (from.is_body && !differing(from.at)[node.byte]) {
      walk.pass();
      continue;
    }
    const LexId own_at = lexer_->next(from.at, node.byte);
    const LexId plain_at = lexer_->next(from.plain, node.byte);
    if (own_at == kDead && plain_at != kDead) {
      forbid_from(walk.at());
    }
    if (own_at == plain_at || own_at == kDead) {
      walk.pass();
      continue;
    }
    open.push_back({own_at, plain_at, plain_at == plain_body_ && lexer_->view(own_at).is_body});
    walk.enter();
  }
}

}  // namespace deepinfer::grammar
