// Speculation: whether drafts are made, how many are verified, and what came of them. Times and confidences in, numbers out.
// Not here: the drafter (model), proposals and verdicts (engine_drafts.cpp), what is worth its time (draft_policy.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft_policy.h"
#include "engine/options.h"
#include "engine/stats.h"
#include "scheduler/verification.h"

namespace deepinfer::engine {

/// Temperature of one draft position's confidences that makes them most likely, from the last outcomes.
class TemperatureFit {
 public:
  void add(float confidence_logit, bool accepted);
  /// True when there is something new to fit; then once in so many outcomes.
  [[nodiscard]] bool is_due() const { return num_new_ >= kFitEvery; }
  /// In [0.1, 10].
  [[nodiscard]] double fit();

 private:
  static constexpr std::size_t kKept = 1024;
  static constexpr std::int32_t kFitEvery = 256;
  struct Outcome {
    float logit = 0;
    bool accepted = false;
  };
  std::vector<Outcome> outcomes_;
  std::size_t next_ = 0;
  std::int32_t num_new_ = 0;
};

class Speculation {
 public:
  /// `max_rows`: of one step.
  Speculation(const EngineOptions& options, std::int32_t max_rows);

  [[nodiscard]] std::int32_t max_drafts() const { return max_drafts_; }
  [[nodiscard]] bool uses_rejection() const { return uses_rejection_; }

  /// Whether drafts are worth their making for the next step.
  [[nodiscard]] bool wants_drafts(std::int32_t num_requests);
  /// Drafts to verify per request; valid until the next call. `older`: rates of each request's proposal before this one, which decide the
  /// number of rows (no draft can influence whether it is verified); `newer`: of this one, which divide them.
  [[nodiscard]] std::span<const std::int32_t> plan(std::span<const scheduler::DraftRates> older,
                                                   std::span<const scheduler::DraftRates> newer, std::int32_t max_rows);

  /// What the drafter says of draft `index` being accepted, its predecessors being so; and what experience makes of it.
  [[nodiscard]] float confidence(std::int32_t index, float logit) const;
  [[nodiscard]] float chance(std::int32_t index, float logit) const;
  /// Of draft `index` and its predecessors being accepted, where there was no proposal before.
  [[nodiscard]] float usual_rate(std::int32_t index) const { return static_cast<float>(policy_.usual_rate(index)); }
  /// The same of a draft that a constraint proposes: the part of them that was accepted so far.
  [[nodiscard]] float forced_confidence() const;

  /// Draft `index` was compared with the target's token.
  void record_verdict(std::int32_t index, float confidence_logit, bool accepted);
  /// The same of a draft that a constraint proposed.
  void record_forced(bool accepted);
  /// One request's verification is over.
  void record_round(std::int32_t num_verified, std::int32_t num_accepted);
  void record_step(const StepReport& report);
  /// The drafter proposed for the next step.
  void record_draft_pass(double seconds);

  [[nodiscard]] const SpeculationStats& stats() const { return stats_; }

 private:
  [[nodiscard]] double scaled(std::int32_t index, float logit) const;

  bool schedules_ = false;
  bool fits_ = false;
  bool uses_rejection_ = false;
  std::int32_t max_drafts_ = 0;
  std::vector<float> temperatures_;  // [max_drafts]
  std::vector<TemperatureFit> fits_by_position_;
  DraftPolicy policy_;
  scheduler::VerificationPlan plan_;
  std::vector<std::int32_t> all_;
  SpeculationStats stats_;
};

}  // namespace deepinfer::engine
