// Forwards that were recorded on the device, by the shape of their step: issuing about a thousand small pieces of work again costs one
// call. A shape runs once as it is, is recorded when it comes again, and is replayed from then on.
// Not here: what a step does (forward.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "ops/device.h"

namespace deepinfer::model {

/// Everything that sizes of work and places of tables depend on, besides what is fixed for the model.
struct StepShape {
  std::int32_t rows = 0, chunks = 0, logit_rows = 0;
  std::int32_t groups_1 = 0, groups_2 = 0;  ///< compressed rows completed at ratios 1 and 2
  std::int32_t table_blocks = 0;            ///< columns of the block tables
  bool has_rectangle = false;               ///< the decoder half has tables of its own
  bool is_draft = false;                    ///< a pass of the drafter
  bool draws_drafts = false;                ///< with its tokens

  auto operator<=>(const StepShape&) const = default;
};

class RecordedSteps {
 public:
  /// Runs `issue`, or replays what it issued for an equal shape before.
  template <class Issue>
  void run(const StepShape& shape, Stream& stream, const Issue& issue) {
    const auto found = steps_.find(shape);
    if (found == steps_.end()) {
      issue();
      remember(shape);
      return;
    }
    found->second.last_use = ++clock_;
    if (found->second.recording == nullptr) {
      if (!stream.begin_recording()) {
        issue();
        return;
      }
      issue();
      found->second.recording = stream.end_recording();
      if (found->second.recording == nullptr) {
        return;  // the device has a fault
      }
    }
    stream.replay(*found->second.recording);
  }

 private:
  static constexpr std::size_t kMaxSteps = 256;

  struct Step {
    std::unique_ptr<Recording> recording;
    std::uint64_t last_use = 0;
  };

  /// Makes room by forgetting the shape that was not used for longest.
  void remember(const StepShape& shape) {
    if (steps_.size() >= kMaxSteps) {
      auto oldest = steps_.begin();
      for (auto step = steps_.begin(); step != steps_.end(); ++step) {
        oldest = step->second.last_use < oldest->second.last_use ? step : oldest;
      }
      steps_.erase(oldest);
    }
    steps_[shape].last_use = ++clock_;
  }

  std::map<StepShape, Step> steps_;
  std::uint64_t clock_ = 0;
};

}  // namespace deepinfer::model
