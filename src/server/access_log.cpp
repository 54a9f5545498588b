#include "server/access_log.h"

#include <charconv>
#include <iterator>

#include "base/json.h"
#include "base/utf8.h"

namespace deepinfer::server {
namespace {

/// Longest path that a log line shows.
constexpr std::size_t kMaxPathBytes = 200;
/// Longest value of a detail.
constexpr std::size_t kMaxValueBytes = 300;

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
    case Abandonment::out_of_time:
      return "out of time";
    case Abandonment::aborted:
      return "aborted";
  }
  return {};
}

std::string shortened(std::string_view text, std::size_t max_bytes) { return utf8::replace_invalid(text.substr(0, max_bytes)); }

/// One word stays as it is, anything else becomes a JSON string: a line is a line whatever a client sent.
void append_value(std::string& out, const json::Value& value) {
  constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const std::string* const text = value.as_string();
  if (text == nullptr) {
    json::append_text(out, value);
  } else if (!text->empty() && text->find_first_not_of(kWord) == std::string::npos) {
    out += *text;
  } else {
    json::append_string(out, shortened(*text, kMaxValueBytes));
  }
}

}  // namespace

std::string access_line(const AccessRecord& record, LogFormat format) {
  const std::string path = shortened(record.head.path, kMaxPathBytes);
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
  std::string out = "id=" + record.head.request_id + " remote=" + record.head.remote + " ";
  json::append_string(out, record.head.method + " " + path);
  out += " status=" + std::to_string(record.status) + " bytes=" + std::to_string(record.num_body_bytes) +
         " ms=" + milliseconds(record.duration);
  for (const auto& [name, value] : record.details) {
    out += " " + name + "=";
    append_value(out, value);
  }
  if (!ended.empty()) {
    out.append(" ended=\"").append(ended).append("\"");
  }
  return out;
}

}  // namespace deepinfer::server
