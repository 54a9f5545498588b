// The text of /metrics while it is written: names, help lines, samples. Not here: which metrics there are (metrics.cpp,
// metrics_engine.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace deepinfer::server {

struct EngineView;

/// Shortest text that reads back equal.
[[nodiscard]] std::string metric_number(double value);

/// One metric after another; every name gets the prefix deepinfer_. `labels`: `a="b",c="d"`.
class MetricsPage {
 public:
  void head(std::string_view name, std::string_view type, std::string_view help);
  void sample(std::string_view name, std::string_view labels, std::int64_t value);
  void fraction(std::string_view name, std::string_view labels, double value);
  void counter(std::string_view name, std::string_view help, std::int64_t value);
  void gauge(std::string_view name, std::string_view help, std::int64_t value);
  /// The samples of one histogram: `counts` has one more entry than `bounds`, of the values beyond.
  void buckets(std::string_view name, std::string_view labels, std::span<const double> bounds, std::span<const std::int64_t> counts,
               double sum);
  [[nodiscard]] std::string& text() { return out_; }
  [[nodiscard]] std::string take() && { return std::move(out_); }

 private:
  void write_sample(std::string_view name, std::string_view labels, std::string_view value);

  std::string out_;
};

/// What the engine counts and what the model occupies.
void append_engine(MetricsPage& page, const EngineView& engine);

}  // namespace deepinfer::server
