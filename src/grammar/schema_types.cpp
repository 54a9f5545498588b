// Keywords about one type of value: numbers, strings, arrays, objects.
#include <algorithm>

#include "grammar/formats.h"
#include "grammar/numbers.h"
#include "grammar/regex.h"
#include "grammar/schema_expand.h"

namespace deepinfer::grammar {

namespace {

constexpr std::uint32_t kMaxCount = 0x7FFFFFFF;  // limit `repeat`

}  // namespace

std::optional<std::uint32_t> SchemaExpander::count_of(const Node& node, const std::string& keyword) {
  const json::Value* value = node.object->find(keyword);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<Decimal> decimal = value->as_number() != nullptr ? decimal_of(value->as_number()->text) : std::nullopt;
  if (!decimal || decimal->is_negative || !decimal->fraction.empty()) {
    invalid(node, keyword, "must be a non-negative integer");
    return std::nullopt;
  }
  if (decimal->whole.size() > 10 || std::stoull(decimal->whole) > kMaxCount) {
    const std::string pointer = document_.at(node.index).pointer + pointer_segment(keyword);
    fail_with({.code = ErrorCode::limit,
               .message = "\"" + keyword + "\" is above 2147483647 at " + pointer,
               .pointer = pointer,
               .keyword = keyword,
               .limit = "repeat"});
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(std::stoull(decimal->whole));
}

std::optional<ExprId> SchemaExpander::bound_of(const Node& node, const std::string& keyword) {
  const json::Value* value = node.object->find(keyword);
  const bool is_low = keyword == "minimum" || keyword == "exclusiveMinimum";
  Bound bound = keyword.starts_with("exclusive") ? Bound::exclusive : Bound::inclusive;
  if (value != nullptr && value->as_bool() != nullptr && keyword.starts_with("exclusive")) {
    return std::nullopt;  // draft-04: says how `minimum` is meant
  }
  if (value == nullptr || value->as_number() == nullptr) {
    invalid(node, keyword, "must be a number");
    return std::nullopt;
  }
  const json::Value* exclusive = node.object->find(is_low ? "exclusiveMinimum" : "exclusiveMaximum");
  if (exclusive != nullptr && exclusive->as_bool() != nullptr && *exclusive->as_bool()) {
    bound = Bound::exclusive;
  }
  const std::optional<Decimal> decimal = decimal_of(value->as_number()->text);
  if (!decimal) {
    unsupported(node, keyword, "more than 4096 digits");
    return std::nullopt;
  }
  return is_low ? at_least(pool_, *decimal, bound) : at_most(pool_, *decimal, bound);
}

void SchemaExpander::apply_numbers(const Node& node, Shape& out) {
  ExprId plain = any_plain_number(pool_);
  bool is_whole = false;
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (node.object->find(keyword) != nullptr) {
      const std::optional<ExprId> bound = bound_of(node, keyword);
      plain = bound ? pool_.both(plain, *bound) : plain;
    }
  }
  if (const json::Value* divisor = node.object->find("multipleOf")) {
    const std::optional<Decimal> decimal = divisor->as_number() != nullptr ? decimal_of(divisor->as_number()->text) : std::nullopt;
    if (!decimal || decimal->is_zero() || decimal->is_negative) {
      return invalid(node, "multipleOf", "must be a number above zero");
    }
    const std::optional<ExprId> multiples = out.number.is_whole ? whole_multiples_of(pool_, *decimal) : multiples_of(pool_, *decimal);
    if (!multiples) {
      return unsupported(node, "multipleOf", "more digits than 64 bits hold");
    }
    plain = plain == any_plain_number(pool_) ? *multiples : pool_.both(plain, *multiples);
    is_whole = out.number.is_whole && out.number.plain == whole_numbers(pool_);
  }
  if (plain == any_plain_number(pool_)) {
    return;
  }
  if (is_whole) {
    out.number.plain = plain;  // multiples of whole numbers are spelled as such already
  } else if (out.number.has_exponents) {
    out.number = {.plain = plain};
  } else {
    out.number.plain = pool_.both(out.number.plain, plain);
  }
}

ExprId SchemaExpander::format_of(const Node& node, const std::string& name) {
  switch (format_standing(name)) {
    case FormatStanding::enforced:
      return format_expr(pool_, name);
    case FormatStanding::unsupported:
      unsupported(node, "format", name);
      break;
    case FormatStanding::unknown:
      warnings_.insert("unknown format \"" + name + "\" at " + document_.at(node.index).pointer + "/format");
      break;
  }
  return ExprPool::kAnyText;
}

void SchemaExpander::apply_strings(const Node& node, Shape& out) {
  const std::optional<std::uint32_t> least = count_of(node, "minLength");
  const std::optional<std::uint32_t> most = count_of(node, "maxLength");
  const auto is_cut = [&](ExprId e) { return out.string == ExprPool::kEmpty || e == ExprPool::kAnyText; };
  const auto restrict_to = [&](ExprId e) { out.string = is_cut(e) ? out.string : algebra_.strings_both(out.string, e); };
  if (least || most) {
    if (least.value_or(0) > most.value_or(kUnbounded)) {
      out.string = ExprPool::kEmpty;
    }
    restrict_to(pool_.repeat(ExprPool::kAny, least.value_or(0), most.value_or(kUnbounded)));
  }
  if (const json::Value* pattern = node.object->find("pattern")) {
    if (pattern->as_string() == nullptr) {
      return invalid(node, "pattern", "must be a string");
    }
    const Compiled<ExprId> expr = parse_regex(pool_, *pattern->as_string(), RegexUse::search);
    if (!expr) {
      CompileError error = expr.error();
      error.code = error.code == ErrorCode::syntax ? ErrorCode::invalid_schema : error.code;
      error.pointer = document_.at(node.index).pointer + "/pattern";
      error.keyword = "pattern";
      error.message = (error.code == ErrorCode::unsupported ? "unsupported keyword \"pattern\" at " : "bad pattern at ") + error.pointer +
                      ": " + error.message;
      return fail_with(std::move(error));
    }
    restrict_to(*expr);
  }
  const json::Value* format = node.object->find("format");
  if (format != nullptr && options_.format == FormatCheck::assert_formats && out.string != ExprPool::kEmpty) {
    if (format->as_string() == nullptr) {
      return invalid(node, "format", "must be a string");
    }
    restrict_to(format_of(node, *format->as_string()));
  }
}

void SchemaExpander::read_items(const Node& node, ArrayClause& clause) {
  const json::Value* items = node.object->find("items");
  const json::Value* prefix = node.draft == Draft::draft2020 ? node.object->find("prefixItems") : nullptr;
  const json::Value* rest = items;
  std::string rest_keyword = "items";
  if (items != nullptr && items->as_array() != nullptr) {
    prefix = items;
    rest = node.object->find("additionalItems");
    rest_keyword = "additionalItems";
  }
  if (prefix != nullptr) {
    if (prefix->as_array() == nullptr) {
      return invalid(node, "prefixItems", "must be an array of schemas");
    }
    const std::string path = prefix == items ? "/items/" : "/prefixItems/";
    for (std::size_t i = 0; i < prefix->as_array()->size(); ++i) {
      clause.prefix.push_back(child(node, (*prefix->as_array())[i], path + std::to_string(i)));
    }
    clause.evaluated_prefix = static_cast<std::uint32_t>(clause.prefix.size());
  }
  if (rest != nullptr) {
    clause.rest = child(node, *rest, "/" + rest_keyword);
    clause.evaluated_all = true;
  }
}

void SchemaExpander::read_contains(const Node& node, ArrayClause& clause) {
  const json::Value* contains = node.object->find("contains");
  if (contains == nullptr || node.draft == Draft::draft4) {
    return;
  }
  const FormulaId value = child(node, *contains, "/contains");
  const bool has_counts = node.draft >= Draft::draft2019;
  const std::uint32_t least = has_counts ? count_of(node, "minContains").value_or(1) : 1;
  const std::uint32_t most = has_counts ? count_of(node, "maxContains").value_or(kUnbounded) : kUnbounded;
  if (least > 0 || most != kUnbounded) {
    clause.counts.push_back({.value = value, .from = 0, .least = least, .most = most});
  }
  if (node.draft == Draft::draft2020) {
    clause.evaluated_items.push_back(value);
  }
}

void SchemaExpander::apply_arrays(const Node& node, Shape& out) {
  ArrayClause clause{.has_keywords = true};
  read_items(node, clause);
  read_contains(node, clause);
  clause.least = count_of(node, "minItems").value_or(0);
  clause.most = count_of(node, "maxItems").value_or(kUnbounded);
  if (const json::Value* unique = node.object->find("uniqueItems")) {
    if (unique->as_bool() == nullptr) {
      return invalid(node, "uniqueItems", "must be a boolean");
    }
    clause.is_unique = *unique->as_bool();
  }
  const bool fits = algebra_.simplify(clause);
  out.arrays = fits ? algebra_.arrays_both(out.arrays, {&clause, 1}) : std::vector<ArrayClause>{};
}

void SchemaExpander::read_properties(const Node& node, ObjectClause& clause) {
  if (const json::Value* properties = node.object->find("properties")) {
    if (properties->as_object() == nullptr) {
      return invalid(node, "properties", "must be an object");
    }
    for (const auto& [name, schema] : *properties->as_object()) {
      clause.properties.push_back({.name = name, .value = child(node, schema, "/properties" + pointer_segment(name)), .is_declared = true});
    }
  }
  const json::Value* required = node.object->find("required");
  if (required == nullptr || (required->as_bool() != nullptr && node.draft == Draft::draft4)) {
    return;
  }
  if (required->as_array() == nullptr) {
    return invalid(node, "required", "must be an array of strings");
  }
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < clause.properties.size(); ++i) {
    places.emplace(clause.properties[i].name, i);
  }
  std::vector<Property> others;
  for (const json::Value& name : *required->as_array()) {
    if (name.as_string() == nullptr) {
      return invalid(node, "required", "must be an array of strings");
    }
    if (const auto place = places.find(*name.as_string()); place != places.end()) {
      clause.properties[place->second].is_required = true;
    } else if (std::ranges::none_of(others, [&](const Property& p) { return p.name == *name.as_string(); })) {
      others.push_back({.name = *name.as_string(), .is_required = true});
    }
  }
  clause.properties.insert(clause.properties.end(), others.begin(), others.end());
}

void SchemaExpander::read_key_rules(const Node& node, ObjectClause& clause) {
  std::vector<ExprId> seen;
  std::vector<std::u32string> names;
  for (const Property& property : clause.properties) {
    if (property.is_declared) {
      names.push_back(to_code_points(property.name));
    }
  }
  if (!names.empty()) {
    seen.push_back(pool_.words(names));
  }
  if (const json::Value* patterns = node.object->find("patternProperties")) {
    if (patterns->as_object() == nullptr) {
      return invalid(node, "patternProperties", "must be an object");
    }
    for (const auto& [pattern, schema] : *patterns->as_object()) {
      const Compiled<ExprId> keys = parse_regex(pool_, pattern, RegexUse::search);
      if (!keys) {
        return keys.error().code == ErrorCode::unsupported
                   ? unsupported(node, "patternProperties", keys.error().message)
                   : invalid(node, "patternProperties", "has a bad pattern: " + keys.error().message);
      }
      clause.rules.push_back({.keys = *keys, .value = child(node, schema, "/patternProperties" + pointer_segment(pattern))});
      seen.push_back(*keys);
    }
  }
  clause.evaluated = pool_.either(seen);
  if (const json::Value* additional = node.object->find("additionalProperties")) {
    clause.rules.push_back({.keys = pool_.negate(clause.evaluated), .value = child(node, *additional, "/additionalProperties")});
    clause.evaluated = ExprPool::kAnyText;
  }
  if (const json::Value* key_schema = node.object->find("propertyNames"); key_schema != nullptr && node.draft != Draft::draft4) {
    const FormulaId keys = child(node, *key_schema, "/propertyNames");
    if (keys != kAnyValue) {
      clause.rules.push_back({.keys = pool_.negate(shape(keys).string), .value = kNoValue});
    }
  }
}

void SchemaExpander::apply_objects(const Node& node, Shape& out) {
  if (out.objects.empty()) {
    // Still read: an invalid keyword is an error wherever it stands.
    ObjectClause unused;
    read_properties(node, unused);
    return;
  }
  ObjectClause clause{.has_keywords = true};
  read_properties(node, clause);
  if (error_) {
    return;
  }
  read_key_rules(node, clause);
  for (Property& property : clause.properties) {
    property.value = formulas_.both(property.value, algebra_.value_for(clause, property.name));
  }
  clause.least = count_of(node, "minProperties").value_or(0);
  clause.most = count_of(node, "maxProperties").value_or(kUnbounded);
  if (!algebra_.simplify(clause)) {
    out.objects.clear();
    return;
  }
  out.objects = algebra_.objects_both(out.objects, {&clause, 1});
}

}  // namespace deepinfer::grammar
