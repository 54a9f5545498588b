// What a set of JSON values looks like: for each type a description that unions, intersections and complements keep in
// the same form. Arrays and objects are unions of clauses; the parts of a clause are formulas, expanded only when needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/expr.h"

namespace deepinfer::grammar {

/// Index into Formulas: a set of JSON values named, not yet described.
using FormulaId = std::uint32_t;
inline constexpr FormulaId kAnyValue = 0;
inline constexpr FormulaId kNoValue = 1;

struct NumberSet {
  ExprId plain = ExprPool::kEmpty;  ///< spellings without exponent; see numbers.h
  bool has_exponents = false;       ///< every number, so also those written with an exponent
  bool is_whole = false;            ///< no fractions: written without a point
};

/// At least `least` and at most `most` items from index `from` on are in `value`.
struct ItemCount {
  FormulaId value = kAnyValue;
  std::uint32_t from = 0;
  std::uint32_t least = 1;
  std::uint32_t most = kUnbounded;

  friend bool operator==(const ItemCount&, const ItemCount&) = default;
};

struct ArrayClause {
  std::vector<FormulaId> prefix{};
  FormulaId rest = kAnyValue;
  std::uint32_t least = 0;
  std::uint32_t most = kUnbounded;
  std::vector<ItemCount> counts{};
  bool is_unique = false;
  // Annotations, for unevaluatedItems and closed arrays.
  std::uint32_t evaluated_prefix = 0;
  bool evaluated_all = false;
  std::vector<FormulaId> evaluated_items{};  ///< items of these are evaluated wherever they stand
  bool has_keywords = false;

  friend bool operator==(const ArrayClause&, const ArrayClause&) = default;
};

struct Property {
  std::string name;
  FormulaId value = kAnyValue;
  bool is_required = false;
  bool is_declared = false;  ///< stands in `properties`, which decides about order

  friend bool operator==(const Property&, const Property&) = default;
};

/// Keys that are no property of the clause and are in `keys` have values in `value`.
struct KeyRule {
  ExprId keys = ExprPool::kAnyText;
  FormulaId value = kAnyValue;

  friend bool operator==(const KeyRule&, const KeyRule&) = default;
};

struct ObjectClause {
  std::vector<Property> properties{};  ///< in the order they are written
  std::vector<KeyRule> rules{};
  std::vector<KeyRule> needs{};  ///< some member, property or not, has a key in `keys` and its value in `value`
  std::uint32_t least = 0;
  std::uint32_t most = kUnbounded;
  ExprId evaluated = ExprPool::kEmpty;  ///< annotation: keys that were looked at
  bool has_keywords = false;

  friend bool operator==(const ObjectClause&, const ObjectClause&) = default;
};

struct Shape {
  bool null = false;
  bool yes = false;
  bool no = false;
  NumberSet number{};
  ExprId string = ExprPool::kEmpty;
  std::vector<ArrayClause> arrays{};
  std::vector<ObjectClause> objects{};
};

}  // namespace deepinfer::grammar
