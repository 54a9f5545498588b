// A radix search over the order-preserving integer image of the logits: per digit, count columns and mass per bucket, walk the
// buckets from the top until a limit is reached, go on inside that bucket. Three digits leave columns with equal logits.
#include "sampling/prefix.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iterator>
#include <ranges>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

constexpr int kMaxDigitBits = 11;
constexpr float kNotAllowed = -std::numeric_limits<float>::infinity();

}  // namespace

PrefixSelector::PrefixSelector(std::int32_t vocab_size) : buckets_(std::size_t{1} << kMaxDigitBits) {
  candidates_.reserve(static_cast<std::size_t>(vocab_size));
  selected_.reserve(static_cast<std::size_t>(vocab_size));
}

std::uint32_t PrefixSelector::Digit::of(float logit) const { return (order_key(logit) >> shift) & ((1U << num_bits) - 1U); }

std::int64_t PrefixSelector::Row::mass(std::int32_t column) const {
  return static_cast<std::int64_t>(weights[static_cast<std::size_t>(column)] * units_per_weight);
}

std::span<const std::int32_t> PrefixSelector::select(std::span<const float> logits, std::span<const double> weights,
                                                     double units_per_weight, PrefixLimit limit) {
  check(limit.num_columns >= 1 && limit.mass >= 1, "a prefix has at least one column");
  const Row row{.logits = logits, .weights = weights, .units_per_weight = units_per_weight};
  const auto all = std::views::iota(std::int32_t{0}, static_cast<std::int32_t>(logits.size()));
  constexpr std::array<Digit, 3> kDigits = {{{.shift = 21, .num_bits = 11}, {.shift = 10, .num_bits = 11}, {.shift = 0, .num_bits = 10}}};
  for (const Digit digit : kDigits) {
    const bool first = digit.shift == kDigits.front().shift;
    if (first) {
      count(row, all, digit);
    } else {
      count(row, candidates_, digit);
    }
    const auto bucket = bucket_at(limit, digit);
    if (!bucket) {
      check(first, "a bucket that reaches a limit has a part that does");
      keep_all(row);
      return candidates_;
    }
    const auto inside = [&](std::int32_t column) { return digit.of(row.logits[static_cast<std::size_t>(column)]) == *bucket; };
    if (first) {
      candidates_.clear();
      std::ranges::copy_if(all, std::back_inserter(candidates_), inside);
    } else {
      std::erase_if(candidates_, std::not_fn(inside));
    }
  }
  return cut(row, limit);
}

/// Fills buckets_; columns at −infinity are in none.
template <class Columns>
void PrefixSelector::count(const Row& row, const Columns& columns, Digit digit) {
  std::ranges::fill(buckets_, Bucket{});
  for (const std::int32_t column : columns) {
    const float logit = row.logits[static_cast<std::size_t>(column)];
    if (logit == kNotAllowed) {
      continue;
    }
    Bucket& bucket = buckets_[digit.of(logit)];
    bucket.mass += row.mass(column);
    ++bucket.num_columns;
  }
}

/// The bucket in which a limit is reached; the buckets above it are taken off the limit. nullopt: none is reached.
std::optional<std::uint32_t> PrefixSelector::bucket_at(PrefixLimit& limit, Digit digit) const {
  std::uint32_t index = 1U << digit.num_bits;
  while (index-- > 0) {
    const Bucket& bucket = buckets_[index];
    if (bucket.num_columns >= limit.num_columns || bucket.mass >= limit.mass) {
      return index;
    }
    limit.num_columns -= static_cast<std::int32_t>(bucket.num_columns);
    limit.mass -= bucket.mass;
  }
  return std::nullopt;
}

void PrefixSelector::keep_all(const Row& row) {
  candidates_.clear();
  for (std::size_t c = 0; c < row.logits.size(); ++c) {
    if (row.logits[c] != kNotAllowed) {
      candidates_.push_back(static_cast<std::int32_t>(c));
    }
  }
}

/// The candidates have equal logits: as many of them as the limit asks for, smallest column first, and every larger logit.
std::span<const std::int32_t> PrefixSelector::cut(const Row& row, PrefixLimit limit) {
  const float threshold = row.logits[static_cast<std::size_t>(candidates_.front())];
  const std::int64_t mass_each = row.mass(candidates_.front());
  std::int64_t num_equal = std::min<std::int64_t>(limit.num_columns, static_cast<std::int64_t>(candidates_.size()));
  if (mass_each > 0) {
    num_equal = std::min(num_equal, limit.mass / mass_each + (limit.mass % mass_each != 0 ? 1 : 0));
  }
  selected_.clear();
  for (std::size_t c = 0; c < row.logits.size(); ++c) {
    const bool equal = row.logits[c] == threshold && num_equal > 0;
    if (row.logits[c] > threshold || equal) {
      selected_.push_back(static_cast<std::int32_t>(c));
      num_equal -= equal ? 1 : 0;
    }
  }
  return selected_;
}

}  // namespace deepinfer::sampling
