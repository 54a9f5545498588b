// Which way the next step of decoding requests goes: plain, or behind a draft pass with all drafts verified or as many as pay. Learns from
// the steps what rows and draft passes cost and how far confidences can be trusted. Seconds and rates in, choices out.
// Not here: the optimum for given rates and times (scheduler/verification.h), the confidences (speculation.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/stats.h"
#include "engine/step_costs.h"
#include "scheduler/verification.h"

namespace deepinfer::engine {

enum class StepWay : std::uint8_t {
  plain,      ///< no drafts
  scheduled,  ///< as many of them verified as promise the most tokens per second
  full,       ///< all
};

/// A step of decoding requests only.
struct StepReport {
  std::int32_t num_requests = 0;
  std::int32_t num_rows = 0;
  std::int64_t num_tokens = 0;  ///< that came of it
  double seconds = 0;           ///< from its plan to its tokens
  bool drafted = false;         ///< a draft pass came before it
  double draft_seconds = 0;     ///< of that
};

/// The three ways are compared by expected tokens per second. Times are measured ones of forwards by rows and of draft passes by requests;
/// tokens are what confidences promise, times what was accepted of such promises, for each way by itself. A way that is not taken is tried
/// again now and then, so often that it costs half a percent of the time: nearly equal ways often, a bad one seldom.
class DraftPolicy {
 public:
  /// `max_rows`: of one step.
  DraftPolicy(std::int32_t max_drafts, std::int32_t max_rows);

  /// Of draft `index` being accepted, its predecessors being so: its confidence, corrected by what came of confidences at this place.
  [[nodiscard]] double chance(std::int32_t index, double logit) const;
  /// Draft `index` was compared with the target's token.
  void record_verdict(std::int32_t index, double logit, bool accepted);

  /// Whether a draft pass shall be made for the next step.
  [[nodiscard]] bool wants_drafts(std::int32_t num_requests);
  /// It was made: what choose_rows() and note_rates() hear next are proposals of the drafter, not only of constraints.
  void note_pass() { has_pass_ = true; }
  /// Rows of the next step. `rates`: products of chances, of each request's proposal before this one.
  [[nodiscard]] std::int32_t choose_rows(std::span<const scheduler::DraftRates> rates, std::int32_t max_rows);
  /// What the proposals of that step promise, for later steps.
  void note_rates(std::span<const scheduler::DraftRates> rates);
  /// Product of chances of a draft and its predecessors that nothing is known of: the recent mean, 1 before the first.
  [[nodiscard]] double usual_rate(std::int32_t index) const;
  void record(const StepReport& report);
  /// What the choice between the ways is made by.
  [[nodiscard]] WaySpeeds expected(std::int32_t num_requests) const;

 private:
  /// What is added to logits of confidences, so that chances are right on average: Newton's method, one outcome at a time.
  struct Correction {
    double shift = 0;
    double information = 0;
    void learn(double p, bool accepted);
  };
  /// Drafts that were accepted and what had been expected of them; old rounds fade.
  struct Acceptance {
    double accepted = 0;
    double expected = 0;
    void add(double num_accepted, double sum_of_rates, double num_rounds);
  };
  /// What the last choice counted on.
  struct Planned {
    StepWay way = StepWay::plain;
    std::int32_t num_requests = 0;
    std::int32_t num_rows = 0;
    double sum_of_rates = 0;
  };
  /// By number of requests, in powers of two.
  struct Load {
    bool drafts_pay = false;
    std::int32_t num_explored = 0;  // steps that were made to learn their time
  };

  [[nodiscard]] Load& load_of(std::int32_t num_requests);
  [[nodiscard]] std::int32_t all_rows(std::int32_t num_requests) const;
  [[nodiscard]] double drafted_seconds(std::int32_t num_requests, std::int32_t num_rows) const;
  [[nodiscard]] double trust_in(const Acceptance& way) const;
  [[nodiscard]] double even_speed(std::int32_t num_requests) const;
  [[nodiscard]] double full_speed(std::int32_t num_requests) const;
  [[nodiscard]] double plain_speed(std::int32_t num_requests) const;
  [[nodiscard]] double drafted_speed(std::int32_t num_requests) const;
  [[nodiscard]] std::optional<StepWay> unknown_way(std::int32_t num_requests);
  [[nodiscard]] bool may_try(StepWay way, double lost_seconds, double step_seconds);
  [[nodiscard]] Planned choose_way(std::int32_t num_requests, std::int32_t scheduled_rows, std::int32_t most_rows);

  std::int32_t max_drafts_ = 0;
  std::int32_t max_rows_ = 0;
  StepCosts forwards_;  // by rows
  StepCosts passes_;    // by requests
  std::array<Load, 32> loads_;
  std::vector<Correction> corrections_;  // [drafts]
  Acceptance scheduled_;
  Acceptance full_;
  double num_rounds_ = 0;            // of the two means below, at most as many as they remember
  std::vector<double> mean_rates_;   // [drafts + 1]: sum of the first n rates of a request
  double mean_drafts_ = 0;           // of a request
  double advantage_ = 1;             // of steps with drafts over the best even number of drafts, recent mean
  std::array<double, 3> savings_{};  // seconds that a trial may cost, by StepWay
  std::int32_t num_trials_left_ = 0;  // steps with drafts that were begun as a trial
  bool is_cold_ = false;             // the drafter has not run for a while
  bool must_verify_all_ = false;
  bool has_pass_ = false;            // made for the next step
  scheduler::VerificationPlan plan_;
  Planned planned_;
};

}  // namespace deepinfer::engine
