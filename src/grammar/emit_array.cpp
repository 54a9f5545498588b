// Arrays: items by position, then a loop; the counter of the rule counts items, nodes tell apart how often counted kinds
// of items (contains) were seen.
#include <algorithm>

#include "grammar/schema_emit.h"

namespace deepinfer::grammar {

namespace {

/// Counts of `contains` that nodes tell apart, and nodes for them.
constexpr std::uint32_t kMaxContains = 200;
constexpr std::size_t kMaxHubs = 2000;
constexpr std::size_t kMaxUniqueValues = 64;  // one bit each

}  // namespace

ArrayEmitter::ArrayEmitter(SchemaEmitter& out, const SchemaEmitter::Task& task, ArrayClause clause)
    : out_(out), task_(task), clause_(std::move(clause)) {
  const bool is_closed =
      out.options_.additional == Additional::closed && clause_.has_keywords && !clause_.evaluated_all && clause_.evaluated_prefix > 0;
  if (is_closed) {
    clause_.rest = kNoValue;
  }
  if (clause_.rest == kNoValue) {
    clause_.most = std::min(clause_.most, static_cast<std::uint32_t>(clause_.prefix.size()));
  }
}

bool ArrayEmitter::are_met(const Counts& counts) const {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < clause_.counts[i].least) {
      return false;
    }
  }
  return true;
}

/// The ways an item at `index` can be written, with what they do to the counts.
std::vector<ArrayEmitter::ItemCase> ArrayEmitter::cases(std::uint32_t index, const Counts& counts) {
  Formulas& formulas = out_.expander_.formulas();
  std::vector<ItemCase> out{{.value = index < clause_.prefix.size() ? clause_.prefix[index] : clause_.rest, .counts = counts}};
  for (std::size_t i = 0; i < clause_.counts.size(); ++i) {
    const ItemCount& wanted = clause_.counts[i];
    if (index < wanted.from) {
      continue;
    }
    const bool is_bounded = wanted.most != kUnbounded;
    std::vector<ItemCase> next;
    for (const ItemCase& one : out) {
      ItemCase in{.value = formulas.both(one.value, wanted.value), .counts = one.counts};
      ItemCase outside{.value = is_bounded ? formulas.both(one.value, formulas.negate(wanted.value)) : one.value, .counts = one.counts};
      const bool is_full = is_bounded && in.counts[i] >= wanted.most;
      in.counts[i] = std::min(in.counts[i] + 1, is_bounded ? wanted.most : wanted.least);
      if (!is_full && in.value != kNoValue && (is_bounded || one.counts[i] < wanted.least)) {
        next.push_back(std::move(in));
      }
      if (outside.value != kNoValue) {
        next.push_back(std::move(outside));
      }
    }
    out = std::move(next);
  }
  return out;
}

NodeId ArrayEmitter::behind_prefix(std::uint32_t index, const Counts& counts) {
  const auto [place, is_new] = prefix_behind_.try_emplace({index, counts}, 0);
  if (is_new) {
    place->second = out_.builder_.add_node(task_.rule);
    open_prefix_.emplace_back(index, counts);
  }
  return place->second;
}

NodeId ArrayEmitter::hub(const Counts& counts) {
  const auto [place, is_new] = hubs_.try_emplace(counts, 0);
  if (is_new) {
    place->second = out_.builder_.add_node(task_.rule);
    open_hubs_.push_back(counts);
  }
  return place->second;
}

/// Item `index` and what may stand behind it. Items behind the prefix are left to the loop.
void ArrayEmitter::emit_prefix(std::uint32_t index, const Counts& counts, NodeId before) {
  if (index >= clause_.most) {
    return;
  }
  if (index < clause_.prefix.size()) {
    for (const ItemCase& one : cases(index, counts)) {
      out_.builder_.call(before, behind_prefix(index + 1, one.counts), out_.member_rule(one.value, task_));
    }
    return;
  }
  const NodeId counting = out_.builder_.add_node(task_.rule);
  out_.builder_.move(before, counting, CountOp::set, index);
  for (const ItemCase& one : cases(index, counts)) {
    out_.builder_.call(counting, hub(one.counts), out_.member_rule(one.value, task_));
  }
}

/// Behind an item of the loop: count it, then close or go on.
void ArrayEmitter::emit_rest(const Counts& counts, NodeId hub_node) {
  NetworkBuilder& builder = out_.builder_;
  const bool is_bounded = clause_.most != kUnbounded;
  const bool has_counter = is_bounded || clause_.least > clause_.prefix.size() + 1;
  NodeId counted = hub_node;
  if (has_counter) {
    counted = builder.add_node(task_.rule);
    builder.move(hub_node, counted, is_bounded ? CountOp::below : CountOp::saturate, is_bounded ? clause_.most : clause_.least);
  } else {  // every count is as good as any other: keep states the same
    counted = builder.add_node(task_.rule);
    builder.move(hub_node, counted, CountOp::set, 0);
  }
  if (are_met(counts)) {
    NodeId at = counted;
    if (has_counter && clause_.least > 0) {
      at = builder.add_node(task_.rule);
      builder.move(counted, at, CountOp::at_least, clause_.least);
    }
    out_.close(at, end_, ']', task_);
  }
  NodeId more = counted;
  if (is_bounded) {
    more = builder.add_node(task_.rule);
    builder.move(counted, more, CountOp::room, clause_.most);
  }
  const NodeId before = out_.comma(more, task_);
  for (const ItemCase& one : cases(static_cast<std::uint32_t>(clause_.prefix.size()), counts)) {
    builder.call(before, hub(one.counts), out_.member_rule(one.value, task_));
  }
}

/// Items from a finite set, each at most once: a bit of the counter per value, a node per length.
bool ArrayEmitter::emit_unique(NodeId from) {
  const Shape items = out_.expander_.shape(clause_.rest);
  std::vector<ExprId> values;
  for (const auto& [is_there, spelling] : {std::pair{items.null, U"null"}, {items.yes, U"true"}, {items.no, U"false"}}) {
    if (is_there) {
      values.push_back(out_.pool_.literal(spelling));
    }
  }
  const bool is_finite = clause_.prefix.empty() && clause_.counts.empty() && items.arrays.empty() && items.objects.empty() &&
                         items.number.plain == ExprPool::kEmpty && (items.string == ExprPool::kEmpty || out_.pool_.is_words(items.string));
  const std::vector<std::u32string> words = out_.pool_.words_of(items.string);
  if (!is_finite || values.size() + words.size() > kMaxUniqueValues) {
    return false;
  }
  NetworkBuilder& builder = out_.builder_;
  const std::size_t num_plain = values.size();
  for (const std::u32string& word : words) {
    values.push_back(out_.pool_.words({&word, 1}));
  }
  const auto longest = static_cast<std::uint32_t>(std::min<std::size_t>(clause_.most, values.size()));
  NodeId before = from;
  for (std::uint32_t length = 1; length <= longest; ++length) {
    const NodeId behind = builder.add_node(task_.rule);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const NodeId taken = builder.add_node(task_.rule);
      builder.move(before, taken, CountOp::take_bit, i);
      builder.lexeme(taken, behind, {.expr = values[i], .encoding = i < num_plain ? Encoding::text : Encoding::json_string});
    }
    if (length >= clause_.least) {
      out_.close(behind, end_, ']', task_);
    }
    before = length < longest ? out_.comma(behind, task_) : before;
  }
  return true;
}

/// Positions that matter to counted items become places of the prefix: nodes can see that time runs out, counters cannot.
bool ArrayEmitter::spell_out_counts() {
  std::uint32_t places = 0;
  for (const ItemCount& count : clause_.counts) {
    places = std::max({places, count.from, clause_.most == kUnbounded ? 0 : clause_.most});
  }
  if (places > kMaxContains) {
    return false;
  }
  if (places > clause_.prefix.size()) {
    clause_.prefix.resize(places, clause_.rest);
  }
  return true;
}

void ArrayEmitter::emit(NodeId from, NodeId to) {
  end_ = to;
  if (!spell_out_counts()) {
    return out_.refuse_with(
        {.code = ErrorCode::unsupported, .message = "unsupported contains with more than 200 items", .keyword = "contains"});
  }
  for (const ItemCount& count : clause_.counts) {
    if ((count.most == kUnbounded ? count.least : count.most) > kMaxContains) {
      return out_.refuse_with(
          {.code = ErrorCode::unsupported, .message = "unsupported count of contains above 200", .keyword = "contains"});
    }
  }
  const NodeId opened = out_.open(from, '[', task_);
  const Counts none(clause_.counts.size(), 0);
  if (clause_.least == 0 && are_met(none)) {
    out_.close_empty(opened, to, ']', task_);
  }
  const NodeId before = out_.first(opened, task_);
  if (clause_.is_unique && clause_.most > 1) {
    if (!emit_unique(before)) {
      out_.refuse_with({.code = ErrorCode::unsupported,
                        .message = "unsupported keyword \"uniqueItems\" for items that are not a finite set of at most 64 scalars",
                        .keyword = "uniqueItems"});
    }
    return;
  }
  emit_prefix(0, none, before);
  while (!open_prefix_.empty() || !open_hubs_.empty()) {
    if (hubs_.size() + prefix_behind_.size() > kMaxHubs) {
      return out_.refuse_with({.code = ErrorCode::unsupported, .message = "unsupported combination of contains", .keyword = "contains"});
    }
    if (!open_prefix_.empty()) {
      const auto [index, counts] = open_prefix_.back();
      open_prefix_.pop_back();
      const NodeId behind = prefix_behind_.at({index, counts});
      if (index >= clause_.least && are_met(counts)) {
        out_.close(behind, to, ']', task_);
      }
      if (index < clause_.most) {
        emit_prefix(index, counts, out_.comma(behind, task_));
      }
      continue;
    }
    const Counts counts = open_hubs_.back();
    open_hubs_.pop_back();
    emit_rest(counts, hubs_.at(counts));
  }
}

}  // namespace deepinfer::grammar
