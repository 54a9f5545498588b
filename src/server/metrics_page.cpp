#include "server/metrics_page.h"

#include <charconv>
#include <iterator>

namespace deepinfer::server {

std::string metric_number(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value);
  return {text, end};
}

void MetricsPage::head(std::string_view name, std::string_view type, std::string_view help) {
  out_.append("# HELP deepinfer_").append(name).append(" ").append(help).append("\n");
  out_.append("# TYPE deepinfer_").append(name).append(" ").append(type).append("\n");
}

void MetricsPage::sample(std::string_view name, std::string_view labels, std::int64_t value) {
  write_sample(name, labels, std::to_string(value));
}

void MetricsPage::fraction(std::string_view name, std::string_view labels, double value) {
  write_sample(name, labels, metric_number(value));
}

void MetricsPage::write_sample(std::string_view name, std::string_view labels, std::string_view value) {
  out_.append("deepinfer_").append(name);
  if (!labels.empty()) {
    out_.append("{").append(labels).append("}");
  }
  out_.append(" ").append(value).append("\n");
}

void MetricsPage::counter(std::string_view name, std::string_view help, std::int64_t value) {
  head(name, "counter", help);
  sample(name, {}, value);
}

void MetricsPage::gauge(std::string_view name, std::string_view help, std::int64_t value) {
  head(name, "gauge", help);
  sample(name, {}, value);
}

void MetricsPage::buckets(std::string_view name, std::string_view labels, std::span<const double> bounds,
                          std::span<const std::int64_t> counts, double sum) {
  const std::string more = labels.empty() ? std::string() : std::string(labels) + ",";
  const std::string own = labels.empty() ? std::string() : "{" + std::string(labels) + "}";
  std::int64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    const std::string bound = i < bounds.size() ? metric_number(bounds[i]) : "+Inf";
    sample(std::string(name) + "_bucket", more + "le=\"" + bound + "\"", below);
  }
  out_.append("deepinfer_").append(name).append("_sum").append(own).append(" ").append(metric_number(sum)).append("\n");
  sample(std::string(name) + "_count", labels, below);
}

}  // namespace deepinfer::server
