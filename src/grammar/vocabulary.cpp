#include "grammar/vocabulary.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "grammar/expr.h"
#include "grammar/lexer.h"
#include "grammar/mask_bits.h"

namespace deepinfer::grammar {

namespace {

/// A token on its way out of a loop: what follows, and how many characters the loop took.
struct Leaving {
  std::string_view suffix;
  LoopTable::Exit exit;
};

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
  build_tries();
  class_masks_ = index_classes();
  build_json_body();
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

std::optional<TokenId> Vocabulary::token_of(std::uint8_t byte) const {
  return byte_tokens_[byte] < 0 ? std::nullopt : std::optional(TokenId{byte_tokens_[byte]});
}

void Vocabulary::build_tries() {
  byte_tokens_.fill(-1);
  std::vector<TokenText> sorted;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!tokens_[i].is_control && !tokens_[i].bytes.empty()) {
      const auto token = static_cast<std::int32_t>(i);
      sorted.push_back({token, tokens_[i].bytes});
      max_token_bytes_ = std::max(max_token_bytes_, tokens_[i].bytes.size());
      set_bit(text_mask_, token);
      if (tokens_[i].bytes.size() == 1) {
        byte_tokens_[static_cast<std::uint8_t>(tokens_[i].bytes[0])] = token;
      }
    }
  }
  std::ranges::sort(sorted, [](const TokenText& a, const TokenText& b) {
    const int compared = a.text.compare(b.text);
    return compared != 0 ? compared < 0 : a.token < b.token;
  });
  same_.assign(tokens_.size(), -1);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].text == sorted[i].text) {
      same_[static_cast<std::size_t>(sorted[i - 1].token)] = sorted[i].token;
      has_duplicates_ = true;
    }
  }
  for (const TokenText& one : sorted) {
    sorted_.push_back(one.token);
  }
  trie_ = make_trie(sorted);
  std::erase_if(sorted, [](const TokenText& one) { return one.text.size() <= kLongBytes; });
  long_trie_ = make_trie(sorted).nodes;
  arrivals_ = find_arrivals(trie_.nodes);
}

ClassMasks Vocabulary::index_classes() const {
  std::vector<ClassMasks::Made> made(tokens_.size());
  for (const TokenTrieNode& node : trie_.nodes) {
    for (std::int32_t token = node.token; token >= 0; token = same_text(token)) {
      made[static_cast<std::size_t>(token)] = {.classes = classes_from_each_byte(text(TokenId{token})).front(), .chars = node.chars};
    }
  }
  return {std::move(made), mask_words()};
}

std::span<const std::uint32_t> Vocabulary::tokens_within(const FreeText& text) const {
  const std::uint32_t length = std::min(text.length, ClassMasks::kMaxChars);
  const std::lock_guard lock(shared_->mutex);
  std::unique_ptr<const std::vector<std::uint32_t>>& kept = shared_->within[{text.classes, length}];
  if (kept == nullptr) {
    kept = std::make_unique<const std::vector<std::uint32_t>>(class_masks_->within({.classes = text.classes, .length = length}));
  }
  return *kept;
}

void Vocabulary::build_json_body() {
  ExprPool pool;
  Lexer lexer(pool);
  std::vector<Leaving> leaving;
  struct Open {
    LexId state;
    std::uint16_t chars;  // begun
  };
  const LexId body = lexer.next(lexer.start(ExprPool::kAnyText, Encoding::json_string), '"');
  std::vector<Open> open(max_token_bytes_ + 1);
  open[0] = {body, 0};
  for (TrieWalk walk(trie_.nodes); !walk.at_end();) {
    const TokenTrieNode& node = walk.node();
    const Open from = open[node.depth - 1U];
    const LexId state = lexer.next(from.state, node.byte);
    if (state == kDead || lexer.accepting(state)) {
      for (const std::int32_t token : state == kDead ? std::span<const std::int32_t>() : tokens_from(walk.at())) {
        const std::string_view text = tokens_[static_cast<std::size_t>(token)].bytes;
        leaving.push_back({text.substr(node.depth), {token, from.chars}});  // what is behind a closing quote
      }
      walk.pass();
      continue;
    }
    const auto chars = static_cast<std::uint16_t>(from.chars + (from.state == body ? 1 : 0));
    open[node.depth] = {state, chars};
    for (std::int32_t token = node.token; token >= 0; token = same_text(token)) {
      json_body_.inside.push_back({token, chars});
    }
    walk.enter();
  }
  finish(json_body_, std::move(leaving), mask_words());
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
