// Preempted requests whose cache is kept in host memory: out when the plan takes it away, back before the launch that goes on with it.
#include <variant>

#include "engine/engine.h"

namespace deepinfer::engine {

/// Right after a plan: what it freed is still as it was, the reads wait for the step under way.
void Engine::save_preempted() {
  for (const scheduler::FreedCache& freed : plan_->freed) {
    const auto seconds = std::chrono::duration<double>(seconds_per_prefill_row_ * freed.num_computed);
    const auto computing = std::chrono::duration_cast<Duration>(seconds);
    const bool is_queued = std::holds_alternative<scheduler::Preempted>(scheduler_.find(freed.request)->state);
    if (is_queued && freed.num_computed > 0 && swapped_.is_worth_saving(freed.blocks.size(), computing)) {
      swapped_.save(freed.request, freed.slot, freed.blocks, *parts_.clock);
      apply(scheduler::Saved{.request = freed.request});
    }
  }
  for (const scheduler::Admission& admission : plan_->admitted) {
    if (!admission.is_first && !admission.is_resumed) {
      swapped_.forget(admission.request);  // the prefix cache had as much
    }
  }
}

void Engine::restore_resumed() {
  for (const scheduler::Admission& admission : plan_->admitted) {
    const auto live = live_.find(admission.request);
    if (admission.is_resumed && live != live_.end() && !live->second.is_finished()) {
      const kvcache::Holding& cache = *scheduler::holding(*scheduler_.find(admission.request));
      swapped_.restore(admission.request, cache.slot, cache.blocks, *parts_.clock);
    }
  }
}

}  // namespace deepinfer::engine
