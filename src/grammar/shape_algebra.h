// Union, intersection and complement of shapes, and the search for what is certainly empty. Exact, or an error.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "grammar/compile_error.h"
#include "grammar/formulas.h"
#include "grammar/shape.h"

namespace deepinfer::grammar {

class ShapeAlgebra {
 public:
  /// `shape_of` describes a formula; it may call back into this object.
  ShapeAlgebra(ExprPool& pool, Formulas& formulas, std::function<const Shape&(FormulaId)> shape_of);

  [[nodiscard]] Shape anything();
  [[nodiscard]] Shape both(const Shape& a, const Shape& b);
  [[nodiscard]] Shape either(const Shape& a, const Shape& b);
  [[nodiscard]] Shape negate(const Shape& a);
  [[nodiscard]] ExprId strings_both(ExprId a, ExprId b);
  [[nodiscard]] ExprId strings_either(ExprId a, ExprId b);
  [[nodiscard]] std::vector<ArrayClause> arrays_both(std::span<const ArrayClause> a, std::span<const ArrayClause> b);
  [[nodiscard]] std::vector<ObjectClause> objects_both(std::span<const ObjectClause> a, std::span<const ObjectClause> b);

  /// Nothing fits, for certain. False may also mean: not found out within a few levels.
  [[nodiscard]] bool is_empty(const Shape& shape);
  [[nodiscard]] bool is_empty(FormulaId formula);
  /// The value rule for a key that is no property of `clause`.
  [[nodiscard]] FormulaId value_for(const ObjectClause& clause, const std::string& name);
  [[nodiscard]] bool has_key(ExprId keys, std::u32string_view name);
  /// Drops what cannot be; false when nothing is left of the clause.
  [[nodiscard]] bool simplify(ObjectClause& clause);
  [[nodiscard]] bool simplify(ArrayClause& clause);

  /// Set once a combination has no exact form: the construct that is to blame.
  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }

 private:
  [[nodiscard]] NumberSet numbers_both(const NumberSet& a, const NumberSet& b);
  [[nodiscard]] NumberSet numbers_either(const NumberSet& a, const NumberSet& b);
  [[nodiscard]] NumberSet numbers_negate(const NumberSet& a);
  [[nodiscard]] ArrayClause join(const ArrayClause& a, const ArrayClause& b);
  [[nodiscard]] ObjectClause join(const ObjectClause& a, const ObjectClause& b);
  [[nodiscard]] std::vector<ArrayClause> negate(const ArrayClause& clause);
  [[nodiscard]] std::vector<ObjectClause> negate(const ObjectClause& clause);
  [[nodiscard]] FormulaId item(const ArrayClause& clause, std::size_t index) const {
    return index < clause.prefix.size() ? clause.prefix[index] : clause.rest;
  }
  template <class Clause>
  [[nodiscard]] bool fits(const std::vector<Clause>& clauses);

  ExprPool& pool_;
  Formulas& formulas_;
  std::function<const Shape&(FormulaId)> shape_of_;
  ExprId any_number_;
  std::int32_t depth_ = 0;
  std::optional<std::string> failure_;
};

}  // namespace deepinfer::grammar
