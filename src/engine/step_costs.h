// Measured seconds by size: of a forward by its rows, of a draft pass by its requests. Not here: what is concluded (draft_policy.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::engine {

/// The last few measurements of one thing.
class RecentSeconds {
 public:
  void add(double seconds) { recent_[count_++ % kKept] = static_cast<float>(seconds); }
  [[nodiscard]] std::size_t count() const { return count_ < kKept ? count_ : kKept; }
  /// Their mean, where a single disturbed step counts as half again the median at most. There is at least one measurement.
  [[nodiscard]] double typical() const;

 private:
  static constexpr std::size_t kKept = 16;
  std::array<float, kKept> recent_{};
  std::size_t count_ = 0;
};

/// A curve through measurements that never falls: a larger size takes at least as long, so where measurements say otherwise they are
/// averaged. Between measured sizes it is a straight line. Sizes above 32 are counted in steps of 1/16 of the power of two below.
class StepCosts {
 public:
  explicit StepCosts(std::int32_t max_size);

  /// `size`: 1 to max_size.
  void add(std::int32_t size, double seconds);
  /// 0 as long as nothing is known.
  [[nodiscard]] double seconds(std::int32_t size) const { return curve_[class_of(size)]; }
  /// Whether sizes within a factor of 1.5 have been measured often enough, all together.
  [[nodiscard]] bool knows(std::int32_t size) const;

 private:
  struct SizeClass {
    RecentSeconds recent;
    double typical = 0;
    std::int64_t last_added = 0;  // number of the measurement
  };

  [[nodiscard]] static std::size_t class_of(std::int32_t size);
  [[nodiscard]] static std::int32_t largest_size(std::size_t size_class);
  void rebuild();
  void join_measured();
  void draw_between();

  std::vector<SizeClass> classes_;
  std::vector<double> curve_;  // by class
  struct Knot {
    std::size_t first = 0;  // class
    std::size_t last = 0;
    double seconds = 0;
    double weight = 0;
  };
  std::vector<Knot> knots_;
  std::int64_t num_added_ = 0;
};

}  // namespace deepinfer::engine
