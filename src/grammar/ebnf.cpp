#include "grammar/ebnf.h"

#include <algorithm>

#include "grammar/ebnf_parser.h"

namespace deepinfer::grammar {

namespace {

/// A chain of rule calls longer than this stays calls: inlining it would nest as deep.
constexpr std::uint32_t kMaxInlineHeight = 64;
constexpr std::uint32_t kNotRegular = 0xFFFFFFFF;

class Compiler {
 public:
  Compiler(ExprPool& pool, NetworkBuilder& builder, const EbnfGrammar& grammar, const Budget& budget)
      : pool_(pool),
        grammar_(grammar),
        budget_(budget),
        builder_(builder),
        heights_(grammar.bodies.size(), 0),
        exprs_(grammar.bodies.size(), ExprPool::kEmpty),
        has_expr_(grammar.bodies.size(), false) {}

  Compiled<RuleId> emit_all() {
    find_heights();
    for (std::size_t rule = 0; rule < grammar_.bodies.size(); ++rule) {
      rules_.push_back(builder_.add_rule());
    }
    for (std::uint32_t rule = 0; rule < grammar_.bodies.size(); ++rule) {
      if (rule != grammar_.root && is_regular(rule)) {
        continue;  // stands as a lexeme wherever it is called
      }
      const NodeId end = builder_.add_node(rules_[rule]);
      builder_.set_final(end);
      emit(grammar_.bodies[rule], builder_.start_of(rules_[rule]), end, rules_[rule]);
      if (const auto error = budget_.spent(pool_.bytes() + builder_.num_edges() * sizeof(Edge))) {
        return refuse(*error);
      }
    }
    if (pool_.exhausted()) {
      if (const auto error = budget_.spent(pool_.bytes())) {
        return refuse(*error);  // a search stopped because of it
      }
      return refuse({.code = ErrorCode::limit, .message = "EBNF: the grammar needs more states than the limit", .limit = "states"});
    }
    return rules_[grammar_.root];
  }

 private:
  bool is_regular(std::uint32_t rule) const { return heights_[rule] <= kMaxInlineHeight; }

  /// Longest chain of calls below each rule; kNotRegular where it is endless or passes a token or a tag.
  void find_heights() {
    std::vector<std::vector<std::uint32_t>> callers(grammar_.bodies.size());
    std::vector<std::uint32_t> open(grammar_.bodies.size(), 0);
    std::vector<bool> is_fixed(grammar_.bodies.size(), false);
    for (std::uint32_t rule = 0; rule < grammar_.bodies.size(); ++rule) {
      std::vector<std::uint32_t> items{grammar_.bodies[rule]};
      for (std::size_t i = 0; i < items.size(); ++i) {
        const EbnfItem& item = grammar_.items[items[i]];
        items.insert(items.end(), item.children.begin(), item.children.end());
        is_fixed[rule] = is_fixed[rule] || item.kind == EbnfKind::token || item.kind == EbnfKind::tag_dispatch;
        if (item.kind == EbnfKind::rule) {
          callers[item.rule].push_back(rule);
          ++open[rule];
        }
      }
    }
    std::vector<std::uint32_t> ready;
    for (std::uint32_t rule = 0; rule < open.size(); ++rule) {
      heights_[rule] = kNotRegular;
      if (open[rule] == 0 && !is_fixed[rule]) {
        heights_[rule] = 0;
        ready.push_back(rule);
      }
    }
    std::vector<std::uint32_t> height(open.size(), 0);
    while (!ready.empty()) {
      const std::uint32_t rule = ready.back();
      ready.pop_back();
      for (const std::uint32_t caller : callers[rule]) {
        height[caller] = std::max(height[caller], heights_[rule] + 1);
        if (--open[caller] == 0 && !is_fixed[caller]) {
          heights_[caller] = height[caller];
          ready.push_back(caller);
        }
      }
    }
  }

  bool is_regular_item(std::uint32_t index) const {
    const EbnfItem& item = grammar_.items[index];
    if (item.kind == EbnfKind::token || item.kind == EbnfKind::tag_dispatch) {
      return false;
    }
    return item.kind == EbnfKind::rule ? is_regular(item.rule)
                                       : std::ranges::all_of(item.children, [this](std::uint32_t i) { return is_regular_item(i); });
  }

  ExprId expr_of(std::uint32_t index) {
    const EbnfItem& item = grammar_.items[index];
    std::vector<ExprId> parts;
    for (const std::uint32_t child : item.children) {
      parts.push_back(expr_of(child));
    }
    switch (item.kind) {
      case EbnfKind::lexeme:
        return item.expr;
      case EbnfKind::sequence:
        return pool_.concat(parts);
      case EbnfKind::alternatives:
        return pool_.either(parts);
      case EbnfKind::repeat:
        return pool_.repeat(parts[0], item.least, item.most);
      case EbnfKind::rule:
        if (!has_expr_[item.rule]) {
          has_expr_[item.rule] = true;
          exprs_[item.rule] = expr_of(grammar_.bodies[item.rule]);
        }
        return exprs_[item.rule];
      default:
        return ExprPool::kEmpty;
    }
  }

  void emit(std::uint32_t index, NodeId from, NodeId to, RuleId rule) {
    const EbnfItem& item = grammar_.items[index];
    if (is_regular_item(index)) {
      builder_.lexeme(from, to, {.expr = expr_of(index)});
      return;
    }
    switch (item.kind) {
      case EbnfKind::sequence:
        emit_sequence(item, from, to, rule);
        break;
      case EbnfKind::alternatives:
        for (const std::uint32_t child : item.children) {
          emit(child, from, to, rule);
        }
        break;
      case EbnfKind::repeat:
        emit_repeat(item, from, to, rule);
        break;
      case EbnfKind::rule:
        builder_.call(from, to, rules_[item.rule]);
        break;
      case EbnfKind::token:
        builder_.token(from, to, item.token);
        break;
      case EbnfKind::tag_dispatch:
        emit_tags(item, from, to, rule);
        break;
      case EbnfKind::lexeme:
        break;
    }
  }

  void emit_sequence(const EbnfItem& item, NodeId from, NodeId to, RuleId rule) {
    NodeId at = from;
    for (std::size_t i = 0; i < item.children.size();) {
      std::vector<ExprId> run;  // neighbouring regular parts make one lexeme
      for (; i < item.children.size() && is_regular_item(item.children[i]); ++i) {
        run.push_back(expr_of(item.children[i]));
      }
      if (!run.empty()) {
        const NodeId next = i == item.children.size() ? to : builder_.add_node(rule);
        builder_.lexeme(at, next, {.expr = pool_.concat(run)});
        at = next;
      }
      if (i < item.children.size()) {
        const NodeId next = ++i == item.children.size() ? to : builder_.add_node(rule);
        emit(item.children[i - 1], at, next, rule);
        at = next;
      }
    }
    if (item.children.empty()) {
      builder_.move(from, to);
    }
  }

  void emit_repeat(const EbnfItem& item, NodeId from, NodeId to, RuleId rule) {
    if (item.most == 0) {
      builder_.move(from, to);
      return;
    }
    if (item.most == 1) {
      emit(item.children[0], from, to, rule);
      if (item.least == 0) {
        builder_.move(from, to);
      }
      return;
    }
    // The body and the loop are rules of their own: a rule instance has one counter.
    const RuleId body = builder_.add_rule();
    const NodeId body_end = builder_.add_node(body);
    builder_.set_final(body_end);
    emit(item.children[0], builder_.start_of(body), body_end, body);
    if (item.least <= 1 && item.most == kUnbounded) {
      const NodeId hub = builder_.add_node(rule);
      const NodeId before = item.least == 0 ? hub : builder_.add_node(rule);
      builder_.move(from, before);
      builder_.call(before, hub, body);
      if (item.least == 1) {
        builder_.call(hub, hub, body);
      }
      builder_.move(hub, to);
      return;
    }
    const RuleId loop = builder_.add_rule();
    const NodeId hub = builder_.add_node(loop);
    const NodeId counted = builder_.add_node(loop);
    const NodeId passed = builder_.add_node(loop);
    const NodeId end = builder_.add_node(loop);
    builder_.set_final(end);
    builder_.move(builder_.start_of(loop), hub);
    builder_.move(hub, counted, item.most == kUnbounded ? CountOp::saturate : CountOp::below,
                  item.most == kUnbounded ? item.least : item.most);
    builder_.call_not_empty(counted, passed, body);
    builder_.move(passed, hub);
    builder_.move(passed, end, CountOp::at_least, item.least);  // not before: a body without a text leaves no way out
    if (item.least == 0 || can_be_empty(item.children[0])) {
      builder_.move(hub, end);
    }
    builder_.call(from, to, loop);
  }

  /// The item may match nothing.
  bool can_be_empty(std::uint32_t index) {
    const EbnfItem& item = grammar_.items[index];
    const auto child_is_empty = [&](std::uint32_t child) { return can_be_empty(child); };
    switch (item.kind) {
      case EbnfKind::lexeme:
        return pool_.nullable(item.expr);
      case EbnfKind::sequence:
        return std::ranges::all_of(item.children, child_is_empty);
      case EbnfKind::alternatives:
        return std::ranges::any_of(item.children, child_is_empty);
      case EbnfKind::repeat:
        return item.least == 0 || child_is_empty(item.children[0]);
      case EbnfKind::rule:
        return empty_rules()[item.rule];
      case EbnfKind::tag_dispatch:
        return true;
      case EbnfKind::token:
        return false;
    }
    return false;
  }

  const std::vector<bool>& empty_rules() {
    if (empty_rules_.empty()) {
      empty_rules_.assign(grammar_.bodies.size(), false);
      for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (std::uint32_t rule = 0; rule < grammar_.bodies.size(); ++rule) {
          if (!empty_rules_[rule] && can_be_empty(grammar_.bodies[rule])) {
            empty_rules_[rule] = true;
            has_changed = true;
          }
        }
      }
    }
    return empty_rules_;
  }

  /// Free text in which the first tag that appears hands over to its rule.
  void emit_tags(const EbnfItem& item, NodeId from, NodeId to, RuleId rule) {
    std::vector<ExprId> tags;
    for (std::size_t i = 0; i < item.children.size(); i += 2) {
      tags.push_back(grammar_.items[item.children[i]].expr);
    }
    tags.push_back(item.expr);
    const ExprId any_tag = pool_.concat(ExprPool::kAnyText, pool_.either(tags));
    const ExprId free = pool_.negate(pool_.concat(any_tag, ExprPool::kAnyText));
    const ExprId none_earlier = pool_.negate(pool_.concat(any_tag, pool_.repeat(ExprPool::kAny, 1, kUnbounded)));
    const NodeId hub = builder_.add_node(rule);
    builder_.move(from, hub);
    builder_.lexeme(hub, to, {.expr = free});
    for (std::size_t i = 0; i < item.children.size(); i += 2) {
      const NodeId tagged = builder_.add_node(rule);
      const ExprId until = pool_.both(none_earlier, pool_.concat(ExprPool::kAnyText, tags[i / 2]));
      builder_.lexeme(hub, tagged, {.expr = until});
      emit(item.children[i + 1], tagged, item.loops ? hub : to, rule);
    }
  }

  ExprPool& pool_;
  const EbnfGrammar& grammar_;
  const Budget& budget_;
  NetworkBuilder& builder_;
  std::vector<std::uint32_t> heights_;
  std::vector<ExprId> exprs_;
  std::vector<bool> has_expr_;
  std::vector<RuleId> rules_;
  std::vector<bool> empty_rules_;
};

}  // namespace

Compiled<RuleId> emit_ebnf(ExprPool& pool, NetworkBuilder& builder, std::string_view text, const Budget& budget) {
  const Compiled<EbnfGrammar> grammar = parse_ebnf(pool, text, budget);
  if (!grammar) {
    return refuse(grammar.error());
  }
  return Compiler(pool, builder, *grammar, budget).emit_all();
}

}  // namespace deepinfer::grammar
