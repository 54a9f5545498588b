// Derivatives: all transitions of an expression at once, and the emptiness search over them.
#include <algorithm>

#include "base/check.h"
#include "grammar/budget.h"
#include "grammar/expr.h"

namespace deepinfer::grammar {

namespace {

/// Expressions one emptiness search may visit.
constexpr std::size_t kMaxSearch = 200'000;
/// Of these, before it looks at what is left of the budget.
constexpr std::size_t kBetweenLooks = 256;
constexpr char32_t kNoCodePoint = 0xFFFFFFFF;

using namespace std::string_view_literals;

}  // namespace

ExprPool::Arrows ExprPool::copy_arrows(ExprId id) {
  const auto span = arrows(id);
  return {span.begin(), span.end()};
}

std::span<const Arrow> ExprPool::arrows(ExprId id) {
  if (!nodes_[id].has_arrows) {
    Arrows computed = compute_arrows(id);
    Node& node = nodes_[id];
    node.has_arrows = true;
    node.arrows = static_cast<std::uint32_t>(arrows_.size());
    for (const Arrow& arrow : computed) {
      if (arrow.next == kEmpty) {
        continue;
      }
      if (arrows_.size() > node.arrows && arrows_.back().next == arrow.next && arrows_.back().high + 1 == arrow.low) {
        arrows_.back().high = arrow.high;
      } else {
        arrows_.push_back(arrow);
      }
    }
    node.num_arrows = static_cast<std::uint32_t>(arrows_.size()) - node.arrows;
  }
  return {arrows_.data() + nodes_[id].arrows, nodes_[id].num_arrows};
}

/// Splits both lists at every boundary; `combine` gets kEmpty where a list has no arrow.
template <class Combine>
ExprPool::Arrows ExprPool::overlay(const Arrows& a, const Arrows& b, Combine combine) {
  Arrows out;
  std::size_t i = 0;
  std::size_t j = 0;
  char32_t at = 0;
  while (i < a.size() || j < b.size()) {
    const char32_t a_low = i < a.size() ? std::max(a[i].low, at) : kNoCodePoint;
    const char32_t b_low = j < b.size() ? std::max(b[j].low, at) : kNoCodePoint;
    const char32_t low = std::min(a_low, b_low);
    char32_t high = kNoCodePoint;
    if (i < a.size()) {
      high = std::min<char32_t>(high, a_low == low ? a[i].high : a_low - 1);
    }
    if (j < b.size()) {
      high = std::min<char32_t>(high, b_low == low ? b[j].high : b_low - 1);
    }
    const ExprId next = combine(a_low == low ? a[i].next : kEmpty, b_low == low ? b[j].next : kEmpty);
    out.push_back({low, high, next});
    at = high + 1;
    i += i < a.size() && a[i].high < at ? 1 : 0;
    j += j < b.size() && b[j].high < at ? 1 : 0;
  }
  return out;
}

ExprPool::Arrows ExprPool::concat_arrows(const Node& node) {
  const ExprId first = data_[node.data];
  const ExprId second = data_[node.data + 1];
  Arrows out = copy_arrows(first);
  for (Arrow& arrow : out) {
    arrow.next = concat(arrow.next, second);
  }
  if (nodes_[first].nullable) {
    out = overlay(out, copy_arrows(second), [this](ExprId a, ExprId b) { return either(a, b); });
  }
  return out;
}

/// All parts at once: between two neighbouring boundaries every part has one next expression or none.
ExprPool::Arrows ExprPool::list_arrows(Kind kind, const std::vector<ExprId>& parts) {
  struct Cursor {
    std::uint32_t at = 0;  // in arrows_, which grows but does not move what it has
    std::uint32_t end = 0;
  };
  std::vector<Cursor> cursors;
  std::vector<char32_t> bounds;
  for (const ExprId part : parts) {
    for (const Arrow& arrow : arrows(part)) {
      bounds.push_back(arrow.low);
      bounds.push_back(arrow.high + 1);
    }
    cursors.push_back({nodes_[part].arrows, nodes_[part].arrows + nodes_[part].num_arrows});
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  Arrows out;
  std::vector<ExprId> nexts;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    nexts.clear();
    for (Cursor& cursor : cursors) {
      while (cursor.at < cursor.end && arrows_[cursor.at].high < bounds[i]) {
        ++cursor.at;
      }
      if (cursor.at < cursor.end && arrows_[cursor.at].low <= bounds[i]) {
        nexts.push_back(arrows_[cursor.at].next);
      }
    }
    const bool is_whole = kind == Kind::either || nexts.size() == parts.size();
    if (!nexts.empty() && is_whole) {
      out.push_back({bounds[i], bounds[i + 1] - 1, kind == Kind::either ? either(nexts) : both(nexts)});
    }
  }
  return out;
}

ExprPool::Arrows ExprPool::multiple_arrows(const Node& node) {
  Arrows out;
  for (const char32_t c : U".0123456789"sv) {
    if (const ExprId next = multiple_after(node, c); next != kEmpty) {
      out.push_back({c, c, next});
    }
  }
  return out;
}

ExprId ExprPool::multiple_after(const Node& node, char32_t c) {
  const std::uint32_t divisor = data_[node.data];
  const std::uint64_t remainder = data_[node.data + 1] | static_cast<std::uint64_t>(data_[node.data + 2]) << 32;
  const std::uint32_t fraction = data_[node.data + 3];
  const auto [modulus, scale] = divisors_[divisor];
  const bool is_past_scale = fraction > scale;
  if (c == U'.') {
    return fraction == 0 ? multiple_state(divisor, remainder, 1) : kEmpty;
  }
  if (c < U'0' || c > (is_past_scale ? U'0' : U'9')) {
    return kEmpty;
  }
  const auto next = static_cast<std::uint64_t>((static_cast<Wide>(remainder) * 10 + (c - U'0')) % modulus);
  const std::uint32_t next_fraction = fraction == 0 ? 0 : std::min(fraction + 1, scale + 2);
  return multiple_state(divisor, is_past_scale ? remainder : next, next_fraction);
}

ExprId ExprPool::leap_state(std::uint32_t stage, std::uint32_t minutes) {
  const std::uint32_t words[] = {stage, minutes};
  return intern(Kind::leap, words);
}

/// Stages 0…7 read "hh:mm:60" into the minutes of the day; 8 is behind it, 9 behind a point, 10 inside the fraction.
ExprPool::Arrows ExprPool::leap_arrows(std::uint32_t stage, std::uint32_t minutes) {
  constexpr std::uint32_t kDay = 1440;
  constexpr std::uint32_t kLastMinute = kDay - 1;
  Arrows out;
  const auto digits = [&](std::uint32_t most, std::uint32_t weight) {
    for (std::uint32_t digit = 0; digit <= most; ++digit) {
      out.push_back({U'0' + digit, U'0' + digit, leap_state(stage + 1, minutes + digit * weight)});
    }
  };
  const auto one = [&](char32_t c) { out.push_back({c, c, leap_state(stage + 1, minutes)}); };
  const auto offset = [this](std::uint32_t value) {
    const std::u32string text{U'0' + value / 600, U'0' + value / 60 % 10, U':', U'0' + value % 60 / 10, U'0' + value % 10};
    return literal(text);
  };
  switch (stage) {
    case 0:
      digits(2, 600);
      break;
    case 1:
      digits(minutes == 1200 ? 3 : 9, 60);
      break;
    case 3:
      digits(5, 10);
      break;
    case 4:
      digits(9, 1);
      break;
    case 6:
      one(U'6');
      break;
    case 7:
      one(U'0');
      break;
    case 9:
      out.push_back({U'0', U'9', leap_state(10, minutes)});
      break;
    case 8:
    case 10: {
      const std::uint32_t ahead = (minutes + 1) % kDay;  // local time is that much ahead of UTC, or the rest of a day behind
      out.push_back({U'+', U'+', offset(ahead)});
      out.push_back({U'-', U'-', offset((kDay - ahead) % kDay)});
      out.push_back(stage == 8 ? Arrow{U'.', U'.', leap_state(9, minutes)} : Arrow{U'0', U'9', leap_state(10, minutes)});
      if (minutes == kLastMinute) {
        out.push_back({U'Z', U'Z', kEpsilon});
        out.push_back({U'z', U'z', kEpsilon});
      }
      break;
    }
    default:
      one(U':');
  }
  return out;
}

ExprPool::Arrows ExprPool::compute_arrows(ExprId id) {
  const Node node = nodes_[id];  // by value: the pool grows below
  const std::vector<std::uint32_t> words(words_in(node).begin(), words_in(node).end());
  Arrows out;
  switch (node.kind) {
    case Kind::empty:
    case Kind::epsilon:
      break;
    case Kind::one_of:
      for (std::size_t i = 0; i < words.size(); i += 2) {
        out.push_back({words[i], words[i + 1], kEpsilon});
      }
      break;
    case Kind::concat:
      return concat_arrows(node);
    case Kind::either:
    case Kind::both:
      return list_arrows(node.kind, words);
    case Kind::negate: {
      Arrows everything;
      for (const Arrow& arrow : copy_arrows(kAny)) {
        everything.push_back({arrow.low, arrow.high, kAnyText});
      }
      out = overlay(everything, copy_arrows(words[0]), [this](ExprId any, ExprId a) { return any == kEmpty ? kEmpty : negate(a); });
      break;
    }
    case Kind::repeat: {
      out = copy_arrows(words[0]);
      const std::uint32_t least = words[1] == 0 ? 0 : words[1] - 1;
      const std::uint32_t most = words[2] == kUnbounded ? kUnbounded : words[2] - 1;
      const ExprId rest = repeat(words[0], least, most);
      for (Arrow& arrow : out) {
        arrow.next = concat(arrow.next, rest);
      }
      break;
    }
    case Kind::words: {
      const auto children = tries_[words[0]].children;
      for (const auto& [c, child] : children) {
        out.push_back({c, c, trie_expr(child)});
      }
      break;
    }
    case Kind::multiple:
      return multiple_arrows(node);
    case Kind::leap:
      return leap_arrows(words[0], words[1]);
  }
  return out;
}

/// Products of remainders have a state for every number: of those only the wanted arrow is made.
ExprId ExprPool::after(ExprId id, char32_t code_point) {
  const Node node = nodes_[id];  // by value: the pool grows below
  if (!node.has_arrows && node.kind == Kind::multiple) {
    return multiple_after(node, code_point);
  }
  if (!node.has_arrows && node.has_multiple && node.kind == Kind::both) {
    std::vector<ExprId> parts(words_in(node).begin(), words_in(node).end());
    for (ExprId& part : parts) {
      part = after(part, code_point);
    }
    return std::ranges::count(parts, kEmpty) > 0 ? kEmpty : both(parts);
  }
  const auto list = arrows(id);
  const auto later = std::upper_bound(list.begin(), list.end(), code_point, [](char32_t c, const Arrow& a) { return c < a.low; });
  return later != list.begin() && code_point <= std::prev(later)->high ? std::prev(later)->next : kEmpty;
}

ExprId ExprPool::after_all(ExprId id, char32_t low, char32_t high) {
  const auto list = arrows(id);
  const auto later = std::upper_bound(list.begin(), list.end(), low, [](char32_t c, const Arrow& a) { return c < a.low; });
  return later != list.begin() && high <= std::prev(later)->high ? std::prev(later)->next : kEmpty;
}

/// Some text of digits finishes `id`, shown without a search: more digits always reach a multiple, and whatever else must fit takes
/// them all. `multiple`: the one that was met; two of them could exclude each other.
bool ExprPool::completes_multiple(ExprId id, ExprId& multiple) {
  const Node node = nodes_[id];
  if (node.kind == Kind::multiple && node.positive) {
    const bool is_only = multiple == kEmpty || multiple == id;
    multiple = id;
    return is_only;
  }
  if (node.kind == Kind::concat && nodes_[data_[node.data + 1]].nullable) {
    return completes_multiple(data_[node.data], multiple);
  }
  if (node.kind == Kind::both) {
    for (std::uint32_t i = 0; i < node.size; ++i) {
      if (!completes_multiple(data_[node.data + i], multiple)) {
        return false;
      }
    }
    return true;
  }
  return takes_any_digits(id);
}

/// From `id` on every text of digits is in the language: whatever number is still being spelled can be finished.
bool ExprPool::takes_any_digits(ExprId id) { return nodes_[id].nullable && after_all(id, U'0', U'9') == id; }

bool ExprPool::live(ExprId id) {
  if (nodes_[id].life != Life::unknown) {
    return nodes_[id].life == Life::live;
  }
  ExprId only_multiple = kEmpty;
  if (nodes_[id].positive || nodes_[id].nullable || (nodes_[id].has_multiple && completes_multiple(id, only_multiple))) {
    nodes_[id].life = Life::live;
    return true;
  }
  std::vector<ExprId> order{id};
  std::vector<std::size_t> parent{0};
  ++search_;
  seen_.resize(nodes_.size(), 0);
  seen_[id] = search_;
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Arrows next = copy_arrows(order[at]);
    seen_.resize(nodes_.size(), 0);
    for (const Arrow& arrow : next) {
      if (arrow.low > kMaxCodePoint) {
        continue;  // anchors are no text
      }
      const Node node = nodes_[arrow.next];  // by value: the pool may grow below
      ExprId multiple = kEmpty;
      if (node.nullable || node.positive || node.life == Life::live || completes_multiple(arrow.next, multiple)) {
        for (std::size_t up = at;; up = parent[up]) {
          nodes_[order[up]].life = Life::live;
          if (up == 0) {
            return true;
          }
        }
      }
      if (node.life == Life::dead || seen_[arrow.next] == search_) {
        continue;
      }
      seen_[arrow.next] = search_;
      order.push_back(arrow.next);
      parent.push_back(at);
    }
    const bool is_late = at % kBetweenLooks == kBetweenLooks - 1 && budget_ != nullptr && budget_->spent(bytes());
    if (order.size() > kMaxSearch || exhausted_ || is_late) {
      exhausted_ = true;
      return false;
    }
  }
  for (const ExprId dead : order) {
    nodes_[dead].life = Life::dead;
  }
  return false;
}

bool ExprPool::live_within(ExprId id, char32_t low, char32_t high) {
  for (std::size_t i = 0; i < arrows(id).size(); ++i) {  // live() may grow the pool: no reference is held
    const Arrow arrow = arrows(id)[i];
    if (arrow.low > high) {
      return false;
    }
    if (arrow.high >= low && live(arrow.next)) {
      return true;
    }
  }
  return false;
}

}  // namespace deepinfer::grammar
