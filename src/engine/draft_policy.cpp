#include "engine/draft_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace deepinfer::engine {
namespace {

/// Another way is taken when it is better by this factor: measured speeds differ by chance.
constexpr double kClearly = 1.02;
/// Part of the time that trials of one way may cost, and the least that a trial counts as, in steps: one step of ten at a draw.
constexpr double kTrialShare = 0.005;
constexpr double kLeastTrial = 0.05;
/// Accepted drafts of a request and step scatter by two, less from step to step than from text to text: as if there were a quarter of the
/// steps.
constexpr double kDoubt = 4;
/// Steps with drafts in a row, as a trial among plain ones: the first finds the drafter's weights out of the caches.
constexpr std::int32_t kTrialSteps = 3;
/// Steps of one load that are made to learn times; where they are not to be had (prompts in every step) it goes on without.
constexpr std::int32_t kMaxExplored = 12;
/// A way that seems slower by this factor is not looked at for its own sake.
constexpr double kHopeless = 1.7;
/// Verifications that means remember: a few replies.
constexpr double kRemembered = 500;
constexpr double kFirstRounds = 8;
/// Drafts that were as good as their confidences, before any was seen; and of one way, as good as those of all ways.
constexpr double kTrusted = 10;
constexpr double kLikeAll = 100;
/// Of the bits of outcomes, that the confidences themselves count as; and a logit that is as good as certain.
constexpr double kLeastInformation = 4;
constexpr double kMostLogit = 10;

}  // namespace

DraftPolicy::DraftPolicy(std::int32_t max_drafts, std::int32_t max_rows)
    : max_drafts_(max_drafts),
      max_rows_(max_rows),
      forwards_(max_rows),
      passes_(max_rows),
      corrections_(static_cast<std::size_t>(max_drafts)),
      mean_rates_(static_cast<std::size_t>(max_drafts) + 1, 0.0),
      mean_drafts_(max_drafts) {}

void DraftPolicy::Acceptance::add(double num_accepted, double sum_of_rates, double num_rounds) {
  const double fading = std::exp(-num_rounds / kRemembered);
  accepted = fading * accepted + num_accepted;
  expected = fading * expected + sum_of_rates;
}

void DraftPolicy::Correction::learn(double p, bool accepted) {
  information = (1 - 1 / kRemembered) * information + p * (1 - p);
  shift += ((accepted ? 1 : 0) - p) / (information + kLeastInformation);
}

double DraftPolicy::chance(std::int32_t index, double logit) const {
  const double shifted = std::clamp(logit, -kMostLogit, kMostLogit) + corrections_[static_cast<std::size_t>(index)].shift;
  return 1 / (1 + std::exp(-shifted));
}

void DraftPolicy::record_verdict(std::int32_t index, double logit, bool accepted) {
  corrections_[static_cast<std::size_t>(index)].learn(chance(index, logit), accepted);
}

DraftPolicy::Load& DraftPolicy::load_of(std::int32_t num_requests) {
  return loads_[static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(num_requests)))];
}

/// Rows of a step that verifies everything, as far as requests had drafts lately.
std::int32_t DraftPolicy::all_rows(std::int32_t num_requests) const {
  return std::min(max_rows_, num_requests + static_cast<std::int32_t>(std::lround(num_requests * mean_drafts_)));
}

double DraftPolicy::drafted_seconds(std::int32_t num_requests, std::int32_t num_rows) const {
  return forwards_.seconds(num_rows) + passes_.seconds(num_requests);
}

/// Accepted drafts per unit of rate.
double DraftPolicy::trust_in(const Acceptance& way) const {
  const double common = (scheduled_.accepted + full_.accepted + kTrusted) / (scheduled_.expected + full_.expected + kTrusted);
  return (way.accepted + kLikeAll * common) / (way.expected + kLikeAll);
}

double DraftPolicy::full_speed(std::int32_t num_requests) const {
  const double tokens = num_requests * (1 + trust_in(full_) * mean_rates_.back());
  return tokens / drafted_seconds(num_requests, all_rows(num_requests));
}

/// Tokens per second with the best number of drafts, the same for every request.
double DraftPolicy::even_speed(std::int32_t num_requests) const {
  const double trust = trust_in(scheduled_);
  const std::int32_t most_rows = all_rows(num_requests);
  double best = 0;
  for (std::int32_t n = 1; n <= max_drafts_; ++n) {
    const double tokens = num_requests * (1 + trust * mean_rates_[static_cast<std::size_t>(n)]);
    best = std::max(best, tokens / drafted_seconds(num_requests, std::min(most_rows, num_requests * (1 + n))));
  }
  return best;
}

double DraftPolicy::plain_speed(std::int32_t num_requests) const { return num_requests / forwards_.seconds(num_requests); }

/// With the better of both ways of taking drafts.
double DraftPolicy::drafted_speed(std::int32_t num_requests) const {
  return std::max(full_speed(num_requests), advantage_ * even_speed(num_requests));
}

WaySpeeds DraftPolicy::expected(std::int32_t num_requests) const {
  if (forwards_.seconds(num_requests) == 0) {
    return {};
  }
  return {.plain = plain_speed(num_requests), .scheduled = advantage_ * even_speed(num_requests), .full = full_speed(num_requests)};
}

/// The way whose time at this load is to be learnt in the next step, if any. One that looks hopeless from afar is left to trials.
std::optional<StepWay> DraftPolicy::unknown_way(std::int32_t num_requests) {
  Load& load = load_of(num_requests);
  if (load.num_explored >= kMaxExplored) {
    return std::nullopt;
  }
  const bool has_both = forwards_.seconds(num_requests) > 0 && passes_.seconds(num_requests) > 0;
  const double plain = has_both ? plain_speed(num_requests) : 1;
  const double drafted = has_both ? drafted_speed(num_requests) : 1;
  const double full = has_both ? full_speed(num_requests) : 1;
  std::optional<StepWay> out;
  if (!forwards_.knows(num_requests) && kHopeless * plain > drafted) {
    out = StepWay::plain;
  } else if ((!forwards_.knows(all_rows(num_requests)) || num_rounds_ < kFirstRounds) && kHopeless * full > plain) {
    out = StepWay::full;
  } else if (!passes_.knows(num_requests) && kHopeless * drafted > plain) {
    out = StepWay::scheduled;
  }
  load.num_explored += out ? 1 : 0;
  return out;
}

/// Whether enough has been saved for a step that brings its tokens `lost_seconds` later than the best way; then that is spent.
bool DraftPolicy::may_try(StepWay way, double lost_seconds, double step_seconds) {
  double& saved = savings_[static_cast<std::size_t>(way)];
  if (saved < std::max(lost_seconds, kLeastTrial * step_seconds)) {
    return false;
  }
  saved = 0;
  return true;
}

bool DraftPolicy::wants_drafts(std::int32_t num_requests) {
  must_verify_all_ = false;
  if (const auto way = unknown_way(num_requests)) {
    must_verify_all_ = *way == StepWay::full;
    return *way != StepWay::plain;
  }
  const double plain_seconds = forwards_.seconds(num_requests);
  if (plain_seconds == 0) {
    return true;  // no step could be measured
  }
  Load& load = load_of(num_requests);
  const double plain = plain_speed(num_requests);
  const double drafted = drafted_speed(num_requests);
  load.drafts_pay = load.drafts_pay ? kClearly * drafted > plain : drafted > kClearly * plain;
  if (load.drafts_pay) {
    num_trials_left_ = 0;
    return !may_try(StepWay::plain, plain_seconds - num_requests / drafted, plain_seconds);
  }
  if (num_trials_left_ == 0) {
    const double trial_seconds = kTrialSteps * drafted_seconds(num_requests, all_rows(num_requests));
    const double hope = std::min(mean_drafts_, trust_in(full_) * mean_rates_.back() + kDoubt / std::sqrt(std::max(num_rounds_, 1.0)));
    const double lost_seconds = trial_seconds - kTrialSteps * num_requests * (1 + hope) / plain;
    if (!may_try(StepWay::full, lost_seconds, trial_seconds)) {
      is_cold_ = true;
      return false;
    }
    num_trials_left_ = kTrialSteps;
  }
  must_verify_all_ = true;
  --num_trials_left_;
  return true;
}

void DraftPolicy::note_rates(std::span<const scheduler::DraftRates> rates) {
  if (!std::exchange(has_pass_, false)) {
    return;  // a request without drafts in a plain step says nothing of the drafter
  }
  for (const scheduler::DraftRates& request : rates) {
    num_rounds_ = std::min(num_rounds_ + 1, kRemembered);
    double sum = 0;
    for (std::size_t n = 1; n < mean_rates_.size(); ++n) {
      sum += n <= request.rates.size() ? static_cast<double>(request.rates[n - 1]) : 0;
      mean_rates_[n] += (sum - mean_rates_[n]) / num_rounds_;
    }
    mean_drafts_ += (static_cast<double>(request.rates.size()) - mean_drafts_) / num_rounds_;
  }
}

double DraftPolicy::usual_rate(std::int32_t index) const {
  const auto place = static_cast<std::size_t>(index);
  return num_rounds_ == 0 ? 1 : mean_rates_[place + 1] - mean_rates_[place];
}

std::int32_t DraftPolicy::choose_rows(std::span<const scheduler::DraftRates> rates, std::int32_t max_rows) {
  const auto num_requests = static_cast<std::int32_t>(rates.size());
  if (num_requests == 0) {
    return 0;
  }
  const double pass_seconds = has_pass_ ? passes_.seconds(num_requests) : 0;
  const auto seconds = [&](std::int32_t num_rows) { return forwards_.seconds(num_rows) + pass_seconds; };
  const std::int32_t scheduled_rows = plan_.total_rows(rates, max_rows, seconds, trust_in(scheduled_));
  if (!has_pass_) {
    return scheduled_rows;
  }
  std::size_t num_drafts = 0;
  for (const scheduler::DraftRates& request : rates) {
    num_drafts += request.rates.size();
  }
  const std::int32_t most_rows = std::max(num_requests, std::min(max_rows, num_requests + static_cast<std::int32_t>(num_drafts)));
  planned_ = choose_way(num_requests, scheduled_rows, most_rows);
  return planned_.num_rows;
}

DraftPolicy::Planned DraftPolicy::choose_way(std::int32_t num_requests, std::int32_t scheduled_rows, std::int32_t most_rows) {
  const Planned scheduled{.way = StepWay::scheduled,
                          .num_requests = num_requests,
                          .num_rows = scheduled_rows,
                          .sum_of_rates = plan_.sum_of_rates(scheduled_rows)};
  const Planned full{
      .way = StepWay::full, .num_requests = num_requests, .num_rows = most_rows, .sum_of_rates = plan_.sum_of_rates(most_rows)};
  if (forwards_.seconds(most_rows) == 0) {
    return full;
  }
  const double scheduled_seconds = drafted_seconds(num_requests, scheduled_rows);
  const double full_seconds = drafted_seconds(num_requests, most_rows);
  const double scheduled_tokens = num_requests + trust_in(scheduled_) * scheduled.sum_of_rates;
  const double full_tokens = num_requests + trust_in(full_) * full.sum_of_rates;
  const double scheduled_speed = scheduled_tokens / scheduled_seconds;
  const double full_speed = full_tokens / full_seconds;
  advantage_ += (std::max(scheduled_speed, full_speed) / even_speed(num_requests) - advantage_) * std::min(1.0, num_requests / kRemembered);
  if (must_verify_all_ || scheduled_rows == most_rows) {
    return full;
  }
  if (full_speed > kClearly * scheduled_speed) {
    return may_try(StepWay::scheduled, scheduled_seconds - scheduled_tokens / full_speed, scheduled_seconds) ? scheduled : full;
  }
  return may_try(StepWay::full, full_seconds - full_tokens / scheduled_speed, full_seconds) ? full : scheduled;
}

void DraftPolicy::record(const StepReport& report) {
  forwards_.add(report.num_rows, report.seconds);
  for (double& saved : savings_) {
    saved += kTrialShare * (report.seconds + report.draft_seconds);
  }
  if (!report.drafted) {
    return;
  }
  if (!is_cold_) {
    passes_.add(report.num_requests, report.draft_seconds);
  }
  is_cold_ = false;
  if (report.num_requests == planned_.num_requests && report.num_rows == planned_.num_rows) {
    Acceptance& way = planned_.way == StepWay::full ? full_ : scheduled_;
    way.add(static_cast<double>(report.num_tokens - report.num_requests), planned_.sum_of_rates, report.num_requests);
  }
}

}  // namespace deepinfer::engine
