#include "server/access_log.h"

#include <charconv>
#include <iterator>

#include "base/json.h"
#include "base/utf8.h"

namespace deepinfer::server {
namespace {

/// Longest path that a log line shows.
constexpr std::size_t kMaxPathBytes = 200;

std::string milliseconds(Duration duration) {
  char text[32];
  const double value = std::chrono::duration<double, std::milli>(duration).count();
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), value, std::chars_format::fixed, 1);
  return {text, end};
}

std::string_view outcome(const AccessRecord& record) {
  if (!record.abandonment) {
    return {};
  }
  switch (*record.abandonment) {
    case Abandonment::client_gone:
      return "client gone";
    case Abandonment::reader_too_slow:
      return "reader too slow";
    case Abandonment::shutting_down:
      return "shutting down";
  }
  return {};
}

}  // namespace

std::string access_line(const AccessRecord& record, LogFormat format) {
  const std::string path = utf8::replace_invalid(std::string_view(record.head.path).substr(0, kMaxPathBytes));
  const std::string_view ended = outcome(record);
  if (format == LogFormat::json) {
    json::Object out{{"id", record.head.request_id},
                     {"remote", record.head.remote},
                     {"method", record.head.method},
                     {"path", path},
                     {"status", record.status},
                     {"bytes", static_cast<std::uint64_t>(record.num_body_bytes)},
                     {"ms", json::Number{milliseconds(record.duration)}}};
    for (const auto& [name, value] : record.details) {
      out.set(name, value);
    }
    if (!ended.empty()) {
      out.set("ended", ended);
    }
    return json::to_text(out);
  }
  std::string out = "id=" + record.head.request_id + " remote=" + record.head.remote + " \"" + record.head.method + " " + path +
                    "\" status=" + std::to_string(record.status) + " bytes=" + std::to_string(record.num_body_bytes) +
                    " ms=" + milliseconds(record.duration);
  for (const auto& [name, value] : record.details) {
    out += " " + name + "=" + (value.as_string() != nullptr ? *value.as_string() : json::to_text(value));
  }
  if (!ended.empty()) {
    out.append(" ended=\"").append(ended).append("\"");
  }
  return out;
}

}  // namespace deepinfer::server
