// What lexer states do with whole classes of characters: bounds that masks are built by.
#include <algorithm>
#include <bit>

#include "grammar/lexer.h"

namespace deepinfer::grammar {

namespace {

/// Texts whose first character leads somewhere where the rest is free.
FreeText free_behind_first(ExprPool& pool, ExprId expr) {
  const auto list = pool.arrows(expr);
  std::vector<Arrow> arrows(list.begin(), list.end());
  std::ranges::stable_sort(arrows, {}, &Arrow::next);
  FreeText out{.classes = 0, .length = 0};
  for (auto first = arrows.begin(); first != arrows.end();) {
    const auto last = std::find_if(first, arrows.end(), [first](const Arrow& arrow) { return arrow.next != first->next; });
    CodeSet leading;
    for (; first != last && first->low <= kMaxCodePoint; ++first) {
      leading.push_back({first->low, std::min(first->high, kMaxCodePoint)});
    }
    const FreeText rest = pool.free_text(std::prev(last)->next);
    const CharClasses classes = rest.classes == 0 ? 0 : rest.classes & classes_within(leading);
    if (std::popcount(classes) > std::popcount(out.classes)) {
      out = {.classes = classes, .length = rest.length == kUnbounded ? kUnbounded : rest.length + 1};
    }
    first = last;
  }
  return out;
}

/// Where most characters lead.
ExprId widest_next(ExprPool& pool, ExprId expr) {
  ExprId out = ExprPool::kEmpty;
  char32_t widest = 0;
  for (const Arrow& arrow : pool.arrows(expr)) {
    const char32_t width = arrow.high - arrow.low + 1;
    out = width > widest ? arrow.next : out;
    widest = std::max(widest, width);
  }
  return out;
}

/// The classes all of whose characters lead from one to the other.
CharClasses classes_between(ExprPool& pool, ExprId from, ExprId to) {
  CodeSet leading;
  for (const Arrow& arrow : pool.arrows(from)) {
    if (arrow.next == to && arrow.low <= kMaxCodePoint) {
      leading.push_back({arrow.low, std::min(arrow.high, kMaxCodePoint)});
    }
  }
  return leading.empty() ? 0 : classes_within(leading);
}

}  // namespace

const Lexer::Reach& Lexer::compute_reach(LexId state) {
  const Key key = states_[state].key;
  Reach out;
  if (key.mode == Mode::text || key.mode == Mode::body) {
    constexpr int kFewClasses = 12;  // numbers and the like: nothing to win
    out.free = pool_->free_text(key.expr);
    out.other = pool_->mentioned_classes(key.expr);
    out.gate = pool_->gate(key.expr);
    if (out.free.classes == 0 && std::popcount(out.other) > kFewClasses) {
      out.free = free_behind_first(*pool_, key.expr);
    }
    if (key.mode == Mode::body) {
      out.free.classes &= classes_of_json_strings();
      out.other |= classes_of_json_marks();
      out.gate.classes |= classes_of_json_marks();
    }
    out.other &= ~out.free.classes;
  }
  states_[state].has_reach = true;
  states_[state].reach = out;
  return states_[state].reach;
}

Lexer::Loop Lexer::loop(LexId state) {
  const Key key = states_[state].key;
  if ((key.mode != Mode::text && key.mode != Mode::body) || pool_->has_multiple(key.expr)) {
    return {};
  }
  const ExprId next = widest_next(*pool_, key.expr);
  CharClasses classes = classes_between(*pool_, key.expr, next) & classes_between(*pool_, next, next);
  classes &= key.mode == Mode::body ? classes_of_json_strings() : ~kNoChar;
  return {.classes = classes, .at = classes == 0 ? kDead : at_boundary(next, key.in_json)};
}

}  // namespace deepinfer::grammar
