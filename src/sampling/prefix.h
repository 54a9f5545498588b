// The shortest prefix of a row in order (logit descending, column ascending) that reaches a number of columns or a mass:
// top-k, top-p and the largest columns are this one question (engine.md §9.2).
// Parses as C++20: device code includes it.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace deepinfer::sampling {

/// Mass is counted in whole units of 2⁻³¹ of the row's total, rounded down per column.
inline constexpr double kMassUnits = 2147483648.0;

/// Orders like the logits, with −0 equal to +0.
[[nodiscard]] constexpr std::uint32_t order_key(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);
  return bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U);
}

struct PrefixLimit {
  std::int32_t num_columns = std::numeric_limits<std::int32_t>::max();
  std::int64_t mass = std::numeric_limits<std::int64_t>::max();  ///< units; at least 1
};

class PrefixSelector {
 public:
  explicit PrefixSelector(std::int32_t vocab_size);

  /// Columns of the prefix, ascending; all columns above −infinity when neither limit is reached. Valid until the next call.
  /// logits, weights: [vocab]; the mass of column c is floor(weights[c] · units_per_weight), non-decreasing in its logit.
  [[nodiscard]] std::span<const std::int32_t> select(std::span<const float> logits, std::span<const double> weights,
                                                     double units_per_weight, PrefixLimit limit);

 private:
  struct Bucket {
    std::int64_t mass = 0;
    std::int64_t num_columns = 0;
  };
  /// A part of the order-preserving integer image of a logit.
  struct Digit {
    int shift = 0;
    int num_bits = 0;

    [[nodiscard]] std::uint32_t of(float logit) const;
  };
  struct Row {
    std::span<const float> logits;
    std::span<const double> weights;
    double units_per_weight = 0.0;

    [[nodiscard]] std::int64_t mass(std::int32_t column) const;
  };

  void keep_all(const Row& row);
  template <class Columns>
  void count(const Row& row, const Columns& columns, Digit digit);
  [[nodiscard]] std::optional<std::uint32_t> bucket_at(PrefixLimit& limit, Digit digit) const;
  [[nodiscard]] std::span<const std::int32_t> cut(const Row& row, PrefixLimit limit);

  std::vector<std::int32_t> candidates_;  // columns whose leading digits equal those of the threshold
  std::vector<std::int32_t> selected_;
  std::vector<Bucket> buckets_;
};

}  // namespace deepinfer::sampling
