#include "engine/speculation.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::engine {
namespace {

constexpr double kMostLogit = 60;
constexpr double kLeastTemperature = 1e-5;

}  // namespace

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
      policy_(max_drafts_, max_rows) {
  temperatures_.resize(static_cast<std::size_t>(max_drafts_), temperatures_.size() == 1 ? temperatures_.front() : 1.0F);
}

bool Speculation::wants_drafts(std::int32_t num_requests) {
  if (num_requests == 0 || !schedules_) {
    return num_requests > 0;
  }
  stats_.expected = policy_.expected(num_requests);
  return policy_.wants_drafts(num_requests);
}

std::span<const std::int32_t> Speculation::plan(std::span<const scheduler::DraftRates> older, std::span<const scheduler::DraftRates> newer,
                                                std::int32_t max_rows) {
  if (!schedules_) {
    all_.clear();
    for (const scheduler::DraftRates& request : newer) {
      all_.push_back(static_cast<std::int32_t>(request.rates.size()));
    }
    return all_;
  }
  const std::span<const std::int32_t> num_drafts = plan_.divide(newer, policy_.choose_rows(older, max_rows));
  policy_.note_rates(newer);
  return num_drafts;
}

double Speculation::scaled(std::int32_t index, float logit) const {
  const double temperature = std::max(static_cast<double>(temperatures_[static_cast<std::size_t>(index)]), kLeastTemperature);
  return std::clamp(static_cast<double>(logit) / temperature, -kMostLogit, kMostLogit);
}

float Speculation::confidence(std::int32_t index, float logit) const {
  return static_cast<float>(1.0 / (1.0 + std::exp(-scaled(index, logit))));
}

float Speculation::chance(std::int32_t index, float logit) const { return static_cast<float>(policy_.chance(index, scaled(index, logit))); }

void Speculation::record_verdict(std::int32_t index, float confidence_logit, bool accepted) {
  const auto place = std::min(static_cast<std::size_t>(index), SpeculationStats::kPositions - 1);
  const double estimate = static_cast<double>(confidence(index, confidence_logit));
  ++stats_.num_judged[place];
  stats_.num_accepted_at[place] += accepted ? 1 : 0;
  stats_.confidence_sum[place] += estimate;
  stats_.confidence_error += std::abs((accepted ? 1.0 : 0.0) - estimate);
  policy_.record_verdict(index, scaled(index, confidence_logit), accepted);
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

void Speculation::record_step(const StepReport& report) { policy_.record(report); }

void Speculation::record_draft_pass(double seconds) {
  policy_.note_pass();
  ++stats_.num_draft_passes;
  stats_.draft_seconds += seconds;
}

}  // namespace deepinfer::engine
