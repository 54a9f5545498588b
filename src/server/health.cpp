// ApiServer::health: the phase, and whether the engine moves.
#include <chrono>

#include "base/clock.h"
#include "base/json.h"
#include "server/api_server.h"

namespace deepinfer::server {
namespace {

Response unavailable(json::Object body) {
  return {.status = 503, .body = json::to_text(std::move(body)), .headers = {{"Retry-After", "1"}}};
}

}  // namespace

Response ApiServer::health(const ServedModel* model) const {
  Phase phase = Phase::loading;
  {
    const std::scoped_lock lock(mutex_);
    phase = phase_;
  }
  if (model == nullptr || phase == Phase::loading) {
    return unavailable({{"status", "loading"}});
  }
  const engine::EngineStats stats = model->engine->stats();
  const Duration since_progress = SteadyClock().now() - stats.last_progress;
  const bool is_stuck = stats.num_running + stats.num_waiting > 0 && since_progress > options_.watchdog;
  const bool has_failed = !stats.fault.empty();
  json::Object body{
      {"status", has_failed ? "failed" : phase == Phase::draining ? "draining" : is_stuck ? "stuck" : "ok"},
      {"steps", stats.num_steps},
      {"last_progress_ms", static_cast<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since_progress).count())},
      {"requests_running", stats.num_running},
      {"requests_waiting", stats.num_waiting},
      {"requests_finished", stats.num_finished},
      {"requests_failed", stats.num_failed},
      {"preemptions", stats.num_preemptions},
      {"prompt_tokens", stats.num_prefill_tokens},
      {"generated_tokens", stats.num_generated_tokens},
      {"blocks_used", stats.num_blocks_used},
      {"blocks", stats.num_blocks},
      {"slots_used", stats.num_slots_used},
      {"slots", stats.num_slots},
      {"connections", http_->num_connections()},
  };
  return phase == Phase::draining || is_stuck || has_failed ? unavailable(std::move(body)) : Response{.body = json::to_text(std::move(body))};
}

}  // namespace deepinfer::server
