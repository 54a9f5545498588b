// The keywords that combine schemas: references, allOf and its siblings, conditions, dependencies, unevaluated….
#include <algorithm>

#include "grammar/schema_expand.h"

namespace deepinfer::grammar {

namespace {

/// anyOf branches whose joint annotations are told apart for unevaluated…; 2^n unions.
constexpr std::size_t kMaxAnnotatedBranches = 5;
/// Entries of one `dependencies` up to which undeclared names may come in both orders; up to 3^n clauses.
constexpr std::size_t kMaxDependenciesInBothOrders = 3;

}  // namespace

std::vector<FormulaId> SchemaExpander::branches(const Node& node, const std::string& keyword, const json::Value& value) {
  std::vector<FormulaId> out;
  if (value.as_array() == nullptr || value.as_array()->empty()) {
    invalid(node, keyword, "must be an array of schemas");
    return out;
  }
  for (std::size_t i = 0; i < value.as_array()->size(); ++i) {
    out.push_back(child(node, (*value.as_array())[i], "/" + keyword + "/" + std::to_string(i)));
  }
  return out;
}

Shape SchemaExpander::finite(const Node&, const json::Array& values) {
  // Strings in one go: an enum of thousands is one trie.
  Shape out;
  std::vector<std::u32string> words;
  for (const json::Value& value : values) {
    if (value.as_string() != nullptr) {
      words.push_back(to_code_points(*value.as_string()));
    } else {
      out = algebra_.either(out, shape(formulas_.constant(value)));
    }
  }
  if (!words.empty()) {
    out.string = pool_.words(words);
  }
  return out;
}

Shape SchemaExpander::reference(const Node& node, const std::string& keyword, const json::Value& value) {
  if (value.as_string() == nullptr) {
    invalid(node, keyword, "must be a string");
    return {};
  }
  const Compiled<SchemaIndex> target = keyword == "$ref" ? document_.resolve(node.index, *value.as_string(), keyword)
                                                         : document_.resolve_dynamic(node.index, *value.as_string());
  if (!target) {
    fail_with(target.error());
    return {};
  }
  return shape(formula_of(*target));
}

Shape SchemaExpander::any_of(const std::vector<FormulaId>& all) {
  Shape out;
  for (const FormulaId branch : all) {
    out = algebra_.either(out, shape(branch));
  }
  if (!document_.uses_unevaluated() || all.size() > kMaxAnnotatedBranches) {
    return out;  // fewer annotations only ever remove texts
  }
  for (std::uint32_t chosen = 1; chosen < 1U << all.size(); ++chosen) {
    if ((chosen & (chosen - 1)) == 0) {
      continue;
    }
    Shape together = algebra_.anything();
    for (std::size_t i = 0; i < all.size(); ++i) {
      together = (chosen >> i & 1) != 0 ? algebra_.both(together, shape(all[i])) : together;
    }
    out = algebra_.either(out, together);
  }
  return out;
}

Shape SchemaExpander::one_of(const std::vector<FormulaId>& all) {
  std::vector<Shape> shapes;
  for (const FormulaId branch : all) {
    shapes.push_back(shape(branch));
  }
  Shape out;
  for (std::size_t i = 0; i < all.size() && !error_; ++i) {
    Shape alone = shapes[i];
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (i != j && !algebra_.is_empty(algebra_.both(alone, shapes[j]))) {
        alone = algebra_.both(alone, shape(formulas_.negate(all[j])));
      }
    }
    out = algebra_.either(out, alone);
  }
  return out;
}

Shape SchemaExpander::conditional(const Node& node) {
  const FormulaId condition = child(node, *node.object->find("if"), "/if");
  const json::Value* then_schema = node.object->find("then");
  const json::Value* else_schema = node.object->find("else");
  const FormulaId then_value = then_schema != nullptr ? child(node, *then_schema, "/then") : kAnyValue;
  const FormulaId else_value = else_schema != nullptr ? child(node, *else_schema, "/else") : kAnyValue;
  if (then_value == kAnyValue && else_value == kAnyValue && !document_.uses_unevaluated()) {
    return algebra_.anything();
  }
  const Shape when = algebra_.both(shape(condition), shape(then_value));
  return algebra_.either(when, algebra_.both(shape(formulas_.negate(condition)), shape(else_value)));
}

Shape SchemaExpander::with_property(const std::string& name, Presence presence) {
  Shape out = algebra_.anything();
  const bool is_present = presence == Presence::present;
  out.objects = {{.properties = {{.name = name, .value = is_present ? kAnyValue : kNoValue, .is_required = is_present}}}};
  return out;
}

void SchemaExpander::apply_dependencies(const Node& node, const std::string& keyword, const json::Object& entries, Shape& out) {
  const bool takes_both_orders = entries.size() <= kMaxDependenciesInBothOrders;
  for (const auto& [name, entry] : entries) {
    const std::vector<ObjectClause> trigger = with_property(name, Presence::present).objects;
    std::vector<ObjectClause> needed = algebra_.anything().objects;
    const json::Array* names = keyword != "dependentSchemas" ? entry.as_array() : nullptr;
    if (names != nullptr) {
      for (const json::Value& other : *names) {
        if (other.as_string() == nullptr) {
          return invalid(node, keyword, "must list names");
        }
        needed = algebra_.objects_both(needed, with_property(*other.as_string(), Presence::present).objects);
      }
    } else if (keyword == "dependentRequired") {
      return invalid(node, keyword, "must map names to lists of names");
    } else {
      needed = shape(child(node, entry, "/" + keyword + pointer_segment(name))).objects;
    }
    // Names that no `properties` puts in order stand behind each other as they come: what is needed first, or its reason first.
    std::vector<std::vector<ObjectClause>> orders;
    if (names != nullptr) {
      orders.push_back(algebra_.objects_both(needed, trigger));
    }
    if (names == nullptr || takes_both_orders) {
      orders.push_back(algebra_.objects_both(trigger, needed));
    }
    std::vector<ObjectClause> cases = algebra_.objects_both(out.objects, with_property(name, Presence::absent).objects);
    for (const std::vector<ObjectClause>& order : orders) {
      for (ObjectClause& clause : algebra_.objects_both(out.objects, order)) {
        if (std::ranges::find(cases, clause) == cases.end()) {
          cases.push_back(std::move(clause));
        }
      }
    }
    out.objects = std::move(cases);
  }
}

void SchemaExpander::apply_unevaluated(const Node& node, Shape& out) {
  if (node.draft < Draft::draft2019) {
    return;
  }
  if (const json::Value* schema = node.object->find("unevaluatedProperties")) {
    const FormulaId value = child(node, *schema, "/unevaluatedProperties");
    for (ObjectClause& clause : out.objects) {
      for (Property& property : clause.properties) {
        if (!algebra_.has_key(clause.evaluated, to_code_points(property.name))) {
          property.value = formulas_.both(property.value, value);
        }
      }
      clause.rules.push_back({.keys = pool_.negate(clause.evaluated), .value = value});
      clause.evaluated = ExprPool::kAnyText;
      clause.has_keywords = true;
    }
    std::erase_if(out.objects, [this](ObjectClause& clause) { return !algebra_.simplify(clause); });
  }
  if (const json::Value* schema = node.object->find("unevaluatedItems")) {
    const FormulaId value = child(node, *schema, "/unevaluatedItems");
    for (ArrayClause& clause : out.arrays) {
      FormulaId rest = value;
      for (const FormulaId item : clause.evaluated_items) {
        rest = formulas_.either(rest, item);
      }
      for (std::size_t i = clause.evaluated_prefix; !clause.evaluated_all && i < clause.prefix.size(); ++i) {
        clause.prefix[i] = formulas_.both(clause.prefix[i], rest);
      }
      while (!clause.evaluated_all && clause.prefix.size() < clause.evaluated_prefix) {
        clause.prefix.push_back(clause.rest);
      }
      clause.rest = clause.evaluated_all ? clause.rest : formulas_.both(clause.rest, rest);
      clause.evaluated_all = true;
      clause.has_keywords = true;
    }
    std::erase_if(out.arrays, [this](ArrayClause& clause) { return !algebra_.simplify(clause); });
  }
}

}  // namespace deepinfer::grammar
