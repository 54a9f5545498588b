#include "server/http_message.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "base/check.h"

namespace deepinfer::server {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::optional<char> hex_byte(std::string_view two_digits) {
  unsigned value = 0;
  const char* const end = two_digits.data() + two_digits.size();
  const auto [at, error] = std::from_chars(two_digits.data(), end, value, 16);
  if (two_digits.size() != 2 || error != std::errc{} || at != end) {
    return std::nullopt;
  }
  return static_cast<char>(value);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool is_id_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

std::string_view RequestHead::header(std::string_view lower_case_name) const {
  const auto found = std::ranges::find(headers, lower_case_name, [](const auto& header) { return std::string_view(header.first); });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::string> path_of_target(std::string_view target) {
  if (const std::size_t scheme = target.find("://"); scheme != std::string_view::npos && !target.starts_with('/')) {
    const std::size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  if (!target.starts_with('/')) {
    return std::nullopt;
  }
  std::string out;
  for (std::size_t i = 0; i < target.size(); ++i) {
    char c = target[i];
    if (c == '%') {
      const std::optional<char> escaped = hex_byte(target.substr(i + 1, 2));
      if (!escaped) {
        return std::nullopt;
      }
      c = *escaped;
      i += 2;
    }
    if (is_control(c)) {
      return std::nullopt;
    }
    out.push_back(c);
  }
  return out;
}

std::string sane_request_id(std::string_view given) {
  constexpr std::size_t kLongest = 64;
  if (!given.empty() && given.size() <= kLongest && std::ranges::all_of(given, is_id_character)) {
    return std::string(given);
  }
  std::random_device entropy;
  std::string out;
  for (int word = 0; word < 4; ++word) {
    auto bits = static_cast<std::uint32_t>(entropy());
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) {
      out.push_back(kHexDigits[bits & 15]);
    }
  }
  return out;
}

std::string response_head(const Response& response, std::string_view request_id, Delivery delivery) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " ";
  const auto add = [&out](std::string_view name, std::string_view value) { out.append(name).append(": ").append(value).append("\r\n"); };
  out.append(reason_phrase(response.status)).append("\r\n");
  if (!response.content_type.empty()) {
    add("Content-Type", response.content_type);
  }
  switch (delivery.framing) {
    case Delivery::Framing::length:
      add("Content-Length", std::to_string(response.body.size()));
      break;
    case Delivery::Framing::chunked:
      add("Transfer-Encoding", "chunked");
      break;
    case Delivery::Framing::until_close:
      break;
  }
  add("Connection", delivery.keep_alive ? "keep-alive" : "close");
  add("x-request-id", request_id);
  for (const auto& [name, value] : response.headers) {
    add(name, value);
  }
  return out + "\r\n";
}

void append_chunk(std::string& out, std::string_view data) {
  check(!data.empty(), "a chunk holds data");
  char size[16];
  const auto [end, error] = std::to_chars(std::begin(size), std::end(size), data.size(), 16);
  out.append(size, end).append("\r\n").append(data).append("\r\n");
}

void append_event(std::string& out, std::string_view name, std::string_view data) {
  if (!name.empty()) {
    out.append("event: ").append(name).append("\n");
  }
  for (;;) {
    const std::size_t line_end = data.find('\n');
    out.append("data: ").append(data.substr(0, line_end)).append("\n");
    if (line_end == std::string_view::npos) {
      break;
    }
    data.remove_prefix(line_end + 1);
  }
  out.append("\n");
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 422:
      return "Unprocessable Entity";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

}  // namespace deepinfer::server
