#include "engine/step_costs.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

/// Measurements near a size before it is known.
constexpr std::size_t kEnoughMeasurements = 2;
/// A disturbed step counts as this many medians.
constexpr double kMostMedians = 1.5;
/// What was measured so many measurements ago has half the weight.
constexpr double kHalfLife = 500;
/// Size classes per power of two, beyond the sizes that have one each.
constexpr std::int32_t kPerOctave = 16;

}  // namespace

double RecentSeconds::typical() const {
  std::array<float, kKept> sorted = recent_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(count());
  std::sort(sorted.begin(), end);
  const double most = kMostMedians * static_cast<double>(sorted[(count() - 1) / 2]);
  double sum = 0;
  for (auto value = sorted.begin(); value != end; ++value) {
    sum += std::min(static_cast<double>(*value), most);
  }
  return sum / static_cast<double>(count());
}

StepCosts::StepCosts(std::int32_t max_size) : classes_(class_of(max_size) + 1), curve_(classes_.size(), 0.0) {
  knots_.reserve(classes_.size());
}

/// 1, 2, … 32, then those up to 34, 36, … 64, up to 68, 72, … 128, and so on.
std::size_t StepCosts::class_of(std::int32_t size) {
  if (size <= kPerOctave) {
    return static_cast<std::size_t>(size);
  }
  const auto octave = std::bit_width(static_cast<std::uint32_t>(size - 1)) - std::bit_width(static_cast<std::uint32_t>(kPerOctave));
  const std::int32_t width = 1 << octave;
  const std::int32_t above = size - (kPerOctave << octave);
  return static_cast<std::size_t>(kPerOctave * (octave + 1) + (above + width - 1) / width);
}

std::int32_t StepCosts::largest_size(std::size_t size_class) {
  const auto number = static_cast<std::int32_t>(size_class);
  if (number <= kPerOctave) {
    return number;
  }
  const std::int32_t octave = (number - 1) / kPerOctave - 1;
  return (kPerOctave << octave) + (number - kPerOctave * (octave + 1)) * (1 << octave);
}

void StepCosts::add(std::int32_t size, double seconds) {
  check(size >= 1 && class_of(size) < classes_.size(), "the size is one that was announced");
  SizeClass& measured = classes_[class_of(size)];
  measured.recent.add(seconds);
  const double before = curve_[class_of(size)];  // by its neighbours, so that a single disturbed step is seen as such
  measured.typical = measured.recent.count() > 1 ? measured.recent.typical() : std::min(seconds, kMostMedians * before);
  measured.last_added = ++num_added_;
  rebuild();
}

bool StepCosts::knows(std::int32_t size) const {
  const std::size_t last = std::min(class_of(size + size / 2), classes_.size() - 1);
  std::size_t count = 0;
  for (std::size_t c = class_of(size - size / 3); c <= last; ++c) {
    count += classes_[c].recent.count();
  }
  return count >= kEnoughMeasurements;
}

void StepCosts::rebuild() {
  join_measured();
  if (!knots_.empty()) {
    draw_between();
  }
}

/// Isotonic regression: neighbours in the wrong order become one, with their weighted mean.
void StepCosts::join_measured() {
  knots_.clear();
  for (std::size_t c = 1; c < classes_.size(); ++c) {
    const SizeClass& measured = classes_[c];
    if (measured.typical == 0) {
      continue;
    }
    const double age = static_cast<double>(num_added_ - measured.last_added);
    Knot knot{
        .first = c, .last = c, .seconds = measured.typical, .weight = static_cast<double>(measured.recent.count()) / (1 + age / kHalfLife)};
    while (!knots_.empty() && knots_.back().seconds >= knot.seconds) {
      const Knot& before = knots_.back();
      const double weight = before.weight + knot.weight;
      knot = {.first = before.first,
              .last = knot.last,
              .seconds = (before.weight * before.seconds + knot.weight * knot.seconds) / weight,
              .weight = weight};
      knots_.pop_back();
    }
    knots_.push_back(knot);
  }
}

void StepCosts::draw_between() {
  std::fill(curve_.begin(), curve_.begin() + static_cast<std::ptrdiff_t>(knots_.front().first), knots_.front().seconds);
  for (std::size_t k = 0; k < knots_.size(); ++k) {
    const Knot& knot = knots_[k];
    std::fill(curve_.begin() + static_cast<std::ptrdiff_t>(knot.first), curve_.begin() + static_cast<std::ptrdiff_t>(knot.last) + 1,
              knot.seconds);
    // Behind the last knot goes on what the whole curve does.
    const bool is_last = k + 1 == knots_.size();
    const Knot& from = is_last ? knots_.front() : knot;
    const Knot& to = is_last ? knot : knots_[k + 1];
    const std::int32_t rise_begin = largest_size(is_last ? from.first : from.last);
    const std::int32_t rise_end = largest_size(is_last ? to.last : to.first);
    const double slope = rise_end > rise_begin ? (to.seconds - from.seconds) / (rise_end - rise_begin) : 0;
    const std::size_t end = is_last ? curve_.size() : to.first;
    for (std::size_t c = knot.last + 1; c < end; ++c) {
      curve_[c] = knot.seconds + slope * (largest_size(c) - largest_size(knot.last));
    }
  }
}

}  // namespace deepinfer::engine
