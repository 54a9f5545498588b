// Objects: declared properties in their order, each once, then keys that are no property, with counts and needs kept track
// of by the node (and, for long counts of free keys, by the counter of the rule).
#include <algorithm>

#include "grammar/schema_emit.h"

namespace deepinfer::grammar {

namespace {

/// Key rules of one clause that may overlap: 2^n classes of keys are looked at.
constexpr std::size_t kMaxKeyClasses = 64;
constexpr std::size_t kMaxNeeds = 4;
/// Stages (properties times counts times needs) of one object.
constexpr std::size_t kMaxStages = 20'000;
constexpr std::size_t kMaxUnorderedNames = 64;  // one bit each

}  // namespace

ObjectEmitter::ObjectEmitter(SchemaEmitter& out, const SchemaEmitter::Task& task, ObjectClause clause)
    : out_(out), task_(task), clause_(std::move(clause)) {
  if (out.options_.additional == Additional::closed && clause_.has_keywords && clause_.evaluated != ExprPool::kAnyText) {
    clause_.rules.push_back({.keys = out_.pool_.negate(clause_.evaluated), .value = kNoValue});
  }
}

/// Splits the keys that are no property by the rules and needs they fall under.
void ObjectEmitter::split_keys() {
  std::vector<std::u32string> names;
  for (const Property& property : clause_.properties) {
    names.push_back(to_code_points(property.name));
  }
  Formulas& formulas = out_.expander_.formulas();
  ShapeAlgebra& algebra = out_.expander_.algebra();
  others_ = {{.keys = names.empty() ? ExprPool::kAnyText : out_.pool_.negate(out_.pool_.words(names))}};
  const auto split = [&](const KeyRule& rule, std::uint32_t need) {
    std::vector<KeyClass> next;
    for (const KeyClass& other : others_) {
      const ExprId inside = algebra.strings_both(other.keys, rule.keys);
      const ExprId outside = need != 0 ? other.keys : algebra.strings_both(other.keys, out_.pool_.negate(rule.keys));
      const FormulaId value = formulas.both(other.value, rule.value);
      if (value != kNoValue && out_.pool_.live(inside)) {
        next.push_back({.keys = inside, .value = value, .needs = other.needs | need});
      }
      if (out_.pool_.live(outside)) {
        next.push_back({.keys = outside, .value = other.value, .needs = other.needs});
      }
    }
    others_ = std::move(next);
  };
  for (const KeyRule& rule : clause_.rules) {
    if (rule.value != kAnyValue && others_.size() <= kMaxKeyClasses) {
      split(rule, 0);
    }
  }
  for (std::size_t i = 0; i < clause_.needs.size() && others_.size() <= kMaxKeyClasses; ++i) {
    split(clause_.needs[i], 1U << i);
  }
}

void ObjectEmitter::find_property_cases() {
  Formulas& formulas = out_.expander_.formulas();
  for (const Property& property : clause_.properties) {
    std::vector<PropertyCase> cases{{.value = property.value}};
    for (std::size_t i = 0; i < clause_.needs.size(); ++i) {
      if (!out_.expander_.algebra().has_key(clause_.needs[i].keys, to_code_points(property.name))) {
        continue;
      }
      for (std::size_t j = 0, n = cases.size(); j < n; ++j) {
        cases.push_back({formulas.both(cases[j].value, clause_.needs[i].value), cases[j].needs | 1U << i});
      }
    }
    std::erase_if(cases, [](const PropertyCase& c) { return c.value == kNoValue; });
    cases_.push_back(std::move(cases));
  }
}

bool ObjectEmitter::prepare() {
  const bool is_any_order = out_.options_.order == PropertyOrder::any;
  split_keys();
  find_property_cases();
  all_needs_ = (1U << clause_.needs.size()) - 1;
  std::uint32_t num_required = 0;
  for (const Property& property : clause_.properties) {
    num_required += property.is_required ? 1 : 0;
  }
  const auto num_properties = static_cast<std::uint32_t>(clause_.properties.size());
  if (clause_.most != kUnbounded && others_.empty() && clause_.most >= num_properties) {
    clause_.most = kUnbounded;
  }
  clause_.least = clause_.least <= num_required ? 0 : clause_.least;
  count_cap_ = clause_.most == kUnbounded ? clause_.least : clause_.most;
  count_cap_ = std::min(count_cap_, num_properties + 1);
  const bool is_too_wide = (!clause_.needs.empty() && clause_.most != kUnbounded && !others_.empty()) || others_.size() > kMaxKeyClasses ||
                           clause_.needs.size() > kMaxNeeds ||
                           static_cast<std::size_t>(num_properties) * (count_cap_ + 1) * (all_needs_ + 1) > kMaxStages;
  if (is_too_wide) {
    out_.refuse_with(
        {.code = ErrorCode::unsupported, .message = "unsupported combination of patternProperties, counts and complements in one object"});
    return false;
  }
  if (is_any_order && (num_properties > kMaxUnorderedNames || count_cap_ > 0)) {
    out_.refuse_with({.code = num_properties > kMaxUnorderedNames ? ErrorCode::limit : ErrorCode::unsupported,
                      .message = "order \"any\" takes at most 64 declared names and no property counts",
                      .limit = num_properties > kMaxUnorderedNames ? "names" : ""});
    return false;
  }
  std::vector<std::string> spellings;
  for (const Property& property : clause_.properties) {
    spellings.push_back(out_.key_spelling(property.name, task_));
  }
  trie_ = spellings.empty() ? 0 : out_.builder_.add_trie(spellings);
  return true;
}

bool ObjectEmitter::is_complete(std::uint32_t count, std::uint32_t needs) const {
  return count >= std::min(clause_.least, count_cap_) && needs == all_needs_;
}

/// The last name that may be written next: the next required one, or the last of all.
std::uint32_t ObjectEmitter::last_name(std::uint32_t position) const {
  const auto num = static_cast<std::uint32_t>(clause_.properties.size());
  if (out_.options_.order == PropertyOrder::any) {
    return num - 1;
  }
  while (position + 1 < num && !clause_.properties[position].is_required) {
    ++position;
  }
  return position;
}

/// No required name is left.
bool ObjectEmitter::is_closed(const Stage& stage) const {
  if (out_.options_.order == PropertyOrder::any) {
    return true;  // the counter's bits say so
  }
  return std::none_of(clause_.properties.begin() + stage.position, clause_.properties.end(),
                      [](const Property& p) { return p.is_required; });
}

NodeId ObjectEmitter::first_key_node(std::uint32_t count, std::uint32_t needs) {
  const auto [place, is_new] = key_nodes_.try_emplace({count, needs}, 0);
  if (is_new) {
    place->second = out_.builder_.add_nodes(task_.rule, static_cast<std::uint32_t>(clause_.properties.size()));
    emit_members(count, needs);
  }
  return place->second;
}

/// From behind each property's key to behind its value.
void ObjectEmitter::emit_members(std::uint32_t count, std::uint32_t needs) {
  const NodeId first = key_nodes_.at({count, needs});
  const bool is_any_order = out_.options_.order == PropertyOrder::any;
  for (std::uint32_t i = 0; i < clause_.properties.size(); ++i) {
    if (cases_[i].empty()) {
      continue;
    }
    NodeId at = first + i;
    if (is_any_order) {
      const NodeId taken = out_.builder_.add_node(task_.rule);
      out_.builder_.move(at, taken, CountOp::take_bit, i);
      at = taken;
    }
    const NodeId value = out_.colon(at, task_);
    for (const PropertyCase& one : cases_[i]) {
      const Stage next{.position = is_any_order ? 0 : i + 1, .count = counted(count), .needs = needs | one.needs};
      out_.builder_.call(value, behind(next), out_.member_rule(one.value, task_));
    }
  }
}

NodeId ObjectEmitter::behind(const Stage& stage) {
  const auto [place, is_new] = behind_.try_emplace(stage, 0);
  if (is_new) {
    place->second = out_.builder_.add_node(task_.rule);
    open_stages_.push_back(stage);
  }
  return place->second;
}

/// What may be written at a stage, from where a key would begin.
void ObjectEmitter::emit_stage(const Stage& stage, NodeId before_key) {
  const bool is_full = clause_.most != kUnbounded && stage.count >= clause_.most;
  if (is_full) {
    return;
  }
  if (stage.position < clause_.properties.size()) {
    const NodeId first = first_key_node(stage.count, stage.needs);
    out_.builder_.keys(before_key, first + stage.position,
                       {.trie = trie_,
                        .low = stage.position,
                        .high = last_name(stage.position),
                        .skips_taken = out_.options_.order == PropertyOrder::any,
                        .is_closed = {}});
  }
  if (is_closed(stage)) {
    emit_others(stage, before_key);
  }
}

void ObjectEmitter::emit_behind(const Stage& stage, NodeId behind_value) {
  const bool is_any_order = out_.options_.order == PropertyOrder::any;
  if (is_closed(stage) && is_complete(stage.count, stage.needs)) {
    NodeId at = behind_value;
    if (is_any_order) {
      std::uint64_t required = 0;
      for (std::size_t i = 0; i < clause_.properties.size(); ++i) {
        required |= clause_.properties[i].is_required ? std::uint64_t{1} << i : 0;
      }
      at = out_.builder_.add_node(task_.rule);
      out_.builder_.move(behind_value, at, CountOp::has_bits, required);
    }
    out_.close(at, end_, '}', task_);
  }
  emit_stage(stage, out_.comma(behind_value, task_));
}

/// Keys that are no property: in schema order they come last and loop by themselves.
void ObjectEmitter::emit_others(const Stage& stage, NodeId before_key) {
  const bool is_any_order = out_.options_.order == PropertyOrder::any;
  const bool has_counts = count_cap_ > 0;
  for (const KeyClass& other : others_) {
    NodeId at = before_key;
    if (has_counts) {  // from here on the counter of the rule counts
      const NodeId set = out_.builder_.add_node(task_.rule);
      out_.builder_.move(at, set, CountOp::set, stage.count);
      at = set;
    }
    const NodeId key = out_.builder_.add_node(task_.rule);
    out_.builder_.lexeme(at, key, out_.key_lexeme(other.keys, task_));
    const std::uint32_t needs = stage.needs | other.needs;
    const NodeId next = is_any_order ? behind({.position = 0, .count = 0, .needs = needs}) : others_behind(needs);
    out_.builder_.call(out_.colon(key, task_), next, out_.member_rule(other.value, task_));
  }
}

NodeId ObjectEmitter::others_behind(std::uint32_t needs) {
  if (const auto known = others_behind_.find(needs); known != others_behind_.end()) {
    return known->second;
  }
  NetworkBuilder& builder = out_.builder_;
  const bool has_counts = clause_.least > 0 || clause_.most != kUnbounded;
  const NodeId arrived = builder.add_node(task_.rule);
  others_behind_[needs] = arrived;
  NodeId behind_value = arrived;
  if (has_counts) {
    behind_value = builder.add_node(task_.rule);
    const bool is_bounded = clause_.most != kUnbounded;
    builder.move(arrived, behind_value, is_bounded ? CountOp::below : CountOp::saturate, is_bounded ? clause_.most : clause_.least);
  }
  if (needs == all_needs_) {
    NodeId at = behind_value;
    if (clause_.least > 0) {
      at = builder.add_node(task_.rule);
      builder.move(behind_value, at, CountOp::at_least, clause_.least);
    }
    out_.close(at, end_, '}', task_);
  }
  NodeId more = behind_value;
  if (clause_.most != kUnbounded) {  // a further member must fit: count < most, tested without counting
    more = builder.add_node(task_.rule);
    builder.move(behind_value, more, CountOp::room, clause_.most);
  }
  const NodeId before_key = out_.comma(more, task_);
  for (const KeyClass& other : others_) {
    const NodeId key = builder.add_node(task_.rule);
    builder.lexeme(before_key, key, out_.key_lexeme(other.keys, task_));
    builder.call(out_.colon(key, task_), others_behind(needs | other.needs), out_.member_rule(other.value, task_));
  }
  return arrived;
}

void ObjectEmitter::emit(NodeId from, NodeId to) {
  if (!prepare()) {
    return;
  }
  end_ = to;
  const NodeId opened = out_.open(from, '{', task_);
  const bool has_required = std::ranges::any_of(clause_.properties, [](const Property& p) { return p.is_required; });
  if (!has_required && is_complete(0, 0)) {
    out_.close_empty(opened, to, '}', task_);
  }
  emit_stage(Stage{}, out_.first(opened, task_));
  while (!open_stages_.empty()) {
    const Stage stage = open_stages_.back();
    open_stages_.pop_back();
    emit_behind(stage, behind_.at(stage));
  }
}

}  // namespace deepinfer::grammar
