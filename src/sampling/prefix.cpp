// A radix search over the order-preserving integer image of the logits: per digit, count columns and mass per bucket, walk the
// buckets from the top until a limit is reached, go on inside that bucket. Three digits leave columns with equal logits.
#include "sampling/prefix.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/check.h"

namespace deepinfer::sampling {
namespace {

constexpr int kMaxDigitBits = 11;

/// Orders like the logits, with −0 equal to +0.
std::uint32_t order_key(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);
  return bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U);
}

std::uint32_t digit_of(float logit, int shift, int num_bits) { return (order_key(logit) >> shift) & ((1U << num_bits) - 1U); }

}  // namespace

PrefixSelector::PrefixSelector(std::int32_t vocab_size) : buckets_(std::size_t{1} << kMaxDigitBits) {
  candidates_.reserve(static_cast<std::size_t>(vocab_size));
  selected_.reserve(static_cast<std::size_t>(vocab_size));
}

std::int64_t PrefixSelector::Row::mass(std::int32_t column) const {
  return static_cast<std::int64_t>(weights[static_cast<std::size_t>(column)] * units_per_weight);
}

std::span<const std::int32_t> PrefixSelector::select(std::span<const float> logits, std::span<const double> weights,
                                                     double units_per_weight, PrefixLimit limit) {
  check(limit.num_columns >= 1 && limit.mass >= 1, "a prefix has at least one column");
  const Row row{.logits = logits, .weights = weights, .units_per_weight = units_per_weight};
  collect_all(row);
  if (!narrow(row, 21, 11, limit)) {
    return candidates_;
  }
  check(narrow(row, 10, 11, limit) && narrow(row, 0, 10, limit), "a bucket that reaches a limit has a part that does");
  return cut(row, limit);
}

void PrefixSelector::collect_all(const Row& row) {
  candidates_.clear();
  for (std::size_t c = 0; c < row.logits.size(); ++c) {
    if (row.logits[c] > -std::numeric_limits<float>::infinity()) {
      candidates_.push_back(static_cast<std::int32_t>(c));
    }
  }
}

/// Keeps the candidates of the bucket in which a limit is reached and takes the buckets above it off the limit; false when no
/// limit is reached.
bool PrefixSelector::narrow(const Row& row, int shift, int num_bits, PrefixLimit& limit) {
  std::ranges::fill(buckets_, Bucket{});
  for (const std::int32_t column : candidates_) {
    Bucket& bucket = buckets_[digit_of(row.logits[static_cast<std::size_t>(column)], shift, num_bits)];
    bucket.mass += row.mass(column);
    ++bucket.num_columns;
  }
  std::uint32_t digit = 1U << num_bits;
  while (digit-- > 0) {
    const Bucket& bucket = buckets_[digit];
    if (bucket.num_columns >= limit.num_columns || bucket.mass >= limit.mass) {
      std::erase_if(candidates_,
                    [&](std::int32_t column) { return digit_of(row.logits[static_cast<std::size_t>(column)], shift, num_bits) != digit; });
      return true;
    }
    limit.num_columns -= static_cast<std::int32_t>(bucket.num_columns);
    limit.mass -= bucket.mass;
  }
  return false;
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
