#include "grammar/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "base/check.h"
#include "grammar/expr.h"
#include "grammar/lexer.h"

namespace deepinfer::grammar {

namespace {

/// Characters of a token are counted up to here.
constexpr int kMaxChars = 255;

/// A token on its way out of a loop: what follows, and how many characters the loop took.
struct Leaving {
  std::string_view suffix;
  LoopTable::Exit exit;
};

void set_bit(std::vector<std::uint32_t>& mask, std::int32_t token) { mask[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32); }

std::size_t common_prefix(std::string_view a, std::string_view b) {
  std::size_t length = 0;
  while (length < a.size() && length < b.size() && a[length] == b[length]) {
    ++length;
  }
  return length;
}

void build_suffixes(LoopTable& table, std::vector<Leaving> leaving) {
  std::sort(leaving.begin(), leaving.end(),
            [](const Leaving& a, const Leaving& b) { return a.suffix != b.suffix ? a.suffix < b.suffix : a.exit.chars < b.exit.chars; });
  std::vector<std::uint32_t> open{0};
  table.suffixes.push_back({});
  std::string_view previous;
  const auto close_to = [&](std::size_t depth) {
    while (open.size() > depth + 1) {
      table.suffixes[open.back()].end = static_cast<std::uint32_t>(table.suffixes.size());
      open.pop_back();
    }
  };
  for (const Leaving& one : leaving) {
    close_to(common_prefix(previous, one.suffix));
    for (std::size_t i = open.size() - 1; i < one.suffix.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(table.suffixes.size()));
      table.suffixes.push_back({.first_exit = static_cast<std::uint32_t>(table.exits.size()),
                                .depth = static_cast<std::uint16_t>(i + 1),
                                .byte = static_cast<std::uint8_t>(one.suffix[i])});
    }
    LoopTable::Suffix& node = table.suffixes[open.back()];
    node.first_exit = node.num_exits == 0 ? static_cast<std::uint32_t>(table.exits.size()) : node.first_exit;
    ++node.num_exits;
    table.exits.push_back(one.exit);
    previous = one.suffix;
  }
  close_to(0);
  table.suffixes[0].end = static_cast<std::uint32_t>(table.suffixes.size());
}

void finish(LoopTable& table, std::vector<Leaving> leaving, std::size_t mask_words) {
  std::stable_sort(table.inside.begin(), table.inside.end(), [](const auto& a, const auto& b) { return a.chars < b.chars; });
  table.inside_mask.assign(mask_words, 0);
  for (const LoopTable::Inside& inside : table.inside) {
    set_bit(table.inside_mask, inside.token);
    table.max_chars = std::max<std::uint32_t>(table.max_chars, inside.chars);
  }
  for (const Leaving& one : leaving) {
    table.max_chars = std::max<std::uint32_t>(table.max_chars, one.exit.chars);
  }
  build_suffixes(table, std::move(leaving));
}

}  // namespace

Vocabulary::Vocabulary(std::vector<VocabularyToken> tokens, std::int32_t num_rows) : tokens_(std::move(tokens)), num_rows_(num_rows) {
  check(num_rows_ > 0, "a vocabulary has rows");
  if (tokens_.size() > static_cast<std::size_t>(num_rows_)) {
    tokens_.resize(static_cast<std::size_t>(num_rows_));
  }
  text_mask_.assign(mask_words(), 0);
  build_trie();
  describe_trie();
  index_classes();
  json_body_ = json_table(any_code_point());
  build_blanks();
}

std::string_view Vocabulary::text(TokenId id) const { return is_control(id) ? std::string_view{} : spelling(id); }

bool Vocabulary::is_control(TokenId id) const {
  return id.value >= 0 && static_cast<std::size_t>(id.value) < tokens_.size() && tokens_[static_cast<std::size_t>(id.value)].is_control;
}

std::string_view Vocabulary::spelling(TokenId id) const {
  return id.value >= 0 && static_cast<std::size_t>(id.value) < tokens_.size() ? tokens_[static_cast<std::size_t>(id.value)].bytes
                                                                              : std::string_view{};
}

void Vocabulary::build_trie() {
  std::vector<std::int32_t> sorted;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (!tokens_[id].is_control && !tokens_[id].bytes.empty()) {
      sorted.push_back(static_cast<std::int32_t>(id));
      max_token_bytes_ = std::max(max_token_bytes_, tokens_[id].bytes.size());
      set_bit(text_mask_, static_cast<std::int32_t>(id));
    }
  }
  std::sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
    const int compared = text(TokenId{a}).compare(text(TokenId{b}));
    return compared != 0 ? compared < 0 : a < b;
  });
  same_.assign(tokens_.size(), -1);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (text(TokenId{sorted[i - 1]}) == text(TokenId{sorted[i]})) {
      same_[static_cast<std::size_t>(sorted[i - 1])] = sorted[i];
      has_duplicates_ = true;
    }
  }
  trie_ = trie_of(sorted);
  std::erase_if(sorted, [this](std::int32_t id) { return text(TokenId{id}).size() <= kLongBytes; });
  long_trie_ = trie_of(sorted);
  for (std::uint32_t i = 1; i < trie_[0].end; i = trie_[i].end) {
    root_children_[trie_[i].byte] = i;
  }
}

/// The trie of tokens in the order of their bytes; of those with the same bytes the first stands in it.
std::vector<TokenTrieNode> Vocabulary::trie_of(std::span<const std::int32_t> sorted) const {
  std::vector<TokenTrieNode> out{{}};
  std::vector<std::uint32_t> open{0};
  std::int32_t previous = -1;
  for (const std::int32_t id : sorted) {
    const std::string_view bytes = text(TokenId{id});
    if (previous >= 0 && text(TokenId{previous}) == bytes) {
      continue;
    }
    const std::size_t shared = previous >= 0 ? common_prefix(text(TokenId{previous}), bytes) : 0;
    for (; open.size() > shared + 1; open.pop_back()) {
      out[open.back()].end = static_cast<std::uint32_t>(out.size());
    }
    for (std::size_t i = shared; i < bytes.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(out.size()));
      out.push_back({.depth = static_cast<std::uint16_t>(i + 1), .byte = static_cast<std::uint8_t>(bytes[i])});
    }
    out[open.back()].token = id;
    previous = id;
  }
  for (; !open.empty(); open.pop_back()) {
    out[open.back()].end = static_cast<std::uint32_t>(out.size());
  }
  return out;
}

void Vocabulary::describe_trie() {
  token_classes_.assign(tokens_.size(), kNoChar);
  below_.assign(trie_.size(), 0);
  at_.assign(trie_.size(), kInside);
  chars_at_.assign(trie_.size(), 0);
  most_chars_.assign(trie_.size(), 0);
  token_chars_.assign(tokens_.size(), 0);
  first_token_.assign(trie_.size() + 1, 0);
  first_below_.assign(trie_.size(), 0);
  std::vector<std::uint32_t> path(max_token_bytes_ + 1, 0);  // by depth
  for (std::uint32_t i = 0; i < trie_.size(); ++i) {
    path[trie_[i].depth] = i;
    first_token_[i] = static_cast<std::uint32_t>(order_.size());
    if (trie_[i].token >= 0) {
      const std::vector<CharClasses> classes = classes_from_each_byte(text(TokenId{trie_[i].token}));
      for (std::size_t depth = 0; depth < classes.size(); ++depth) {
        below_[path[depth]] |= classes[depth];
      }
      const std::vector<std::uint8_t> bits = class_bits_of_ends(text(TokenId{trie_[i].token}));
      std::uint8_t chars = 0;
      for (std::size_t depth = 1; depth < bits.size(); ++depth) {
        const bool begins = depth == 1 || bits[depth - 1] != kInside;
        chars = static_cast<std::uint8_t>(std::min(chars + (begins ? 1 : 0), kMaxChars));
        at_[path[depth]] = bits[depth];
        chars_at_[path[depth]] = chars;
      }
      for (std::size_t depth = 0; depth < bits.size(); ++depth) {
        most_chars_[path[depth]] = std::max(most_chars_[path[depth]], chars);
      }
      for (std::int32_t token = trie_[i].token; token >= 0; token = same_text(token)) {
        order_.push_back(token);
        token_classes_[static_cast<std::size_t>(token)] = classes[0];
        token_chars_[static_cast<std::size_t>(token)] = chars_at_[i];
      }
    }
    first_below_[i] = static_cast<std::uint32_t>(order_.size());
  }
  first_token_[trie_.size()] = static_cast<std::uint32_t>(order_.size());
}

/// By class and by length, which tokens have it: whatever is asked for is put together from few of these.
void Vocabulary::index_classes() {
  constexpr std::size_t kNumClasses = 64;
  padded_words_ = (mask_words() + kBlock - 1) / kBlock * kBlock;
  having_.assign(kNumClasses, {});
  longer_.assign(kLongBytes + 1, std::vector<std::uint32_t>(padded_words_, 0));
  for (std::size_t token = 0; token < token_classes_.size(); ++token) {
    const std::uint32_t bit = 1U << (token % 32);
    for (CharClasses rest = token_classes_[token]; rest != 0; rest &= rest - 1) {
      std::vector<std::uint32_t>& mask = having_[static_cast<std::size_t>(std::countr_zero(rest))];
      mask.resize(padded_words_, 0);
      mask[token / 32] |= bit;
    }
    for (std::size_t length = 0; length < longer_.size() && length < token_chars_[token]; ++length) {
      longer_[length][token / 32] |= bit;
    }
  }
}

std::vector<std::uint32_t> Vocabulary::compute_within(CharClasses classes, std::uint32_t length) const {
  std::vector<const std::uint32_t*> without;
  for (std::size_t i = 0; i < having_.size(); ++i) {
    if ((classes >> i & 1) == 0 && !having_[i].empty()) {
      without.push_back(having_[i].data());
    }
  }
  if (length < longer_.size()) {
    without.push_back(longer_[length].data());
  }
  std::vector<std::uint32_t> out(padded_words_);
  for (std::size_t first = 0; first < padded_words_; first += kBlock) {
    std::array<std::uint32_t, kBlock> gone{};
    for (const std::uint32_t* mask : without) {
      for (std::size_t i = 0; i < kBlock; ++i) {
        gone[i] |= mask[first + i];
      }
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
      out[first + i] = ~gone[i];
    }
  }
  out.resize(mask_words());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] &= text_mask_[i];
  }
  if (length >= longer_.size()) {
    for (const TokenTrieNode& node : long_trie_) {  // only these can be longer
      for (std::int32_t token = node.token; token >= 0; token = same_text(token)) {
        if (token_chars_[static_cast<std::size_t>(token)] > length) {
          out[static_cast<std::size_t>(token) / 32] &= ~(1U << (token % 32));
        }
      }
    }
  }
  return out;
}

std::span<const std::uint32_t> Vocabulary::tokens_within(const FreeText& text) const {
  const std::uint32_t length = text.length < kMaxChars ? text.length : kMaxChars;
  const std::lock_guard lock(loops_->mutex);
  std::unique_ptr<const std::vector<std::uint32_t>>& kept = loops_->within[{text.classes, length}];
  if (kept == nullptr) {
    std::vector<std::uint32_t> mask = compute_within(text.classes, length);
    kept = std::make_unique<const std::vector<std::uint32_t>>(std::move(mask));
  }
  return *kept;
}

std::span<const TokenTrieNode> Vocabulary::tokens_leaving(CharClasses free, CharClasses live) const {
  constexpr std::size_t kMaxTries = 64;
  const std::lock_guard lock(loops_->mutex);
  auto place = loops_->leaving.find({free, live});
  if (place == loops_->leaving.end()) {
    if (loops_->leaving.size() < kMaxTries) {
      loops_->leaving.emplace(std::pair(free, live), SharedLoops::Leaving{});
    }
    return {};  // most are asked for only once
  }
  SharedLoops::Leaving& known = place->second;
  if (!known.is_made) {
    known.is_made = true;
    if (const auto tokens = list_leaving(free, live)) {
      known.trie = trie_of(*tokens);
    }
  }
  return known.trie;
}

/// In the order of their bytes, nullopt when they are too many; a token that is no whole characters from somewhere on is among them when
/// all before it is free.
std::optional<std::vector<std::int32_t>> Vocabulary::list_leaving(CharClasses free, CharClasses live) const {
  constexpr std::size_t kMaxTokens = 4096;  // a trie of more takes longer to make than the whole one to walk
  std::vector<std::int32_t> out;
  const auto take = [this, &out](std::uint32_t first, std::uint32_t last) {
    out.insert(out.end(), order_.begin() + first, order_.begin() + last);
  };
  for (std::uint32_t i = 1; i < trie_[0].end;) {
    if (out.size() > kMaxTokens) {
      return std::nullopt;
    }
    const CharClasses here = class_at(i);
    if (here != 0 && (here & free) == 0) {  // left here, with whatever comes behind it
      if ((here & live) != 0) {
        take(first_token_[i], first_token_[trie_[i].end]);
      }
      i = trie_[i].end;
      continue;
    }
    if (here == 0) {
      take(first_token_[i], first_below_[i]);
    } else if ((classes_below(i) & ~free) == 0 || (classes_below(i) & live) == 0) {
      i = trie_[i].end;
      continue;
    }
    ++i;
  }
  return out;
}

LoopTable Vocabulary::json_table(const CodeSet& set) const {
  ExprPool pool;
  Lexer lexer(pool);
  LoopTable out;
  std::vector<Leaving> leaving;
  struct Open {
    LexId state;
    std::uint16_t chars;  // begun
  };
  const LexId body = lexer.next(lexer.start(pool.star(pool.one_of(set)), Encoding::json_string), '"');
  std::vector<Open> open(max_token_bytes_ + 1);
  open[0] = {body, 0};
  const auto add_exits = [&](std::uint32_t root, std::uint16_t chars) {  // the subtree behind a closing quote
    for (std::uint32_t i = root; i < trie_[root].end; ++i) {
      for (std::int32_t token = trie_[i].token; token >= 0; token = same_text(token)) {
        leaving.push_back({std::string_view(tokens_[static_cast<std::size_t>(token)].bytes).substr(trie_[root].depth), {token, chars}});
      }
    }
  };
  for (std::uint32_t i = 1; i < trie_[0].end;) {
    const TokenTrieNode& node = trie_[i];
    const Open from = open[node.depth - 1U];
    const LexId state = lexer.next(from.state, node.byte);
    if (state == kDead) {
      i = node.end;
      continue;
    }
    if (lexer.accepting(state)) {
      add_exits(i, from.chars);
      i = node.end;
      continue;
    }
    const auto chars = static_cast<std::uint16_t>(from.chars + (from.state == body ? 1 : 0));
    open[node.depth] = {state, chars};
    for (std::int32_t token = node.token; token >= 0; token = same_text(token)) {
      out.inside.push_back({token, chars});
    }
    ++i;
  }
  finish(out, std::move(leaving), mask_words());
  return out;
}

const LoopTable* Vocabulary::json_loop(const CodeSet& set) const {
  constexpr std::size_t kMaxTables = 64;  // at most about two megabytes each
  const std::lock_guard lock(loops_->mutex);
  const auto known = loops_->tables.find(set);
  if (known != loops_->tables.end()) {
    return known->second.get();
  }
  if (loops_->tables.size() >= kMaxTables) {
    return nullptr;
  }
  return loops_->tables.emplace(set, std::make_unique<const LoopTable>(json_table(set))).first->second.get();
}

void Vocabulary::build_blanks() {
  std::vector<Leaving> leaving;
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view text = this->text(TokenId{static_cast<std::int32_t>(id)});
    const std::size_t blanks = std::min(text.find_first_not_of(" \t\n\r"), text.size());
    const auto chars = static_cast<std::uint16_t>(blanks);
    if (blanks == 0) {
      continue;
    }
    if (blanks == text.size()) {
      blanks_.inside.push_back({static_cast<std::int32_t>(id), chars});
    } else {
      leaving.push_back({text.substr(blanks), {static_cast<std::int32_t>(id), chars}});
    }
  }
  finish(blanks_, std::move(leaving), mask_words());
}

}  // namespace deepinfer::grammar
