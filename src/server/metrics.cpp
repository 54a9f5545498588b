#include "server/metrics.h"

#include <algorithm>
#include <array>

#include "server/metrics_page.h"

namespace deepinfer::server {
namespace {

// Bounds in seconds: from what a small model on a fast device needs to what a long queue costs.
constexpr std::array kFirstTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0};
constexpr std::array kPerTokenBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0};
constexpr std::array kWholeBounds = {0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0};
constexpr std::array kCompileBounds = {0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 20.0};

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Histogram::observe(double value) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

void Histogram::append(std::string& out, std::string_view name) const {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? metric_number(bounds_[i]) : "+Inf";
    out.append(name).append("_bucket{le=\"").append(bound).append("\"} ").append(std::to_string(below)).append("\n");
  }
  out.append(name).append("_sum ").append(metric_number(sum_)).append("\n");
  out.append(name).append("_count ").append(std::to_string(below)).append("\n");
}

Metrics::Metrics() : ttft_(kFirstTokenBounds), tpot_(kPerTokenBounds), e2e_(kWholeBounds), compile_(kCompileBounds) {}

void Metrics::count_request(std::string_view api, int status) {
  const std::scoped_lock lock(mutex_);
  ++requests_[{std::string(api), status}];
}

void Metrics::count_generation(const CompletionStatistics& statistics) {
  const std::scoped_lock lock(mutex_);
  ++finishes_[std::string(statistics.finish)];
  prompt_tokens_ += statistics.prompt_tokens;
  cached_tokens_ += statistics.cached_tokens;
  completion_tokens_ += statistics.completion_tokens;
  reasoning_tokens_ += statistics.reasoning_tokens;
  if (statistics.compile_time != Duration{}) {
    compile_.observe(seconds(statistics.compile_time));
  }
  if (statistics.to_first_token == Duration{}) {
    return;
  }
  ttft_.observe(seconds(statistics.to_first_token));
  e2e_.observe(seconds(statistics.to_last_token));
  if (statistics.completion_tokens > 1) {
    tpot_.observe(seconds(statistics.to_last_token - statistics.to_first_token) / static_cast<double>(statistics.completion_tokens - 1));
  }
}

std::string Metrics::text(const EngineView* engine, const ServerGauges& gauges) const {
  const std::scoped_lock lock(mutex_);
  MetricsPage page;
  page.head("requests_total", "counter", "Answered requests by API and HTTP status; 0: the client left before one was sent");
  for (const auto& [key, count] : requests_) {
    page.sample("requests_total", "api=\"" + key.first + "\",status=\"" + std::to_string(key.second) + "\"",
                static_cast<std::int64_t>(count));
  }
  page.head("generations_total", "counter", "Generations by how they ended");
  for (const auto& [finish, count] : finishes_) {
    page.sample("generations_total", "finish=\"" + finish + "\"", static_cast<std::int64_t>(count));
  }
  page.counter("prompt_tokens_total", "Tokens of prompts", prompt_tokens_);
  page.counter("cached_tokens_total", "Tokens of prompts that were not computed because they were cached", cached_tokens_);
  page.counter("completion_tokens_total", "Tokens of replies", completion_tokens_);
  page.counter("reasoning_tokens_total", "Tokens of replies that were reasoning", reasoning_tokens_);
  const auto histogram = [&page](std::string_view name, std::string_view help, const Histogram& values) {
    page.head(name, "histogram", help);
    values.append(page.text(), "deepinfer_" + std::string(name));
  };
  histogram("request_ttft_seconds", "From the arrival of a request to its first token", ttft_);
  histogram("request_tpot_seconds", "Per token after the first, average of a request", tpot_);
  histogram("request_e2e_seconds", "From the arrival of a request to its last token", e2e_);
  histogram("grammar_compile_seconds", "Waiting for the constraint of a request, those known already not counted", compile_);
  page.counter("grammar_cache_hits_total", "Constraints that were compiled already", static_cast<std::int64_t>(gauges.grammars.num_hits));
  page.counter("grammar_cache_misses_total", "Constraints that were compiled", static_cast<std::int64_t>(gauges.grammars.num_misses));
  page.gauge("grammar_cache_bytes", "Memory of compiled constraints and of what matchers left warm for the next",
             static_cast<std::int64_t>(gauges.grammars.cache_bytes));
  if (engine != nullptr) {
    append_engine(page, *engine);
  }
  page.gauge("connections", "Open connections", gauges.num_connections);
  page.gauge("stored_responses", "Responses kept for their ids", static_cast<std::int64_t>(gauges.num_stored_responses));
  page.gauge("stored_response_bytes", "Memory of these", static_cast<std::int64_t>(gauges.stored_response_bytes));
  page.gauge("stored_turns", "Tool turns kept to be rendered as they were generated", static_cast<std::int64_t>(gauges.num_stored_turns));
  page.gauge("stored_turn_bytes", "Memory of these", static_cast<std::int64_t>(gauges.stored_turn_bytes));
  return std::move(page).take();
}

}  // namespace deepinfer::server
