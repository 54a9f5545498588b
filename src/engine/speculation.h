// Speculation: when drafts are made, how many are verified, and what came of them. Times and confidences in, numbers out.
// Not here: the drafter (model), proposals and verdicts (engine_drafts.cpp), the choice for given rates and times
// (scheduler/verification.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/options.h"
#include "engine/stats.h"
#include "scheduler/verification.h"

namespace deepinfer::engine {

/// The last few measurements of one thing.
class RecentSeconds {
 public:
  void add(double seconds) { recent_[count_++ % kKept] = static_cast<float>(seconds); }
  [[nodiscard]] std::size_t count() const { return count_; }
  /// Their mean without the slowest fifth: single disturbed steps do not count. There is at least one measurement.
  [[nodiscard]] double typical() const;

 private:
  static constexpr std::size_t kKept = 25;
  std::array<float, kKept> recent_{};
  std::size_t count_ = 0;
};

/// Measured time of a step by its number of rows.
class StepCosts {
 public:
  explicit StepCosts(std::int32_t max_rows);

  void add(std::int32_t num_rows, double seconds);
  /// Of the last measurements; between measured sizes in a straight line, never less than that of a smaller step; 0 below the smallest
  /// measured size and where only one is known.
  [[nodiscard]] double seconds(std::int32_t num_rows) const { return curve_[static_cast<std::size_t>(num_rows)]; }

 private:
  void rebuild();

  std::vector<RecentSeconds> sizes_;  // by rows
  std::vector<double> curve_;         // by rows
  std::int32_t num_since_rebuild_ = 0;
};

/// Whether drafting pays at all, by load: what drafted steps gave is compared with plain steps of the same requests, which are tried now
/// and then.
class DraftGate {
 public:
  /// What the next step shall do with this many decoding requests.
  [[nodiscard]] bool wants_drafts(std::int32_t num_requests);
  /// A step of decoding requests only, with the draft pass before it: tokens and seconds of both, and the seconds of a plain step of as
  /// many requests; 0: not known, then it says nothing.
  void record(std::int32_t num_requests, std::int64_t num_tokens, double seconds, double plain_seconds);

 private:
  struct Load {
    double tokens_per_request = 0;  // of a drafted step, recent mean
    RecentSeconds plain_steps;      // that a drafted step takes as long as
    std::int64_t num_steps = 0;
  };
  [[nodiscard]] Load& load_of(std::int32_t num_requests);

  std::array<Load, 16> loads_;  // by power of two
};

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

  /// Estimated probability that draft `index` is accepted, its predecessors being so.
  [[nodiscard]] float confidence(std::int32_t index, float logit) const;
  /// The same of a draft that a constraint proposes: the part of them that was accepted so far.
  [[nodiscard]] float forced_confidence() const;

  /// Draft `index` was compared with the target's token.
  void record_verdict(std::int32_t index, float confidence_logit, bool accepted);
  /// The same of a draft that a constraint proposed.
  void record_forced(bool accepted);
  /// One request's verification is over.
  void record_round(std::int32_t num_verified, std::int32_t num_accepted);
  /// A step of decoding requests only.
  struct StepReport {
    std::int32_t num_requests = 0;
    std::int32_t num_rows = 0;
    std::int64_t num_tokens = 0;  ///< that came of it, without forced drafts: those would have come of a plain step too
    double seconds = 0;           ///< forward and sampling
    bool drafted = false;         ///< a draft pass came before it
    double draft_seconds = 0;     ///< of that
  };
  void record_step(const StepReport& report);
  void record_draft_pass(double seconds);

  [[nodiscard]] const SpeculationStats& stats() const { return stats_; }

 private:
  bool schedules_ = false;
  bool fits_ = false;
  bool uses_rejection_ = false;
  std::int32_t max_drafts_ = 0;
  std::vector<float> temperatures_;  // [max_drafts]
  std::vector<TemperatureFit> fits_by_position_;
  StepCosts times_;
  DraftGate gate_;
  scheduler::VerificationPlan plan_;
  std::vector<std::int32_t> all_;
  SpeculationStats stats_;
};

}  // namespace deepinfer::engine
