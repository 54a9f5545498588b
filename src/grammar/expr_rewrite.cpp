// Expressions made of others part by part: right quotients, and the alphabet made smaller. What anchors in patterns need.
#include "grammar/expr.h"

namespace deepinfer::grammar {

ExprId ExprPool::before(ExprId id, char32_t c) {
  const Node node = nodes_[id];
  const std::vector<std::uint32_t> words(words_in(node).begin(), words_in(node).end());
  switch (node.kind) {
    case Kind::empty:
    case Kind::epsilon:
      return kEmpty;
    case Kind::one_of:
      return after(id, c);
    case Kind::concat: {
      std::vector<ExprId> spine{words[0]};
      ExprId last = words[1];
      while (nodes_[last].kind == Kind::concat) {
        const auto pair = words_in(nodes_[last]);
        spine.push_back(pair[0]);
        last = pair[1];
      }
      spine.push_back(last);
      std::vector<ExprId> options;
      for (std::size_t i = spine.size(); i-- > 0;) {
        const ExprId tail = before(spine[i], c);
        if (tail != kEmpty) {
          options.push_back(concat(concat(std::span(spine).first(i)), tail));
        }
        if (!nodes_[spine[i]].nullable) {
          break;
        }
      }
      return either(options);
    }
    case Kind::either:
    case Kind::both: {
      std::vector<ExprId> parts;
      for (const ExprId part : words) {
        parts.push_back(before(part, c));
      }
      return node.kind == Kind::either ? either(parts) : both(parts);
    }
    case Kind::negate:
      return negate(before(words[0], c));
    case Kind::repeat: {
      const ExprId tail = before(words[0], c);
      const std::uint32_t most = words[2] == kUnbounded ? kUnbounded : words[2] - 1;
      return tail == kEmpty ? kEmpty : concat(repeat(words[0], words[1] == 0 ? 0 : words[1] - 1, most), tail);
    }
    case Kind::words:
    case Kind::multiple:
    case Kind::leap:
      return kEmpty;  // neither holds anchor symbols, the only use of this function
  }
  return kEmpty;
}

ExprId ExprPool::restrict_to(ExprId id, const CodeSet& alphabet) {
  if (id == kAny || id == kAnyText) {
    return id;
  }
  const Node node = nodes_[id];
  const std::vector<std::uint32_t> words(words_in(node).begin(), words_in(node).end());
  switch (node.kind) {
    case Kind::one_of: {
      CodeSet set;
      for (std::size_t i = 0; i < words.size(); i += 2) {
        set.push_back({words[i], words[i + 1]});
      }
      return one_of(intersection(set, alphabet));
    }
    case Kind::concat: {
      std::vector<ExprId> spine{restrict_to(words[0], alphabet)};
      ExprId last = words[1];
      while (nodes_[last].kind == Kind::concat) {
        const auto pair = words_in(nodes_[last]);
        const ExprId head = pair[0];
        last = pair[1];
        spine.push_back(restrict_to(head, alphabet));
      }
      spine.push_back(restrict_to(last, alphabet));
      return concat(spine);
    }
    case Kind::either:
    case Kind::both: {
      std::vector<ExprId> parts;
      for (const ExprId part : words) {
        parts.push_back(restrict_to(part, alphabet));
      }
      return node.kind == Kind::either ? either(parts) : both(parts);
    }
    case Kind::negate:
      return negate(restrict_to(words[0], alphabet));
    case Kind::repeat:
      return repeat(restrict_to(words[0], alphabet), words[1], words[2]);
    default:
      return id;
  }
}

}  // namespace deepinfer::grammar
