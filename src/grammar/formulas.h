// Named sets of JSON values: subschemas, constants, and Boolean combinations of them, hash-consed. Combining is free; what
// a formula looks like is found out by shapes.h when somebody needs it.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "grammar/shape.h"

namespace deepinfer::grammar {

enum class FormulaKind : std::uint8_t { any, none, schema, constant, negate, all, either };

struct Formula {
  FormulaKind kind = FormulaKind::any;
  std::uint32_t schema = 0;
  const json::Value* constant = nullptr;
  std::vector<FormulaId> parts;  ///< negate: one; all, either: sorted, at least two

  friend auto operator<=>(const Formula&, const Formula&) = default;
};

class Formulas {
 public:
  Formulas();
  [[nodiscard]] FormulaId schema(std::uint32_t index) { return intern({.kind = FormulaKind::schema, .schema = index, .parts = {}}); }
  [[nodiscard]] FormulaId constant(const json::Value& value) {
    return intern({.kind = FormulaKind::constant, .constant = &value, .parts = {}});
  }
  [[nodiscard]] FormulaId negate(FormulaId a);
  [[nodiscard]] FormulaId both(FormulaId a, FormulaId b);
  [[nodiscard]] FormulaId either(FormulaId a, FormulaId b);
  [[nodiscard]] const Formula& at(FormulaId id) const { return formulas_[id]; }
  [[nodiscard]] std::size_t size() const { return formulas_.size(); }

 private:
  FormulaId intern(Formula formula);
  FormulaId combine(FormulaKind kind, FormulaId a, FormulaId b);

  std::vector<Formula> formulas_;
  std::map<Formula, FormulaId> ids_;
};

}  // namespace deepinfer::grammar
