#include "grammar/numbers.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace deepinfer::grammar {

namespace {

constexpr std::size_t kMaxDigits = 4096;

ExprId digit_class(ExprPool& pool, char low, char high) {
  return low > high ? ExprPool::kEmpty : pool.one_of({{static_cast<char32_t>(low), static_cast<char32_t>(high)}});
}
ExprId any_digits(ExprPool& pool) { return pool.star(digit_class(pool, '0', '9')); }
ExprId text(ExprPool& pool, std::string_view ascii) { return pool.literal(std::u32string(ascii.begin(), ascii.end())); }
ExprId dot(ExprPool& pool) { return text(pool, "."); }
ExprId minus(ExprPool& pool) { return text(pool, "-"); }
ExprId some_digits(ExprPool& pool) { return pool.repeat(digit_class(pool, '0', '9'), 1, kUnbounded); }
ExprId any_fraction(ExprPool& pool) { return pool.optional(pool.concat(dot(pool), some_digits(pool))); }
ExprId zero_fraction(ExprPool& pool) { return pool.optional(pool.concat(dot(pool), pool.repeat(text(pool, "0"), 1, kUnbounded))); }

ExprId unsigned_integer(ExprPool& pool) { return pool.either(text(pool, "0"), pool.concat(digit_class(pool, '1', '9'), any_digits(pool))); }

enum class Side { above, below };

/// Spellings of a fraction (with its point, or nothing) on one side of 0.`digits`.
ExprId fraction_side(ExprPool& pool, std::string_view digits, Side side, Bound bound) {
  const ExprId zeros = pool.star(text(pool, "0"));
  // From the last digit to the first: what may follow when all digits so far were equal.
  ExprId rest = ExprPool::kEmpty;
  if (bound == Bound::inclusive) {
    rest = side == Side::above ? any_digits(pool) : zeros;
  } else if (side == Side::above) {
    rest = pool.concat(zeros, pool.concat(digit_class(pool, '1', '9'), any_digits(pool)));
  }
  for (std::size_t i = digits.size(); i-- > 0;) {
    const char digit = digits[i];
    const ExprId other =
        side == Side::above ? digit_class(pool, static_cast<char>(digit + 1), '9') : digit_class(pool, '0', static_cast<char>(digit - 1));
    rest = pool.either(pool.concat(other, any_digits(pool)), pool.concat(digit_class(pool, digit, digit), rest));
    if (side == Side::below) {
      rest = pool.either(rest, ExprPool::kEpsilon);  // stopping early is smaller: the last digit is not 0
    }
  }
  ExprId out = pool.concat(dot(pool), pool.both(rest, some_digits(pool)));
  const bool takes_none = digits.empty() ? bound == Bound::inclusive : side == Side::below;
  return takes_none ? pool.either(out, ExprPool::kEpsilon) : out;
}

/// Spellings of magnitudes on one side of `value`'s.
ExprId magnitude_side(ExprPool& pool, const Decimal& value, Side side, Bound bound) {
  const std::string& whole = value.whole;
  const auto length = static_cast<std::uint32_t>(whole.size());
  const ExprId digits = digit_class(pool, '0', '9');
  const ExprId first = digit_class(pool, '1', '9');
  std::vector<ExprId> options;
  if (side == Side::above) {
    options.push_back(pool.concat(pool.concat(first, pool.repeat(digits, length, kUnbounded)), any_fraction(pool)));
  } else if (length > 1) {
    options.push_back(
        pool.concat(pool.either(text(pool, "0"), pool.concat(first, pool.repeat(digits, 0, length - 2))), any_fraction(pool)));
  }
  ExprId same = fraction_side(pool, value.fraction, side, bound);
  for (std::size_t i = whole.size(); i-- > 0;) {
    const char least = i == 0 && length > 1 ? '1' : '0';
    const ExprId other = side == Side::above ? digit_class(pool, static_cast<char>(whole[i] + 1), '9')
                                             : digit_class(pool, least, static_cast<char>(whole[i] - 1));
    const auto left = static_cast<std::uint32_t>(whole.size() - i - 1);
    same = pool.either(pool.concat(other, pool.concat(pool.repeat(digits, left, left), any_fraction(pool))),
                       pool.concat(digit_class(pool, whole[i], whole[i]), same));
  }
  options.push_back(same);
  return pool.either(options);
}

ExprId zero(ExprPool& pool) { return pool.concat(pool.optional(minus(pool)), pool.concat(text(pool, "0"), zero_fraction(pool))); }

ExprId nonzero_magnitudes(ExprPool& pool) {
  return pool.both(pool.concat(unsigned_integer(pool), any_fraction(pool)), pool.negate(pool.concat(text(pool, "0"), zero_fraction(pool))));
}

}  // namespace

std::optional<Decimal> decimal_of(std::string_view number) {
  Decimal out;
  if (number.starts_with('-')) {
    out.is_negative = true;
    number.remove_prefix(1);
  }
  std::int64_t exponent = 0;
  if (const std::size_t e = number.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view power = number.substr(e + 1);
    power.remove_prefix(power.starts_with('+') ? 1 : 0);
    if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec != std::errc{}) {
      return std::nullopt;
    }
    number = number.substr(0, e);
  }
  const std::size_t point = number.find('.');
  std::string digits(number.substr(0, point));
  auto places = static_cast<std::int64_t>(digits.size());
  if (point != std::string_view::npos) {
    digits += number.substr(point + 1);
  }
  if (digits.find_first_not_of('0') == std::string::npos) {
    return Decimal{.is_negative = false, .whole = "0", .fraction = ""};
  }
  const std::size_t leading = digits.find_first_not_of('0');
  digits.erase(0, leading);
  places += exponent - static_cast<std::int64_t>(leading);
  digits.erase(digits.find_last_not_of('0') + 1);
  const auto limit = static_cast<std::int64_t>(kMaxDigits);
  if (places > limit || places < -limit || digits.size() > kMaxDigits) {
    return std::nullopt;
  }
  if (places <= 0) {
    out.whole = "0";
    out.fraction = std::string(static_cast<std::size_t>(-places), '0') + digits;
  } else if (static_cast<std::size_t>(places) >= digits.size()) {
    out.whole = digits + std::string(static_cast<std::size_t>(places) - digits.size(), '0');
  } else {
    out.whole = digits.substr(0, static_cast<std::size_t>(places));
    out.fraction = digits.substr(static_cast<std::size_t>(places));
  }
  return out;
}

ExprId any_plain_number(ExprPool& pool) {
  return pool.concat(pool.optional(minus(pool)), pool.concat(unsigned_integer(pool), any_fraction(pool)));
}

ExprId any_number_with_exponent(ExprPool& pool) {
  const ExprId sign = pool.optional(pool.one_of(normalise({{U'+', U'+'}, {U'-', U'-'}})));
  const ExprId exponent = pool.concat(pool.one_of(normalise({{U'e', U'e'}, {U'E', U'E'}})), pool.concat(sign, some_digits(pool)));
  return pool.concat(pool.optional(minus(pool)),
                     pool.concat(unsigned_integer(pool), pool.concat(any_fraction(pool), pool.optional(exponent))));
}

ExprId whole_numbers(ExprPool& pool) { return pool.concat(integer_spellings(pool), zero_fraction(pool)); }

ExprId integer_spellings(ExprPool& pool) { return pool.concat(pool.optional(minus(pool)), unsigned_integer(pool)); }

ExprId equal_to(ExprPool& pool, const Decimal& value) {
  if (value.is_zero()) {
    return zero(pool);
  }
  const ExprId sign = value.is_negative ? minus(pool) : ExprPool::kEpsilon;
  const ExprId fraction =
      value.fraction.empty() ? zero_fraction(pool) : pool.concat(text(pool, "." + value.fraction), pool.star(text(pool, "0")));
  return pool.concat(sign, pool.concat(text(pool, value.whole), fraction));
}

ExprId at_least(ExprPool& pool, const Decimal& low, Bound bound) {
  const ExprId nonnegative = pool.concat(unsigned_integer(pool), any_fraction(pool));
  if (low.is_zero()) {
    return bound == Bound::inclusive ? pool.either(nonnegative, zero(pool)) : nonzero_magnitudes(pool);
  }
  if (!low.is_negative) {
    return magnitude_side(pool, low, Side::above, bound);
  }
  return pool.either(nonnegative, pool.concat(minus(pool), magnitude_side(pool, low, Side::below, bound)));
}

ExprId at_most(ExprPool& pool, const Decimal& high, Bound bound) {
  const ExprId negative = pool.concat(minus(pool), pool.concat(unsigned_integer(pool), any_fraction(pool)));
  if (high.is_zero()) {
    return bound == Bound::inclusive ? pool.either(negative, zero(pool)) : pool.concat(minus(pool), nonzero_magnitudes(pool));
  }
  if (high.is_negative) {
    return pool.concat(minus(pool), magnitude_side(pool, high, Side::above, bound));
  }
  return pool.either(negative, magnitude_side(pool, high, Side::below, bound));
}

namespace {

/// The digits of a decimal without its point.
std::optional<std::uint64_t> digits_of(const Decimal& value) {
  std::string digits = value.whole + value.fraction;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  std::uint64_t out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return error == std::errc{} && end == digits.data() + digits.size() && out > 0 ? std::optional(out) : std::nullopt;
}

}  // namespace

std::optional<ExprId> multiples_of(ExprPool& pool, const Decimal& divisor) {
  const std::optional<std::uint64_t> value = digits_of(divisor);
  if (!value) {
    return std::nullopt;
  }
  const ExprId magnitude = pool.multiple_of(*value, static_cast<std::uint32_t>(divisor.fraction.size()));
  return pool.both(any_plain_number(pool), pool.concat(pool.optional(minus(pool)), magnitude));
}

std::optional<ExprId> whole_multiples_of(ExprPool& pool, const Decimal& divisor) {
  std::optional<std::uint64_t> value = digits_of(divisor);
  if (!value) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < divisor.fraction.size(); ++i) {  // n · 10^places is a multiple of value: common factors go
    *value /= std::gcd(*value, 10U);
  }
  const ExprId magnitude = pool.concat(pool.both(unsigned_integer(pool), pool.multiple_of(*value, 0)), zero_fraction(pool));
  return pool.concat(pool.optional(minus(pool)), magnitude);
}

}  // namespace deepinfer::grammar
