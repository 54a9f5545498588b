#include "grammar/shape_algebra.h"

#include <algorithm>

#include "base/utf8.h"
#include "grammar/numbers.h"

namespace deepinfer::grammar {

namespace {

/// Clauses one shape may have; products beyond it are refused, not computed for minutes.
constexpr std::size_t kMaxClauses = 600;
/// Finite sets of strings above this size are intersected as expressions.
constexpr std::size_t kMaxFilteredWords = 20'000;
/// How many levels below a value emptiness is looked for.
constexpr std::int32_t kEmptinessDepth = 3;

template <class Clause>
void add_unique(std::vector<Clause>& clauses, Clause clause) {
  if (std::ranges::find(clauses, clause) == clauses.end()) {
    clauses.push_back(std::move(clause));
  }
}

}  // namespace

ShapeAlgebra::ShapeAlgebra(ExprPool& pool, Formulas& formulas, std::function<const Shape&(FormulaId)> shape_of)
    : pool_(pool), formulas_(formulas), shape_of_(std::move(shape_of)), any_number_(any_plain_number(pool)) {}

Shape ShapeAlgebra::anything() {
  return {.null = true,
          .yes = true,
          .no = true,
          .number = {.plain = any_number_, .has_exponents = true},
          .string = ExprPool::kAnyText,
          .arrays = {ArrayClause{}},
          .objects = {ObjectClause{}}};
}

template <class Clause>
bool ShapeAlgebra::fits(const std::vector<Clause>& clauses) {
  if (clauses.size() > kMaxClauses && !failure_) {
    failure_ = "combination of more than 600 cases";
  }
  return !failure_.has_value();
}

ExprId ShapeAlgebra::strings_both(ExprId a, ExprId b) {
  if (!pool_.is_words(a) && pool_.is_words(b)) {
    std::swap(a, b);
  }
  if (!pool_.is_words(a) || b == ExprPool::kAnyText) {
    return pool_.both(a, b);
  }
  std::vector<std::u32string> words = pool_.words_of(a);
  if (words.size() > kMaxFilteredWords) {
    return pool_.both(a, b);
  }
  std::erase_if(words, [&](const std::u32string& word) { return !has_key(b, word); });
  return words.empty() ? ExprPool::kEmpty : pool_.words(words);
}

ExprId ShapeAlgebra::strings_either(ExprId a, ExprId b) {
  const auto is_finite = [this](ExprId e) { return e == ExprPool::kEmpty || pool_.is_words(e); };
  if (a == ExprPool::kEmpty || b == ExprPool::kEmpty || !is_finite(a) || !is_finite(b)) {
    return pool_.either(a, b);
  }
  std::vector<std::u32string> words = pool_.words_of(a);
  const std::vector<std::u32string> more = pool_.words_of(b);
  words.insert(words.end(), more.begin(), more.end());
  return pool_.words(words);
}

bool ShapeAlgebra::has_key(ExprId keys, std::u32string_view name) {
  for (const char32_t c : name) {
    keys = pool_.after(keys, c);
    if (keys == ExprPool::kEmpty) {
      return false;
    }
  }
  return pool_.nullable(keys);
}

NumberSet ShapeAlgebra::numbers_both(const NumberSet& a, const NumberSet& b) {
  if (a.has_exponents || b.has_exponents) {
    NumberSet out = a.has_exponents ? b : a;
    out.is_whole = a.is_whole || b.is_whole;
    return out;
  }
  return {.plain = pool_.both(a.plain, b.plain), .has_exponents = false, .is_whole = a.is_whole || b.is_whole};
}

NumberSet ShapeAlgebra::numbers_either(const NumberSet& a, const NumberSet& b) {
  if (a.plain == ExprPool::kEmpty || b.plain == ExprPool::kEmpty) {
    return a.plain == ExprPool::kEmpty ? b : a;
  }
  return {
      .plain = pool_.either(a.plain, b.plain), .has_exponents = a.has_exponents || b.has_exponents, .is_whole = a.is_whole && b.is_whole};
}

NumberSet ShapeAlgebra::numbers_negate(const NumberSet& a) {
  if (a.has_exponents) {
    return {};
  }
  if (a.plain == ExprPool::kEmpty) {
    return {.plain = any_number_, .has_exponents = true};
  }
  return {.plain = pool_.both(any_number_, pool_.negate(a.plain))};
}

Shape ShapeAlgebra::both(const Shape& a, const Shape& b) {
  return {.null = a.null && b.null,
          .yes = a.yes && b.yes,
          .no = a.no && b.no,
          .number = numbers_both(a.number, b.number),
          .string = strings_both(a.string, b.string),
          .arrays = arrays_both(a.arrays, b.arrays),
          .objects = objects_both(a.objects, b.objects)};
}

Shape ShapeAlgebra::either(const Shape& a, const Shape& b) {
  Shape out{.null = a.null || b.null,
            .yes = a.yes || b.yes,
            .no = a.no || b.no,
            .number = numbers_either(a.number, b.number),
            .string = strings_either(a.string, b.string),
            .arrays = a.arrays,
            .objects = a.objects};
  for (const ArrayClause& clause : b.arrays) {
    add_unique(out.arrays, clause);
  }
  for (const ObjectClause& clause : b.objects) {
    add_unique(out.objects, clause);
  }
  static_cast<void>(fits(out.arrays) && fits(out.objects));
  return out;
}

Shape ShapeAlgebra::negate(const Shape& a) {
  Shape out{.null = !a.null,
            .yes = !a.yes,
            .no = !a.no,
            .number = numbers_negate(a.number),
            .string = pool_.is_words(a.string) || a.string != ExprPool::kEmpty ? pool_.negate(a.string) : ExprPool::kAnyText,
            .arrays = {ArrayClause{}},
            .objects = {ObjectClause{}}};
  for (const ArrayClause& clause : a.arrays) {
    out.arrays = arrays_both(out.arrays, negate(clause));
  }
  std::vector<ObjectClause> seen;
  for (const ObjectClause& clause : a.objects) {  // the order of properties means nothing to a complement
    ObjectClause sorted = clause;
    std::ranges::sort(sorted.properties, {}, &Property::name);
    if (std::ranges::find(seen, sorted) == seen.end()) {
      out.objects = objects_both(out.objects, negate(clause));
      seen.push_back(std::move(sorted));
    }
  }
  return out;
}

std::vector<ArrayClause> ShapeAlgebra::arrays_both(std::span<const ArrayClause> a, std::span<const ArrayClause> b) {
  std::vector<ArrayClause> out;
  for (const ArrayClause& first : a) {
    for (const ArrayClause& second : b) {
      ArrayClause joined = join(first, second);
      if (simplify(joined)) {
        add_unique(out, std::move(joined));
      }
      if (!fits(out)) {
        return {};
      }
    }
  }
  return out;
}

std::vector<ObjectClause> ShapeAlgebra::objects_both(std::span<const ObjectClause> a, std::span<const ObjectClause> b) {
  std::vector<ObjectClause> out;
  for (const ObjectClause& first : a) {
    for (const ObjectClause& second : b) {
      ObjectClause joined = join(first, second);
      if (simplify(joined)) {
        add_unique(out, std::move(joined));
      }
      if (!fits(out)) {
        return {};
      }
    }
  }
  return out;
}

ArrayClause ShapeAlgebra::join(const ArrayClause& a, const ArrayClause& b) {
  ArrayClause out;
  for (std::size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) {
    out.prefix.push_back(formulas_.both(item(a, i), item(b, i)));
  }
  out.rest = formulas_.both(a.rest, b.rest);
  out.least = std::max(a.least, b.least);
  out.most = std::min(a.most, b.most);
  out.counts = a.counts;
  for (const ItemCount& count : b.counts) {
    add_unique(out.counts, count);
  }
  out.is_unique = a.is_unique || b.is_unique;
  out.evaluated_prefix = std::max(a.evaluated_prefix, b.evaluated_prefix);
  out.evaluated_all = a.evaluated_all || b.evaluated_all;
  out.evaluated_items = a.evaluated_items;
  for (const FormulaId item : b.evaluated_items) {
    add_unique(out.evaluated_items, item);
  }
  out.has_keywords = a.has_keywords || b.has_keywords;
  return out;
}

bool ShapeAlgebra::simplify(ArrayClause& clause) {
  const auto is_hopeless = [this](FormulaId f) { return formulas_.at(f).kind != FormulaKind::schema && is_empty(f); };
  for (std::size_t i = 0; i < clause.prefix.size(); ++i) {
    if (is_hopeless(clause.prefix[i])) {
      clause.most = std::min(clause.most, static_cast<std::uint32_t>(i));
      break;
    }
  }
  if (is_hopeless(clause.rest)) {
    clause.rest = kNoValue;
    clause.most = std::min(clause.most, static_cast<std::uint32_t>(clause.prefix.size()));
  }
  for (const ItemCount& count : clause.counts) {
    if (count.least > count.most || (count.least > 0 && (is_hopeless(count.value) || clause.most < count.from + count.least))) {
      return false;
    }
  }
  return clause.least <= clause.most;
}

FormulaId ShapeAlgebra::value_for(const ObjectClause& clause, const std::string& name) {
  FormulaId out = kAnyValue;
  const std::u32string text = to_code_points(name);
  for (const KeyRule& rule : clause.rules) {
    if (has_key(rule.keys, text)) {
      out = formulas_.both(out, rule.value);
    }
  }
  return out;
}

ObjectClause ShapeAlgebra::join(const ObjectClause& a, const ObjectClause& b) {
  ObjectClause out;
  const auto find = [](const ObjectClause& clause, const std::string& name) -> const Property* {
    const auto place = std::ranges::find_if(clause.properties, [&](const Property& p) { return p.name == name; });
    return place == clause.properties.end() ? nullptr : &*place;
  };
  const auto add = [&](const Property& property) {
    if (find(out, property.name) != nullptr) {
      return;
    }
    Property joined = property;
    joined.value = kAnyValue;
    for (const ObjectClause* side : {&a, &b}) {
      const Property* own = find(*side, property.name);
      joined.value = formulas_.both(joined.value, own != nullptr ? own->value : value_for(*side, property.name));
      joined.is_required |= own != nullptr && own->is_required;
      joined.is_declared |= own != nullptr && own->is_declared;
    }
    out.properties.push_back(std::move(joined));
  };
  for (const bool declared : {true, false}) {  // declared names keep their places, others come behind all of them
    for (const ObjectClause* side : {&a, &b}) {
      for (const Property& property : side->properties) {
        if (property.is_declared == declared) {
          add(property);
        }
      }
    }
  }
  out.rules = a.rules;
  out.needs = a.needs;
  for (const KeyRule& rule : b.rules) {
    add_unique(out.rules, rule);
  }
  for (const KeyRule& need : b.needs) {
    add_unique(out.needs, need);
  }
  out.least = std::max(a.least, b.least);
  out.most = std::min(a.most, b.most);
  out.evaluated = pool_.either(a.evaluated, b.evaluated);
  out.has_keywords = a.has_keywords || b.has_keywords;
  return out;
}

bool ShapeAlgebra::simplify(ObjectClause& clause) {
  std::uint32_t num_required = 0;
  for (Property& property : clause.properties) {
    if (formulas_.at(property.value).kind != FormulaKind::schema && is_empty(property.value)) {
      property.value = kNoValue;
    }
    if (property.is_required && property.value == kNoValue) {
      return false;
    }
    num_required += property.is_required ? 1 : 0;
  }
  for (const KeyRule& need : clause.needs) {
    if (need.value == kNoValue || need.keys == ExprPool::kEmpty) {
      return false;
    }
  }
  return clause.least <= clause.most && num_required <= clause.most;
}

std::vector<ArrayClause> ShapeAlgebra::negate(const ArrayClause& clause) {
  std::vector<ArrayClause> out;
  for (std::size_t i = 0; i < clause.prefix.size(); ++i) {
    if (clause.prefix[i] != kAnyValue) {
      ArrayClause other{.prefix = std::vector<FormulaId>(i, kAnyValue), .least = static_cast<std::uint32_t>(i + 1)};
      other.prefix.push_back(formulas_.negate(clause.prefix[i]));
      out.push_back(std::move(other));
    }
  }
  if (clause.rest != kAnyValue) {
    const auto from = static_cast<std::uint32_t>(clause.prefix.size());
    if (clause.rest == kNoValue) {
      out.push_back({.least = from + 1});
    } else {
      out.push_back({.counts = {{.value = formulas_.negate(clause.rest), .from = from}}});
    }
  }
  if (clause.least > 0) {
    out.push_back({.most = clause.least - 1});
  }
  if (clause.most != kUnbounded) {
    out.push_back({.least = clause.most + 1});
  }
  for (const ItemCount& count : clause.counts) {
    if (count.least > 0) {
      out.push_back({.counts = {{.value = count.value, .from = count.from, .least = 0, .most = count.least - 1}}});
    }
    if (count.most != kUnbounded) {
      out.push_back({.counts = {{.value = count.value, .from = count.from, .least = count.most + 1}}});
    }
  }
  if (clause.is_unique && !failure_) {
    failure_ = "complement of uniqueItems";
  }
  std::erase_if(out, [this](ArrayClause& other) { return !simplify(other); });
  return out;
}

std::vector<ObjectClause> ShapeAlgebra::negate(const ObjectClause& clause) {
  std::vector<ObjectClause> out;
  std::vector<std::u32string> names;
  for (const Property& property : clause.properties) {
    names.push_back(to_code_points(property.name));
    if (property.value != kAnyValue) {
      out.push_back({.properties = {{.name = property.name, .value = formulas_.negate(property.value), .is_required = true}}});
    }
    if (property.is_required) {
      out.push_back({.properties = {{.name = property.name, .value = kNoValue}}});
    }
  }
  const ExprId others = names.empty() ? ExprPool::kAnyText : pool_.negate(pool_.words(names));
  for (const KeyRule& rule : clause.rules) {
    if (rule.value != kAnyValue) {
      out.push_back({.needs = {{.keys = strings_both(rule.keys, others), .value = formulas_.negate(rule.value)}}});
    }
  }
  for (const KeyRule& need : clause.needs) {
    out.push_back({.rules = {{.keys = need.keys, .value = formulas_.negate(need.value)}}});
  }
  if (clause.least > 0) {
    out.push_back({.most = clause.least - 1});
  }
  if (clause.most != kUnbounded) {
    out.push_back({.least = clause.most + 1});
  }
  std::erase_if(out, [this](ObjectClause& other) { return !simplify(other); });
  return out;
}

bool ShapeAlgebra::is_empty(const Shape& shape) {
  if (shape.null || shape.yes || shape.no || pool_.live(shape.string) || pool_.live(shape.number.plain)) {
    return false;
  }
  const bool has_array = std::ranges::any_of(shape.arrays, [this](const ArrayClause& clause) {
    for (std::size_t i = 0; i < std::min<std::size_t>(clause.least, clause.prefix.size()); ++i) {
      if (is_empty(clause.prefix[i])) {
        return false;
      }
    }
    return clause.least <= clause.most && (clause.least <= clause.prefix.size() || !is_empty(clause.rest));
  });
  return !has_array && std::ranges::none_of(shape.objects, [this](const ObjectClause& clause) {
    return std::ranges::none_of(clause.properties, [this](const Property& p) { return p.is_required && is_empty(p.value); });
  });
}

bool ShapeAlgebra::is_empty(FormulaId formula) {
  if (formula == kAnyValue || formula == kNoValue) {
    return formula == kNoValue;
  }
  if (depth_ >= kEmptinessDepth || failure_) {
    return false;
  }
  ++depth_;
  const bool out = is_empty(shape_of_(formula));
  --depth_;
  return out;
}

}  // namespace deepinfer::grammar
