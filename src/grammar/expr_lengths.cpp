// What an expression says about lengths and classes of characters without being taken apart: bounds that masks are built by.
#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "grammar/expr.h"

namespace deepinfer::grammar {

void ExprPool::measure(Node& node, std::span<const std::uint32_t> words) const {
  const auto limited = [](std::uint64_t length) { return static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kUnbounded)); };
  const auto need = [this](ExprId id) { return std::uint64_t{nodes_[id].need}; };
  const auto farthest = [this](ExprId id) { return std::uint64_t{nodes_[id].farthest}; };
  node.need = kUnbounded;
  node.farthest = kUnbounded;
  switch (node.kind) {
    case Kind::epsilon:
      node.farthest = 0;
      break;
    case Kind::one_of:
      node.need = node.farthest = 1;
      break;
    case Kind::concat:
      node.need = limited(need(words[0]) + need(words[1]));
      node.farthest = limited(std::max(farthest(words[0]) + need(words[1]), farthest(words[1])));
      break;
    case Kind::either:
      node.farthest = 0;
      for (const ExprId child : words) {
        node.need = std::min(node.need, nodes_[child].need);
        node.farthest = std::max(node.farthest, nodes_[child].farthest);
      }
      break;
    case Kind::repeat:
      node.need = limited(need(words[0]) * words[1]);
      node.farthest = limited(farthest(words[0]) + need(words[0]) * (words[1] == 0 ? 0 : words[1] - 1));
      break;
    default:
      break;
  }
  node.need = node.nullable ? 0 : node.need;
}

void ExprPool::classify(Node& node, std::span<const std::uint32_t> words) const {
  const bool has_parts = node.kind == Kind::concat || node.kind == Kind::either || node.kind == Kind::both;
  node.has_multiple = node.kind == Kind::multiple ||
                      (has_parts && std::ranges::any_of(words, [this](ExprId part) { return nodes_[part].has_multiple; }));
  const auto class_set = [](std::span<const std::uint32_t> ranges) {
    CodeSet out;
    for (std::size_t i = 0; i < ranges.size(); i += 2) {
      out.push_back({ranges[i], std::min<char32_t>(ranges[i + 1], kMaxCodePoint)});
    }
    return out;
  };
  const auto larger = [](const FreeText& a, const FreeText& b) {
    const auto size = [](const FreeText& text) { return std::pair(std::popcount(text.classes), text.length); };
    return size(a) >= size(b) ? a : b;
  };
  switch (node.kind) {
    case Kind::empty:
    case Kind::epsilon:
      break;
    case Kind::one_of:
      node.single = classes_within(class_set(words));
      node.free = {.classes = node.single, .length = 1};
      node.mentioned = classes_touching(class_set(words));
      break;
    case Kind::concat: {
      const Node& first = nodes_[words[0]];
      const Node& rest = nodes_[words[1]];
      node.mentioned = first.mentioned | rest.mentioned;
      node.single = (rest.nullable ? first.single : 0) | (first.nullable ? rest.single : 0);
      if (rest.positive) {
        node.free = first.nullable ? larger(first.free, rest.free) : first.free;
        const FreeText on = free_on(first, rest);
        const bool is_worth = std::popcount(on.classes) * 4 >= std::popcount(node.free.classes) * 3 && on.length > node.free.length;
        node.free = is_worth ? on : node.free;
      }
      break;
    }
    case Kind::either:
      for (const ExprId child : words) {
        node.free = larger(node.free, nodes_[child].free);
        node.single |= nodes_[child].single;
        node.mentioned |= nodes_[child].mentioned;
      }
      break;
    case Kind::repeat: {
      const Node& body = nodes_[words[0]];
      node.mentioned = body.mentioned;
      node.single = words[1] <= 1 ? body.single : 0;
      node.free = larger({.classes = body.single, .length = words[2]}, body.positive ? body.free : FreeText{});
      break;
    }
    case Kind::both:
      node.mentioned = ~CharClasses{0};
      for (const ExprId child : words) {
        node.mentioned &= nodes_[child].mentioned;
      }
      break;
    default:
      node.mentioned = ~CharClasses{0};
      break;
  }
}

/// Where `first` takes up to so many of some characters or fewer: texts that go on into what is free in `rest`.
FreeText ExprPool::free_on(const Node& first, const Node& rest) const {
  if (first.kind != Kind::repeat || words_in(first)[1] != 0 || words_in(first)[2] == kUnbounded) {
    return {};
  }
  const std::uint64_t length = std::uint64_t{words_in(first)[2]} + rest.free.length;
  return {.classes = nodes_[words_in(first)[0]].single & rest.free.classes,
          .length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kUnbounded))};
}

void ExprPool::find_gate(Node& node, std::span<const std::uint32_t> words) const {
  constexpr int kFewClasses = 4;  // few of them early hold back more than none later
  const auto longest = [](std::uint64_t length) { return static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kUnbounded)); };
  switch (node.kind) {
    case Kind::empty:
    case Kind::epsilon:
      node.gate = {.classes = 0, .length = 0};
      break;
    case Kind::one_of:
      node.first = node.mentioned;
      node.gate = {.classes = 0, .length = 1};
      break;
    case Kind::concat: {
      const Node& first = nodes_[words[0]];
      const Node& rest = nodes_[words[1]];
      node.first = first.first | (first.nullable ? rest.first : 0);
      if (first.gate.classes != 0 || std::popcount(rest.first) <= kFewClasses) {
        node.gate = {.classes = first.gate.classes | rest.first, .length = first.gate.length};
      } else {
        node.gate = {.classes = rest.gate.classes, .length = longest(std::uint64_t{first.gate.length} + rest.gate.length)};
      }
      break;
    }
    case Kind::either:
      node.gate = {.classes = 0, .length = 0};
      for (const ExprId child : words) {
        node.first |= nodes_[child].first;
        node.gate.classes |= nodes_[child].gate.classes;
        node.gate.length = std::max(node.gate.length, nodes_[child].gate.length);
      }
      break;
    case Kind::repeat: {
      const Node& body = nodes_[words[0]];
      const bool has_end = body.gate.classes == 0 && words[2] != kUnbounded;
      node.first = body.first;
      node.gate = has_end ? Gate{.classes = 0, .length = longest(std::uint64_t{body.gate.length} * words[2])} : Gate{.classes = body.first};
      break;
    }
    case Kind::both:
      node.first = ~CharClasses{0};
      for (const ExprId child : words) {
        const Gate& gate = nodes_[child].gate;
        node.first &= nodes_[child].first;
        node.gate = std::popcount(gate.classes) < std::popcount(node.gate.classes) ? gate : node.gate;
      }
      break;
    default:
      node.first = ~CharClasses{0};
      break;
  }
}

bool ExprPool::as_repeat(ExprId id, Repeat& out) const {
  if (nodes_[id].kind != Kind::repeat) {
    return false;
  }
  const auto words = words_in(nodes_[id]);
  out = {.least = words[1], .most = words[2], .body = words[0]};
  return true;
}

/// The counts of `inner` repeated least to most times leave no gap: (x{1,5}){2,3} is x{2,15}, (x{4}){0,2} is not x{0,8}.
bool ExprPool::merges(const Repeat& inner, std::uint32_t least, std::uint32_t most) {
  constexpr std::uint64_t kMost = 1U << 31;
  const std::uint64_t first_end = inner.most == kUnbounded ? kMost : std::uint64_t{inner.most} * least;
  const bool has_no_gap = least == most || (std::uint64_t{least} + 1) * inner.least <= first_end + 1;
  const bool is_small = inner.most == kUnbounded || most == kUnbounded || std::uint64_t{inner.most} * most < kMost;
  return has_no_gap && is_small && std::uint64_t{inner.least} * least < kMost;
}

/// Lengths that must hold together become one; false when none is left.
bool ExprPool::merge_lengths(std::vector<ExprId>& parts) {
  std::uint32_t least = 0;
  std::uint32_t most = kUnbounded;
  const std::size_t num_merged = std::erase_if(parts, [&](ExprId part) {
    Repeat length;
    const bool is_length = as_repeat(part, length) && length.body == kAny;
    least = is_length ? std::max(least, length.least) : least;
    most = is_length ? std::min(most, length.most) : most;
    return is_length;
  });
  if (num_merged > 0 && least <= most) {
    parts.push_back(repeat(kAny, least, most));
  }
  return least <= most;
}

std::vector<ExprId> ExprPool::alternatives(ExprId id) const {
  if (nodes_[id].kind != Kind::either) {
    return {id};
  }
  const auto words = words_in(nodes_[id]);
  return {words.begin(), words.end()};
}

FreeText ExprPool::free_text(ExprId id) {
  if (ExprId multiple = kEmpty; nodes_[id].has_multiple && completes_multiple(id, multiple)) {
    return {.classes = classes_within({{U'0', U'9'}})};  // and so it does behind any digit
  }
  const Kind kind = nodes_[id].kind;
  if (kind != Kind::both && kind != Kind::negate) {
    return nodes_[id].free;
  }
  CodeSet free;
  for (const Arrow& arrow : arrows(id)) {
    if (arrow.next == id || arrow.next == kAnyText) {
      free.push_back({arrow.low, std::min(arrow.high, kMaxCodePoint)});
    }
  }
  const FreeText loop{.classes = classes_within(normalise(std::move(free)))};
  return loop.classes == 0 && kind == Kind::both ? free_within_count(id) : loop;
}

/// A repeat of any character at all, however that is written.
bool ExprPool::counts_characters(const Node& node) const {
  if (node.kind != Kind::repeat) {
    return false;
  }
  const ExprId body = words_in(node)[0];
  return body == kAny || (nodes_[body].kind == Kind::one_of && as_class(body) == any_code_point());
}

/// Of an intersection with a count of characters: what is free in the rest and leaves it room to end.
FreeText ExprPool::free_within_count(ExprId both_id) const {
  const auto words = words_in(nodes_[both_id]);
  for (const std::size_t place : {0U, 1U}) {
    const Node& count = nodes_[words[place]];
    const Node& other = nodes_[words[1 - place]];
    if (words.size() == 2 && counts_characters(count) && words_in(count)[2] > other.farthest) {
      return {.classes = other.free.classes, .length = std::min(other.free.length, words_in(count)[2] - other.farthest)};
    }
  }
  return {};
}

ExprId ExprPool::forget_counts(ExprId id, std::uint32_t length) {
  constexpr std::int32_t kDepth = 16;  // counts further inside are remembered
  return forget_counts(id, length, kDepth);
}

ExprId ExprPool::forget_counts(ExprId id, std::uint32_t length, std::int32_t depth) {
  const Kind kind = nodes_[id].kind;
  if (depth == 0 || (kind != Kind::repeat && kind != Kind::concat && kind != Kind::either && kind != Kind::both)) {
    return id;
  }
  const std::vector<std::uint32_t> words(words_in(nodes_[id]).begin(), words_in(nodes_[id]).end());
  switch (kind) {
    case Kind::repeat:
      return words[2] > length ? repeat(words[0], words[1], kUnbounded) : id;
    case Kind::concat: {
      const ExprId first = forget_counts(words[0], length, depth - 1);
      const ExprId rest = forget_counts(words[1], length, depth - 1);
      return first == words[0] && rest == words[1] ? id : concat(first, rest);
    }
    case Kind::both:
      return forget_length(id, length);
    default:
      break;
  }
  std::vector<ExprId> parts;
  for (const std::uint32_t part : words) {
    parts.push_back(forget_counts(part, length, depth - 1));
  }
  return std::ranges::equal(parts, words) ? id : either(parts);
}

/// An intersection with a count of characters: what else must fit may not need more of them than the count leaves.
ExprId ExprPool::forget_length(ExprId both_id, std::uint32_t length) {
  const auto words = words_in(nodes_[both_id]);
  if (words.size() != 2) {
    return both_id;
  }
  for (const std::size_t place : {0U, 1U}) {
    const Node& count = nodes_[words[place]];
    const ExprId other = words[1 - place];
    if (!counts_characters(count)) {
      continue;
    }
    const std::uint32_t least = words_in(count)[1];
    const std::uint32_t most = words_in(count)[2];
    const bool is_far = most != kUnbounded && most > length && most - length >= nodes_[other].farthest;
    return is_far ? both(repeat(kAny, least, kUnbounded), other) : both_id;
  }
  return both_id;
}

/// Alternatives that differ only in how often the same comes first: a{2,5}x | a{0,3}x is a{0,5}x. Derivatives of nested counts are full
/// of them.
void ExprPool::merge_counts(std::vector<ExprId>& parts) {
  struct Counted {
    ExprId body = kEmpty;
    ExprId rest = kEpsilon;
    std::uint32_t least = 0;
    std::uint32_t most = 0;
  };
  std::vector<Counted> counted;
  std::vector<ExprId> others;
  for (const ExprId part : parts) {
    const bool is_concat = nodes_[part].kind == Kind::concat;
    const ExprId head = is_concat ? words_in(nodes_[part])[0] : part;
    if (nodes_[head].kind == Kind::repeat) {
      const auto words = words_in(nodes_[head]);
      counted.push_back({.body = words[0], .rest = is_concat ? words_in(nodes_[part])[1] : kEpsilon, .least = words[1], .most = words[2]});
    } else {
      others.push_back(part);
    }
  }
  std::ranges::sort(counted, {}, [](const Counted& c) { return std::tuple(c.body, c.rest, c.least); });
  std::size_t last = 0;
  for (std::size_t i = 1; i < counted.size(); ++i) {
    Counted& into = counted[last];
    const bool is_next = into.most == kUnbounded || counted[i].least <= into.most + 1;
    if (into.body == counted[i].body && into.rest == counted[i].rest && is_next) {
      into.most = std::max(into.most, counted[i].most);
    } else {
      counted[++last] = counted[i];
    }
  }
  if (last + 1 >= counted.size()) {
    return;
  }
  counted.resize(last + 1);
  for (const Counted& c : counted) {
    others.push_back(concat(repeat(c.body, c.least, c.most), c.rest));
  }
  std::ranges::sort(others);
  others.erase(std::unique(others.begin(), others.end()), others.end());
  parts = std::move(others);
}

}  // namespace deepinfer::grammar
