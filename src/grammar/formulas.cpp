#include "grammar/formulas.h"

#include <algorithm>

namespace deepinfer::grammar {

Formulas::Formulas() {
  intern({.kind = FormulaKind::any, .parts = {}});
  intern({.kind = FormulaKind::none, .parts = {}});
}

FormulaId Formulas::intern(Formula formula) {
  const auto [place, is_new] = ids_.try_emplace(formula, static_cast<FormulaId>(formulas_.size()));
  if (is_new) {
    formulas_.push_back(std::move(formula));
  }
  return place->second;
}

FormulaId Formulas::negate(FormulaId a) {
  if (a == kAnyValue || a == kNoValue) {
    return a == kAnyValue ? kNoValue : kAnyValue;
  }
  if (formulas_[a].kind == FormulaKind::negate) {
    return formulas_[a].parts[0];
  }
  return intern({.kind = FormulaKind::negate, .parts = {a}});
}

FormulaId Formulas::combine(FormulaKind kind, FormulaId a, FormulaId b) {
  std::vector<FormulaId> parts;
  for (const FormulaId part : {a, b}) {
    if (formulas_[part].kind == kind) {
      parts.insert(parts.end(), formulas_[part].parts.begin(), formulas_[part].parts.end());
    } else {
      parts.push_back(part);
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  for (const FormulaId part : parts) {
    if (std::ranges::binary_search(parts, negate(part))) {
      return kind == FormulaKind::all ? kNoValue : kAnyValue;
    }
  }
  return parts.size() == 1 ? parts[0] : intern({.kind = kind, .parts = std::move(parts)});
}

FormulaId Formulas::both(FormulaId a, FormulaId b) {
  if (a == kNoValue || b == kNoValue) {
    return kNoValue;
  }
  return a == kAnyValue ? b : b == kAnyValue ? a : combine(FormulaKind::all, a, b);
}

FormulaId Formulas::either(FormulaId a, FormulaId b) {
  if (a == kAnyValue || b == kAnyValue) {
    return kAnyValue;
  }
  return a == kNoValue ? b : b == kNoValue ? a : combine(FormulaKind::either, a, b);
}

}  // namespace deepinfer::grammar
