// Construction of expressions: hash-consing and the few identities that keep derivatives finite and small.
#include "grammar/expr.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"

namespace deepinfer::grammar {

namespace {

/// Deeper nesting than any parser here lets through; guards the recursion of arrows().
constexpr std::uint32_t kMaxDepth = 3000;
constexpr std::size_t kFirstTable = 1024;

std::uint64_t hash_words(std::uint32_t kind, std::span<const std::uint32_t> words) {
  std::uint64_t hash = 0x9E3779B97F4A7C15U ^ kind;
  for (const std::uint32_t word : words) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDU;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

ExprPool::ExprPool(std::uint32_t max_nodes) : max_nodes_(max_nodes), table_(kFirstTable, 0) {
  nodes_.push_back({.kind = Kind::empty, .life = Life::dead, .has_arrows = true});
  intern(Kind::epsilon, {});
  static_cast<void>(one_of({any_code_point()[0], {any_code_point()[1].low, kTextEnd}}));
  const ExprId any_text = repeat(kAny, 0, kUnbounded);
  const ExprId blank = one_of(normalise({{U'\t', U'\n'}, {U'\r', U'\r'}, {U' ', U' '}}));
  check(any_text == kAnyText && blank == kBlank, "the pool's first expressions have fixed ids");
}

void ExprPool::describe(Node& node, std::span<const std::uint32_t> words) const {
  std::uint32_t depth = 0;
  bool positive = node.kind != Kind::negate && node.kind != Kind::both && node.kind != Kind::multiple;
  const auto deepen = [&](ExprId child) { depth = std::max(depth, nodes_[child].depth + 1U); };
  switch (node.kind) {
    case Kind::empty:
    case Kind::one_of:
    case Kind::leap:
      break;
    case Kind::epsilon:
      node.nullable = true;
      break;
    case Kind::concat:
      node.nullable = nodes_[words[0]].nullable && nodes_[words[1]].nullable;
      positive = nodes_[words[0]].positive && nodes_[words[1]].positive;
      deepen(words[0]);
      if (nodes_[words[0]].nullable) {
        deepen(words[1]);
      }
      break;
    case Kind::either:
      positive = false;
      for (const ExprId child : words) {
        node.nullable |= nodes_[child].nullable;
        positive |= nodes_[child].positive;
        deepen(child);
      }
      break;
    case Kind::both:
      node.nullable = std::all_of(words.begin(), words.end(), [this](ExprId child) { return nodes_[child].nullable; });
      for (const ExprId child : words) {
        deepen(child);
      }
      break;
    case Kind::negate:
      node.nullable = !nodes_[words[0]].nullable;
      deepen(words[0]);
      break;
    case Kind::repeat:
      node.nullable = words[1] == 0;
      positive = node.nullable || nodes_[words[0]].positive;
      deepen(words[0]);
      break;
    case Kind::words:
      node.nullable = tries_[words[0]].is_word;
      break;
    case Kind::multiple: {
      const Divisor& divisor = divisors_[words[0]];
      Wide value = words[1] | static_cast<std::uint64_t>(words[2]) << 32;
      const std::uint32_t done = words[3] == 0 ? 0 : words[3] - 1;
      for (std::uint32_t i = done; i < divisor.scale; ++i) {
        value = value * 10 % divisor.divisor;
      }
      node.nullable = value == 0 && words[3] != 1;
      positive = words[3] == 0;  // further integer digits always reach a multiple
      break;
    }
  }
  node.positive = positive;
  measure(node, words);
  classify(node, words);
  find_gate(node, words);
  node.depth = static_cast<std::uint16_t>(std::min(depth, kMaxDepth + 1));
}

ExprId ExprPool::intern(Kind kind, std::span<const std::uint32_t> words) {
  const std::uint64_t hash = hash_words(static_cast<std::uint32_t>(kind), words);
  std::size_t slot = hash & (table_.size() - 1);
  while (table_[slot] != 0) {
    const Node& node = nodes_[table_[slot]];
    if (node.kind == kind && std::ranges::equal(words_in(node), words)) {
      return table_[slot];
    }
    slot = (slot + 1) & (table_.size() - 1);
  }
  if (nodes_.size() >= max_nodes_ || exhausted_) {
    exhausted_ = true;
    return kEmpty;
  }
  Node node{.kind = kind, .data = static_cast<std::uint32_t>(data_.size()), .size = static_cast<std::uint32_t>(words.size())};
  describe(node, words);
  if (node.depth > kMaxDepth) {
    exhausted_ = true;
    return kEmpty;
  }
  data_.insert(data_.end(), words.begin(), words.end());
  const auto id = static_cast<ExprId>(nodes_.size());
  nodes_.push_back(node);
  table_[slot] = id;
  if (nodes_.size() * 2 > table_.size()) {
    grow_table();
  }
  return id;
}

void ExprPool::grow_table() {
  std::vector<std::uint32_t> bigger(table_.size() * 2, 0);
  for (ExprId id = 1; id < nodes_.size(); ++id) {
    std::size_t slot = hash_words(static_cast<std::uint32_t>(nodes_[id].kind), words_in(nodes_[id])) & (bigger.size() - 1);
    while (bigger[slot] != 0) {
      slot = (slot + 1) & (bigger.size() - 1);
    }
    bigger[slot] = id;
  }
  table_ = std::move(bigger);
}

ExprId ExprPool::one_of(const CodeSet& set) {
  if (set.empty()) {
    return kEmpty;
  }
  std::vector<std::uint32_t> words;
  words.reserve(set.size() * 2);
  for (const CodeRange& range : set) {
    words.push_back(range.low);
    words.push_back(range.high);
  }
  return intern(Kind::one_of, words);
}

ExprId ExprPool::literal(std::u32string_view text) {
  ExprId out = kEpsilon;
  for (std::size_t i = text.size(); i-- > 0;) {
    out = concat(one_of({{text[i], text[i]}}), out);
  }
  return out;
}

ExprId ExprPool::concat(ExprId first, ExprId second) {
  if (first == kEmpty || second == kEmpty) {
    return kEmpty;
  }
  if (first == kEpsilon || second == kEpsilon) {
    return first == kEpsilon ? second : first;
  }
  if (first == kAnyText && second == kAnyText) {
    return kAnyText;
  }
  const std::uint32_t words[] = {first, second};
  return intern(Kind::concat, words);
}

ExprId ExprPool::concat(std::span<const ExprId> parts) {
  ExprId out = kEpsilon;
  for (std::size_t i = parts.size(); i-- > 0;) {
    out = concat(parts[i], out);
  }
  return out;
}

ExprId ExprPool::list(Kind kind, std::vector<ExprId> parts) {
  // A union absorbs into kAnyText and ignores kEmpty; an intersection the other way round.
  const ExprId absorbing = kind == Kind::either ? kAnyText : kEmpty;
  const ExprId neutral = kind == Kind::either ? kEmpty : kAnyText;
  std::vector<ExprId> flat = std::move(parts);
  for (std::size_t i = 0, count = flat.size(); i < count; ++i) {
    if (nodes_[flat[i]].kind == kind) {
      const auto inner = words_in(nodes_[flat[i]]);
      flat[i] = inner[0];
      flat.insert(flat.end(), inner.begin() + 1, inner.end());
    }
  }
  num_parts_ += flat.size();
  if (num_parts_ > allowed_parts_) {
    exhausted_ = true;
    return kEmpty;
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  std::vector<ExprId> kept;
  CodeSet classes;
  std::size_t num_classes = 0;
  for (const ExprId part : flat) {
    if (part == absorbing) {
      return absorbing;
    }
    if (nodes_[part].kind == Kind::one_of) {
      CodeSet set;
      const auto words = words_in(nodes_[part]);
      for (std::size_t i = 0; i < words.size(); i += 2) {
        set.push_back({words[i], words[i + 1]});
      }
      classes = num_classes++ == 0 ? set : kind == Kind::either ? set_union(classes, set) : intersection(classes, set);
    } else if (part != neutral) {
      kept.push_back(part);
    }
  }
  if (num_classes > 0) {
    const ExprId merged = one_of(classes);
    if (merged == absorbing) {
      return absorbing;
    }
    kept.push_back(merged);
  }
  if (kind == Kind::both && !merge_lengths(kept)) {
    return kEmpty;
  }
  if (kind == Kind::either && kept.size() > 1 && std::ranges::count(kept, kEpsilon) > 0) {
    const bool redundant = std::ranges::any_of(kept, [this](ExprId part) { return part != kEpsilon && nodes_[part].nullable; });
    if (redundant) {
      std::erase(kept, kEpsilon);
    }
  }
  if (kind == Kind::both && std::ranges::count(kept, kEpsilon) > 0) {
    return std::ranges::all_of(kept, [this](ExprId part) { return nodes_[part].nullable; }) ? kEpsilon : kEmpty;
  }
  for (const ExprId part : kept) {
    if (nodes_[part].kind == Kind::negate && std::ranges::count(kept, words_in(nodes_[part])[0]) > 0) {
      return absorbing;
    }
  }
  if (kept.empty()) {
    return neutral;
  }
  if (kind == Kind::either && kept.size() > 1) {
    merge_counts(kept);
  }
  std::sort(kept.begin(), kept.end());
  return kept.size() == 1 ? kept[0] : intern(kind, kept);
}

ExprId ExprPool::either(std::span<const ExprId> parts) { return list(Kind::either, {parts.begin(), parts.end()}); }
ExprId ExprPool::either(ExprId a, ExprId b) { return a == b ? a : list(Kind::either, {a, b}); }
ExprId ExprPool::both(std::span<const ExprId> parts) { return list(Kind::both, {parts.begin(), parts.end()}); }
ExprId ExprPool::both(ExprId a, ExprId b) { return a == b ? a : list(Kind::both, {a, b}); }

ExprId ExprPool::negate(ExprId a) {
  if (exhausted_) {
    return kEmpty;
  }
  if (a == kEmpty || a == kAnyText) {
    return a == kEmpty ? kAnyText : kEmpty;
  }
  if (nodes_[a].kind == Kind::negate) {
    return words_in(nodes_[a])[0];
  }
  if (Repeat length; as_repeat(a, length) && length.body == kAny) {
    return either(length.least == 0 ? kEmpty : repeat(kAny, 0, length.least - 1),
                  length.most == kUnbounded ? kEmpty : repeat(kAny, length.most + 1, kUnbounded));
  }
  const std::uint32_t words[] = {a};
  return intern(Kind::negate, words);
}

ExprId ExprPool::repeat(ExprId a, std::uint32_t least, std::uint32_t most) {
  if (most == 0 || a == kEpsilon) {
    return kEpsilon;
  }
  if (a == kEmpty) {
    return least == 0 ? kEpsilon : kEmpty;
  }
  if (nodes_[a].nullable) {
    least = 0;
  }
  if (least == 1 && most == 1) {
    return a;
  }
  if (Repeat inner; as_repeat(a, inner) && merges(inner, least, most)) {
    const bool has_end = inner.most != kUnbounded && most != kUnbounded;
    return repeat(inner.body, inner.least * least, has_end ? inner.most * most : kUnbounded);
  }
  const std::uint32_t words[] = {a, least, most};
  return intern(Kind::repeat, words);
}

ExprId ExprPool::trie_expr(std::uint32_t trie_node) {
  if (tries_[trie_node].children.empty()) {
    return tries_[trie_node].is_word ? kEpsilon : kEmpty;
  }
  const std::uint32_t words[] = {trie_node};
  return intern(Kind::words, words);
}

ExprId ExprPool::words(std::span<const std::u32string> texts) {
  const auto root = static_cast<std::uint32_t>(tries_.size());
  std::vector<std::u32string_view> sorted(texts.begin(), texts.end());
  std::sort(sorted.begin(), sorted.end());
  tries_.emplace_back();
  for (const std::u32string_view text : sorted) {
    std::uint32_t at = root;
    for (const char32_t c : text) {
      // Sorted input: a shared prefix is always the last child.
      if (tries_[at].children.empty() || tries_[at].children.back().first != c) {
        tries_[at].children.emplace_back(c, static_cast<std::uint32_t>(tries_.size()));
        tries_.emplace_back();
        ++trie_edges_;
      }
      at = tries_[at].children.back().second;
    }
    tries_[at].is_word = true;
  }
  return trie_expr(root);
}

std::vector<std::u32string> ExprPool::words_of(ExprId id) const {
  if (id == kEpsilon) {
    return {U""};
  }
  std::vector<std::u32string> out;
  if (nodes_[id].kind != Kind::words) {
    return out;
  }
  std::vector<std::pair<std::uint32_t, std::u32string>> open{{words_in(nodes_[id])[0], U""}};
  while (!open.empty()) {
    auto [node, prefix] = std::move(open.back());
    open.pop_back();
    if (tries_[node].is_word) {
      out.push_back(prefix);
    }
    for (auto child = tries_[node].children.rbegin(); child != tries_[node].children.rend(); ++child) {
      open.emplace_back(child->second, prefix + child->first);
    }
  }
  return out;
}

ExprId ExprPool::multiple_of(std::uint64_t divisor, std::uint32_t scale) {
  check(divisor > 0, "a divisor is positive");
  divisors_.push_back({divisor, scale});
  return multiple_state(static_cast<std::uint32_t>(divisors_.size() - 1), 0, 0);
}

ExprId ExprPool::multiple_state(std::uint32_t divisor, std::uint64_t remainder, std::uint32_t fraction_digits) {
  const auto [modulus, scale] = divisors_[divisor];
  if (fraction_digits > 0) {  // the digits left must be able to reach a multiple: −r·10^k mod m < 10^k
    Wide value = remainder;
    Wide reach = 1;
    for (std::uint32_t i = fraction_digits - 1; i < scale; ++i) {
      value = value * 10 % modulus;
      reach = std::min<Wide>(reach * 10, modulus);
    }
    if ((modulus - value) % modulus >= reach) {
      return kEmpty;
    }
  }
  const std::uint32_t words[] = {divisor, static_cast<std::uint32_t>(remainder), static_cast<std::uint32_t>(remainder >> 32),
                                 fraction_digits};
  return intern(Kind::multiple, words);
}

CodeSet ExprPool::as_class(ExprId id) const {
  CodeSet out;
  if (nodes_[id].kind == Kind::one_of) {
    const auto words = words_in(nodes_[id]);
    for (std::size_t i = 0; i < words.size(); i += 2) {
      out.push_back({words[i], words[i + 1]});
    }
  }
  return out;
}

std::size_t ExprPool::bytes() const {
  return nodes_.capacity() * sizeof(Node) + data_.capacity() * 4 + arrows_.capacity() * sizeof(Arrow) + table_.capacity() * 4 +
         tries_.capacity() * sizeof(TrieNode) + trie_edges_ * 2 * sizeof(tries_[0].children[0]);
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const std::size_t length = utf8::sequence_length(text);
    check(length > 0, "the text is valid UTF-8");
    out.push_back(utf8::decode(text));
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace deepinfer::grammar
