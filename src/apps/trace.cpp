#include "apps/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"

namespace deepinfer::apps {
namespace {

constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// The text before the next line feed, which is taken away with it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

std::optional<std::int64_t> integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> member(const json::Value& row, std::string_view name) {
  const json::Value* const value = row.find(name);
  return value == nullptr || value->as_number() == nullptr ? std::nullopt : value->as_number()->as_int64();
}

std::int32_t count(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 1, std::numeric_limits<std::int32_t>::max()));
}

Result<TraceRequest> mooncake_request(std::string_view line) {
  const auto row = json::parse(line);
  if (!row) {
    return std::unexpected(row.error());
  }
  constexpr double kMilliseconds = 1e-3;
  const auto time = member(*row, "timestamp");
  const auto num_prompt = member(*row, "input_length");
  const auto num_output = member(*row, "output_length");
  if (!time || !num_prompt || !num_output) {
    return fail(ErrorKind::invalid_argument, "a row needs the integers timestamp, input_length and output_length");
  }
  TraceRequest out{
      .arrival_seconds = static_cast<double>(*time) * kMilliseconds, .num_prompt = count(*num_prompt), .num_output = count(*num_output)};
  const json::Value* const ids = row->find("hash_ids");
  if (ids == nullptr || ids->as_array() == nullptr) {
    return fail(ErrorKind::invalid_argument, "a row needs the list hash_ids");
  }
  for (const json::Value& id : *ids->as_array()) {
    const auto value = id.as_number() == nullptr ? std::nullopt : id.as_number()->as_int64();
    if (!value) {
      return fail(ErrorKind::invalid_argument, "hash_ids holds something else than integers");
    }
    out.hash_ids.push_back(*value);
  }
  return out;
}

/// "2023-11-16 18:17:03.9799600" in seconds since 1970.
std::optional<double> azure_seconds(std::string_view text) {
  constexpr std::size_t kDateTime = 19;
  if (text.size() < kDateTime) {
    return std::nullopt;
  }
  const auto number = [text](std::size_t begin, std::size_t size) { return integer(text.substr(begin, size)); };
  const auto year = number(0, 4);
  const auto month = number(5, 2);
  const auto day = number(8, 2);
  const auto hour = number(11, 2);
  const auto minute = number(14, 2);
  double second = 0;
  const auto [end, error] = std::from_chars(text.data() + 17, text.data() + text.size(), second, std::chars_format::fixed);
  if (!year || !month || !day || !hour || !minute || error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(*year)), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) {
    return std::nullopt;
  }
  const std::chrono::seconds whole =
      std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(*hour) + std::chrono::minutes(*minute);
  return static_cast<double>(whole.count()) + second;
}

Result<TraceRequest> azure_request(std::string_view line) {
  const std::size_t first = line.find(',');
  const std::size_t second = first == std::string_view::npos ? first : line.find(',', first + 1);
  if (second == std::string_view::npos) {
    return fail(ErrorKind::invalid_argument, "a row needs three columns");
  }
  const auto time = azure_seconds(line.substr(0, first));
  const auto num_prompt = integer(line.substr(first + 1, second - first - 1));
  const auto num_output = integer(line.substr(second + 1));
  if (!time || !num_prompt || !num_output) {
    return fail(ErrorKind::invalid_argument, "a row needs a time like 2023-11-16 18:17:03.97 and two counts");
  }
  return TraceRequest{.arrival_seconds = *time, .num_prompt = count(*num_prompt), .num_output = count(*num_output)};
}

}  // namespace

Result<Trace> parse_trace(std::string_view text, std::size_t max_requests) {
  Trace out;
  std::size_t line_number = 0;
  if (text.starts_with(kAzureHeader)) {
    out.format = TraceFormat::azure;
    take_line(text);
    ++line_number;
  }
  while (!text.empty() && out.requests.size() < max_requests) {
    const std::string_view line = take_line(text);
    ++line_number;
    if (line.empty()) {
      continue;
    }
    auto request = out.format == TraceFormat::azure ? azure_request(line) : mooncake_request(line);
    if (!request) {
      return fail(ErrorKind::invalid_argument, "line " + std::to_string(line_number) + " of the trace: " + request.error().message);
    }
    out.requests.push_back(std::move(*request));
  }
  if (out.requests.empty()) {
    return fail(ErrorKind::invalid_argument, "the trace has no request");
  }
  std::ranges::stable_sort(out.requests, {}, &TraceRequest::arrival_seconds);
  const double begin = out.requests.front().arrival_seconds;
  for (TraceRequest& request : out.requests) {
    request.arrival_seconds -= begin;
  }
  return out;
}

}  // namespace deepinfer::apps
