#include "engine/speculation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace deepinfer::engine {
namespace {

/// Measurements of one size before it counts, and between two looks at all of them.
constexpr std::size_t kMinMeasurements = 3;
constexpr std::int32_t kRebuildEvery = 8;

/// The other way is tried for kTrial steps of kTrialEvery.
constexpr std::int64_t kTrialEvery = 200;
constexpr std::int64_t kTrial = 5;
/// Weight of the newest step in the mean of its tokens.
constexpr double kNewest = 0.02;
/// Drafts must be faster by this factor: at a draw plain steps waste less.
constexpr double kAdvantage = 1.03;

constexpr double kMostLogit = 60;
constexpr double kLeastTemperature = 1e-5;

}  // namespace

// --- StepCosts ----------------------------------------------------------------------------------------------------

StepCosts::StepCosts(std::int32_t max_rows)
    : sizes_(static_cast<std::size_t>(max_rows) + 1), curve_(static_cast<std::size_t>(max_rows) + 1, 0.0) {}

double RecentSeconds::typical() const {
  std::array<float, kKept> sorted = recent_;
  const std::size_t num_kept = std::min(count_, kKept);
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(num_kept));
  const std::size_t num_counted = num_kept - num_kept / 5;
  return std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(num_counted), 0.0) / static_cast<double>(num_counted);
}

void StepCosts::add(std::int32_t num_rows, double seconds) {
  RecentSeconds& size = sizes_[static_cast<std::size_t>(num_rows)];
  size.add(seconds);
  if (++num_since_rebuild_ >= kRebuildEvery || size.count() == kMinMeasurements) {
    rebuild();
  }
}

void StepCosts::rebuild() {
  num_since_rebuild_ = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  for (std::size_t rows = 1; rows < sizes_.size(); ++rows) {
    if (sizes_[rows].count() < kMinMeasurements) {
      continue;
    }
    const double seconds = std::max(sizes_[rows].typical(), last == 0 ? 0.0 : curve_[last]);
    curve_[rows] = seconds;
    for (std::size_t between = last + 1; last != 0 && between < rows; ++between) {
      const double part = static_cast<double>(between - last) / static_cast<double>(rows - last);
      curve_[between] = curve_[last] + part * (seconds - curve_[last]);
    }
    first = first == 0 ? rows : first;
    last = rows;
  }
  if (last == first) {
    std::ranges::fill(curve_, 0.0);
    return;
  }
  const double slope = (curve_[last] - curve_[first]) / static_cast<double>(last - first);
  for (std::size_t rows = last + 1; rows < sizes_.size(); ++rows) {
    curve_[rows] = curve_[rows - 1] + slope;
  }
}

// --- DraftGate ----------------------------------------------------------------------------------------------------

DraftGate::Load& DraftGate::load_of(std::int32_t num_requests) {
  const auto width = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(num_requests)));
  return loads_[std::min(width, loads_.size() - 1)];
}

bool DraftGate::wants_drafts(std::int32_t num_requests) {
  Load& load = load_of(num_requests);
  const std::int64_t step = load.num_steps++;
  const bool drafts_pay = load.plain_steps.count() == 0 || load.tokens_per_request > kAdvantage * load.plain_steps.typical();
  // The first steps are plain, so that there is something to compare with.
  const bool is_trial = step % kTrialEvery >= kTrialEvery - kTrial;
  return step >= kTrial && drafts_pay != is_trial;
}

void DraftGate::record(std::int32_t num_requests, std::int64_t num_tokens, double seconds, double plain_seconds) {
  if (plain_seconds <= 0) {
    return;
  }
  Load& load = load_of(num_requests);
  const double weight = std::max(kNewest, 1.0 / static_cast<double>(load.plain_steps.count() + 1));
  load.tokens_per_request += weight * (static_cast<double>(num_tokens) / num_requests - load.tokens_per_request);
  load.plain_steps.add(seconds / plain_seconds);
}

// --- TemperatureFit -----------------------------------------------------------------------------------------------

void TemperatureFit::add(float confidence_logit, bool accepted) {
  if (outcomes_.size() < kKept) {
    outcomes_.push_back({confidence_logit, accepted});
  } else {
    outcomes_[next_] = {confidence_logit, accepted};
    next_ = (next_ + 1) % kKept;
  }
  ++num_new_;
}

double TemperatureFit::fit() {
  num_new_ = 0;
  const auto loss = [this](double log_temperature) {
    double sum = 0;
    for (const Outcome& outcome : outcomes_) {
      const double x = std::clamp(static_cast<double>(outcome.logit) / std::exp(log_temperature), -kMostLogit, kMostLogit);
      sum += std::log1p(std::exp(outcome.accepted ? -x : x));
    }
    return sum;
  };
  // The loss is convex in 1 / temperature, so it has one valley in the logarithm too.
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(0.1);
  double high = std::log(10.0);
  for (int i = 0; i < 24; ++i) {
    const double a = high - kGolden * (high - low);
    const double b = low + kGolden * (high - low);
    (loss(a) < loss(b) ? high : low) = loss(a) < loss(b) ? b : a;
  }
  return std::exp((low + high) / 2);
}

// --- Speculation --------------------------------------------------------------------------------------------------

Speculation::Speculation(const EngineOptions& options, std::int32_t max_rows)
    : schedules_(options.speculation == SpeculationMode::confidence),
      fits_(options.fit_confidence),
      uses_rejection_(options.verification_rule == VerificationRule::rejection),
      max_drafts_(options.max_drafts),
      temperatures_(options.confidence_temperatures.begin(), options.confidence_temperatures.end()),
      fits_by_position_(static_cast<std::size_t>(max_drafts_)),
      times_(max_rows) {
  temperatures_.resize(static_cast<std::size_t>(max_drafts_), temperatures_.size() == 1 ? temperatures_.front() : 1.0F);
}

bool Speculation::wants_drafts(std::int32_t num_requests) { return num_requests > 0 && (!schedules_ || gate_.wants_drafts(num_requests)); }

std::span<const std::int32_t> Speculation::plan(std::span<const scheduler::DraftRates> older, std::span<const scheduler::DraftRates> newer,
                                                std::int32_t max_rows) {
  if (!schedules_) {
    all_.clear();
    for (const scheduler::DraftRates& request : newer) {
      all_.push_back(static_cast<std::int32_t>(request.rates.size()));
    }
    return all_;
  }
  const std::int32_t rows = plan_.total_rows(older, max_rows, [this](std::int32_t n) { return times_.seconds(n); });
  return plan_.divide(newer, rows);
}

float Speculation::confidence(std::int32_t index, float logit) const {
  const double temperature = std::max(static_cast<double>(temperatures_[static_cast<std::size_t>(index)]), kLeastTemperature);
  const double x = std::clamp(static_cast<double>(logit) / temperature, -kMostLogit, kMostLogit);
  return static_cast<float>(1.0 / (1.0 + std::exp(-x)));
}

void Speculation::record_verdict(std::int32_t index, float confidence_logit, bool accepted) {
  const auto place = std::min(static_cast<std::size_t>(index), SpeculationStats::kPositions - 1);
  const double estimate = static_cast<double>(confidence(index, confidence_logit));
  ++stats_.num_judged[place];
  stats_.num_accepted_at[place] += accepted ? 1 : 0;
  stats_.confidence_sum[place] += estimate;
  stats_.confidence_error += std::abs((accepted ? 1.0 : 0.0) - estimate);
  if (fits_) {
    TemperatureFit& fit = fits_by_position_[static_cast<std::size_t>(index)];
    fit.add(confidence_logit, accepted);
    if (fit.is_due()) {
      temperatures_[static_cast<std::size_t>(index)] = static_cast<float>(fit.fit());
    }
  }
}

float Speculation::forced_confidence() const {
  // As if kBelieved of kBelieved + 1 had been accepted before: the model mostly parts words as its tokenizer does.
  constexpr double kBelieved = 19;
  return static_cast<float>((static_cast<double>(stats_.num_forced_accepted) + kBelieved) /
                            (static_cast<double>(stats_.num_forced) + kBelieved + 1));
}

void Speculation::record_forced(bool accepted) {
  ++stats_.num_forced;
  stats_.num_forced_accepted += accepted ? 1 : 0;
}

void Speculation::record_round(std::int32_t num_verified, std::int32_t num_accepted) {
  ++stats_.num_rounds;
  stats_.num_verified += num_verified;
  stats_.num_accepted += num_accepted;
  ++stats_.accepted_lengths[std::min(static_cast<std::size_t>(num_accepted), SpeculationStats::kPositions)];
}

void Speculation::record_step(const StepReport& report) {
  times_.add(report.num_rows, report.seconds);
  if (report.drafted) {
    gate_.record(report.num_requests, report.num_tokens, report.seconds + report.draft_seconds, times_.seconds(report.num_requests));
  }
}

void Speculation::record_draft_pass(double seconds) {
  ++stats_.num_draft_passes;
  stats_.draft_seconds += seconds;
}

}  // namespace deepinfer::engine
