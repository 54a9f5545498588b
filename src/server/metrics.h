// What /metrics tells (Prometheus text format 0.0.4): requests by API and status, latencies, tokens, and the engine's counters.
// Fed once per request, never per token. Not here: what happens inside a step (engine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/stats.h"
#include "grammar/compile_pool.h"
#include "server/completion.h"
#include "server/served_memory.h"

namespace deepinfer::server {

/// Counts of values at most each bound, as Prometheus has them.
class Histogram {
 public:
  /// `bounds`: ascending.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1, 0) {}

  void observe(double value);
  /// Appends the samples of metric `name`: one _bucket per bound and +Inf, _sum, _count.
  void append(std::string& out, std::string_view name) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;  // per bucket, not cumulative
  double sum_ = 0.0;
};

/// Sizes of what the server keeps, at the time of the question.
struct ServerGauges {
  std::int32_t num_connections = 0;
  std::size_t num_stored_responses = 0;
  std::size_t stored_response_bytes = 0;
  std::size_t num_stored_turns = 0;
  std::size_t stored_turn_bytes = 0;
  grammar::CompileCounters grammars = {};
};

/// The engine behind the server, at the time of the question.
struct EngineView {
  engine::EngineStats stats;
  const ServedMemory& memory;
};

/// Any thread.
class Metrics {
 public:
  Metrics();

  /// One answered request. `api`: "chat", "messages", …, "other".
  void count_request(std::string_view api, int status);
  /// One generation that has ended, whatever its end. Tokens are counted; times only where they exist.
  void count_generation(const CompletionStatistics& statistics);
  /// `engine` is null while no model is there.
  [[nodiscard]] std::string text(const EngineView* engine, const ServerGauges& gauges) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> requests_;
  std::map<std::string, std::uint64_t, std::less<>> finishes_;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t cached_tokens_ = 0;
  std::uint64_t completion_tokens_ = 0;
  std::uint64_t reasoning_tokens_ = 0;
  Histogram ttft_;
  Histogram tpot_;
  Histogram e2e_;
  Histogram compile_;
};

}  // namespace deepinfer::server
