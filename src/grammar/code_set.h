// Sets of Unicode scalar values as sorted, disjoint, non-touching ranges.
// Not for byte sets: UTF-8 is the duty of lexer.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace deepinfer::grammar {

struct CodeRange {
  char32_t low = 0;
  char32_t high = 0;  ///< inclusive

  friend bool operator==(const CodeRange&, const CodeRange&) = default;
  friend auto operator<=>(const CodeRange&, const CodeRange&) = default;
};

using CodeSet = std::vector<CodeRange>;

inline constexpr char32_t kMaxCodePoint = 0x10FFFF;

/// Brings any list of ranges into the normal form; ranges may overlap. Surrogates are removed.
[[nodiscard]] CodeSet normalise(CodeSet ranges);
/// Everything that is not in `set` (surrogates are in neither).
[[nodiscard]] CodeSet complement(const CodeSet& set);
[[nodiscard]] CodeSet intersection(const CodeSet& a, const CodeSet& b);
[[nodiscard]] CodeSet set_union(CodeSet a, const CodeSet& b);
[[nodiscard]] bool contains(const CodeSet& set, char32_t code_point);
/// All scalar values.
[[nodiscard]] CodeSet any_code_point();
/// The set closed under simple case folding.
[[nodiscard]] CodeSet fold_case(const CodeSet& set);
/// `\p{name}`: a general category, a script, or Script=…/General_Category=…; empty when the name is unknown.
[[nodiscard]] CodeSet unicode_property(std::string_view name);

}  // namespace deepinfer::grammar
