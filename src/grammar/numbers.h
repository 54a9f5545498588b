// Sets of JSON numbers as expressions over their spellings without exponents. Every set holds all such spellings of each
// of its values (1, 1.0, 1.00), so that complements and intersections of sets are those of values. Exact decimals, no doubles.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "grammar/expr.h"

namespace deepinfer::grammar {

/// A decimal in normal form: value = ±digits · 10^-scale, no leading zeros in front of and no trailing ones behind the point.
struct Decimal {
  bool is_negative = false;
  std::string whole;     ///< digits before the point, "0" at least
  std::string fraction;  ///< digits behind it, possibly none

  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// nullopt when the exponent makes it longer than 4,096 digits. `text` is a JSON number.
[[nodiscard]] std::optional<Decimal> decimal_of(std::string_view text);

enum class Bound { inclusive, exclusive };

[[nodiscard]] ExprId any_plain_number(ExprPool& pool);
[[nodiscard]] ExprId any_number_with_exponent(ExprPool& pool);
/// Values without a fraction; `1.0` is one of them.
[[nodiscard]] ExprId whole_numbers(ExprPool& pool);
/// The spellings -?(0|[1-9][0-9]*) alone.
[[nodiscard]] ExprId integer_spellings(ExprPool& pool);
[[nodiscard]] ExprId equal_to(ExprPool& pool, const Decimal& value);
[[nodiscard]] ExprId at_least(ExprPool& pool, const Decimal& low, Bound bound);
[[nodiscard]] ExprId at_most(ExprPool& pool, const Decimal& high, Bound bound);
/// nullopt when the divisor has more digits than 64 bits hold. `divisor` is above zero.
[[nodiscard]] std::optional<ExprId> multiples_of(ExprPool& pool, const Decimal& divisor);
/// The same among whole numbers: their digits alone decide, so fewer states are needed.
[[nodiscard]] std::optional<ExprId> whole_multiples_of(ExprPool& pool, const Decimal& divisor);

}  // namespace deepinfer::grammar
